"""REST models, CLI records and rows of statements have the fields of the results that services return."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

import pytest
from fastapi.routing import APIRoute
from pydantic.alias_generators import to_camel

from airflow_dynamic_tables.api.results import ResultModel, model_of
from airflow_dynamic_tables.api.routes import changes, refreshes, tables
from airflow_dynamic_tables.catalog.values import JobState
from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.services.catalogs import ObjectChange
from airflow_dynamic_tables.services.ctas.wanted import Created, Outcome
from airflow_dynamic_tables.services.deployments.values import Change, Difference
from airflow_dynamic_tables.services.lifecycle.dropping import Dropped
from airflow_dynamic_tables.services.lifecycle.registration import Renamed
from airflow_dynamic_tables.services.lifecycle.suspending import StateChange
from airflow_dynamic_tables.services.workspace import utc_now
from airflow_dynamic_tables.sql.session import StatementResult

TABLE = TableIdentifier("lake", "sales", "daily")
ROUTES = [route for one in (changes, refreshes, tables) for route in one.router.routes if isinstance(route, APIRoute)]


@dataclass(frozen=True, slots=True)
class Extended(StateChange):
    """A result to which a release has added a field."""

    moon: int | None = None
    """The phase of the moon."""


RESULTS: dict[str, Any] = {
    "suspend, resume": StateChange(TABLE, JobState.RUNNING, JobState.SUSPENDED),
    "drop": Dropped(TABLE),
    "rename": Renamed(TABLE, TABLE),
    "create": ObjectChange(str(TABLE), "created"),
    "ctas": Created(TABLE, Outcome.CREATED),
    "diff, explain": Difference(TABLE, Change.NEW),
    "refresh": Refresh("t", TABLE, RefreshAction.FULL, "asked", RefreshState.SUCCEEDED, utc_now(), utc_now()),
    "a new field": Extended(TABLE, JobState.RUNNING, JobState.SUSPENDED),
}


@pytest.mark.parametrize("operation", RESULTS)
def test_the_surfaces_show_every_field_of_a_result(operation: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = RESULTS[operation]
    kind: Any = type(result)
    names = [field.name for field in fields(result)]
    output.record(result, "json")
    assert list(json.loads(capsys.readouterr().out)) == names
    assert list(StatementResult.of(result).columns) == names
    assert list(model_of(kind).model_json_schema()["properties"]) == list(map(to_camel, names))


def test_a_new_field_brings_its_description_and_its_example() -> None:
    schema = model_of(Extended).model_json_schema()
    assert schema["properties"]["moon"]["description"] == "The phase of the moon."
    assert schema["properties"]["reason"]["description"] == "Why the table is suspended now."
    assert schema["examples"][0]["moon"] == 7


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.name}")
def test_every_route_returns_a_dataclass(route: APIRoute) -> None:
    result: Any = get_type_hints(route.endpoint)["return"]
    assert route.response_model is model_of(result)
    assert is_dataclass(result)
    assert ResultModel in route.response_model.__mro__
