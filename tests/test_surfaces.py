"""REST models, CLI records and rows of statements have the fields of the results that services return."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from fastapi.routing import APIRoute
from pydantic.alias_generators import to_camel

from airflow_dynamic_tables.api import jobs, routes
from airflow_dynamic_tables.api.results import ResultModel, model_of
from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.arguments import OUTPUT
from airflow_dynamic_tables.cli.command_index import CommandGroup, all_commands
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.services.lifecycle.suspending import StateChange
from airflow_dynamic_tables.sql.executing import BY_KIND
from airflow_dynamic_tables.sql.session import StatementResult

ROUTES = [route for module in (jobs, routes) for route in module.router.routes if isinstance(route, APIRoute)]


@dataclass(frozen=True, slots=True)
class Extended(StateChange):
    """A result to which a release has added a field."""

    moon: int | None = None
    """The phase of the moon."""


def _kinds(hint: Any) -> Iterator[type]:
    """Return the dataclasses of a type, and those of their fields."""
    if isinstance(hint, type) and is_dataclass(hint) and hint is not TableIdentifier and hint is not PartitionSet:
        yield hint
        for inner in get_type_hints(hint).values():
            yield from _kinds(inner)
    for argument in get_args(hint):
        yield from _kinds(argument)


RESULTS = {kind.__name__: kind for route in ROUTES for kind in _kinds(get_type_hints(route.endpoint)["return"])}


def _empty(kind: type) -> Any:
    """Return an instance whose fields are all null."""
    result: Any = object.__new__(kind)
    for field in fields(kind):
        object.__setattr__(result, field.name, None)
    return result


@pytest.mark.parametrize("kind", [*RESULTS.values(), Extended], ids=lambda kind: kind.__name__)
def test_the_surfaces_show_every_field_of_a_result(kind: type, capsys: pytest.CaptureFixture[str]) -> None:
    names = [field.name for field in fields(kind)]
    output.record(_empty(kind), "json")
    assert list(json.loads(capsys.readouterr().out)) == names
    assert list(StatementResult.of(_empty(kind)).columns) == names
    assert StatementResult.listing(kind, [_empty(kind)]).columns == tuple(names)
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


def _printing() -> Iterator[str]:
    """Return the modules of all commands that have ``--output``."""
    for entry in all_commands():
        for command in entry.commands if isinstance(entry, CommandGroup) else (entry,):
            if OUTPUT.flags in [argument.flags for argument in command.arguments]:
                yield command.function.rpartition(".")[0]


@pytest.mark.parametrize("print_", [output.record, output.listing, output.written])
def test_commands_print_dataclasses_only(print_: Callable[..., None]) -> None:
    """The type checker refuses everything else."""
    (result, *_) = inspect.signature(print_).parameters.values()
    assert result.annotation in ("DataclassInstance", "Sequence[DataclassInstance]")


@pytest.mark.parametrize("module", sorted(set(_printing())))
def test_every_command_leaves_json_and_yaml_to_the_output(module: str) -> None:
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(import_module(module)))) if isinstance(node, ast.Call)]
    printed = [ast.unparse(call) for call in calls if ast.unparse(call.func) == "print"]
    assert [text for text in printed if "json." in text or "yaml." in text] == []


_ROWS = {"show", "show_create", "describe", "_declared_columns", "_by_format", "_by_spark"}
"""Functions whose columns are not the fields of a result: names, a text, columns of a table, and rows of a query."""


def test_every_statement_answers_with_the_fields_of_a_result() -> None:
    modules = {Path(inspect.getfile(function)) for function in BY_KIND.values()}
    functions = [node for file in modules for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)]
    assert {function.name for function in functions if _makes_columns(function)} == _ROWS


def _makes_columns(function: ast.FunctionDef) -> bool:
    calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(isinstance(called, ast.Name) and called.id == StatementResult.__name__ for called in calls)
