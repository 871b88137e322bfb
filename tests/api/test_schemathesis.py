"""Schemathesis asks everything that OpenAPI allows, and more: every answer is one that OpenAPI describes, and none is a 500."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from airflow_dynamic_tables.api.server import TokenAccess
from tests.api.conftest import DEFINITIONS
from tests.support.gateway import Served, served

TOKEN = "a-token-that-nobody-guesses"
EXAMPLES = 6
"""Requests for each route, right and wrong ones; twice as many found nothing else."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, empty_state: Path) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("gateway")
    (home / "definitions").mkdir()
    (home / "definitions" / "sales.yaml").write_text(DEFINITIONS)
    with served(home, home / "definitions", Path(shutil.copy(empty_state, home / "state.db")), TokenAccess(TOKEN)) as server:
        yield server


@pytest.mark.sampled
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_every_answer_is_described(gateway: Served, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_dict(gateway.client.get("/v3/openapi.json").json())
    address = str(gateway.client.base_url)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    asked = 0
    for found in schema.get_all_operations():
        operation = found.ok()

        @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            nonlocal asked
            asked += 1
            case.call_and_validate(base_url=address, headers=headers, timeout=120, excluded_checks=[positive_data_acceptance])

        with suppress(Unsatisfiable):  # a route that takes nothing cannot be asked wrongly
            ask()
    assert asked > 20
