"""Stand-ins for schedulers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.schedulers import airflow as of_airflow
from tests.support.schedulers import dolphin as of_dolphin


@pytest.fixture
def airflow() -> Iterator[of_airflow.StandIn]:
    with of_airflow.stand_in() as stand_in:
        yield stand_in


@pytest.fixture(params=["3.2", "3.3"])
def dolphin(request: pytest.FixtureRequest) -> Iterator[of_dolphin.StandIn]:
    with of_dolphin.stand_in(request.param) as stand_in:
        yield stand_in
