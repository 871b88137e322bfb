"""How often a refresh asks its catalog for the table: the entry and the content are each looked up once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import wraps
from typing import Any

import pytest

from airflow_dynamic_tables.core.refresh.reasons import ReasonCode
from airflow_dynamic_tables.formats.base import LakeTable
from airflow_dynamic_tables.services.refresh.requests import Skipped
from airflow_dynamic_tables.services.refresh.running import run
from tests.contracts.refreshing.place import MARCH, Place

DAY = timedelta(days=1)


def counted(of: type, name: str, calls: Counter[str], patch: pytest.MonkeyPatch) -> None:
    method: Callable[..., Any] = getattr(of, name)

    @wraps(method)
    def count(*arguments: Any, **options: Any) -> Any:
        calls[name] += 1
        return method(*arguments, **options)

    patch.setattr(of, name, count)


@pytest.fixture
def calls(place: Place, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The questions to the catalog of the table, by their names, and how often the table was loaded."""
    calls: Counter[str] = Counter()
    catalog = type(place.workspace.catalog(place.table.catalog))
    for name in dir(catalog):
        if name.split("_")[0] in ("get", "list", "create", "change", "alter", "drop", "rename", "table", "adopt"):
            counted(catalog, name, calls, monkeypatch)
    table: type[LakeTable] = type(place.workspace.table(place.table, place.format))
    counted(table, "load", calls, monkeypatch)
    return calls


@pytest.mark.sampled
def test_an_unchanged_table_is_asked_for_twice(place: Place, calls: Counter[str]) -> None:
    place.refresh(1, [1])
    request = place.request(MARCH + 2 * DAY, is_scheduled=True)
    request = replace(request, table=replace(request.table, skip_unchanged=True, formatters={}, partition_keys=("ds",)))
    place.clock.time = MARCH + 2 * DAY
    first = run(place.workspace, request, place.job)
    place.clock.time += DAY
    calls.clear()
    again = run(place.workspace, replace(request, token="again", schedule_time=MARCH + 3 * DAY), place.job)
    if place.format == "jdbc":  # whether the rows of a server's table changed is not known
        assert not isinstance(again, Skipped)
        return
    assert not isinstance(first, Skipped)
    assert isinstance(again, Skipped), again
    assert again.reason.code is ReasonCode.UNCHANGED
    assert calls == {"get_table": 1, "load": 1}
