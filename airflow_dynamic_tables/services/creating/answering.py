"""Queries that only read: bound to current versions as a refresh is, run by a job that writes nothing, answered with rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from airflow_dynamic_tables.core.identifiers import TableIdentifier, quote
from airflow_dynamic_tables.core.query_tests.plan import QueryTestOutcomes, QueryTestPlan, QueryTestPlans, ReturnedRows
from airflow_dynamic_tables.core.query_tests.values import cell_of_spark, to_plain
from airflow_dynamic_tables.core.refresh.actions import RefreshAction
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.tables.formats import DEFAULT_FORMAT, FORMATS
from airflow_dynamic_tables.core.tables.partitions import WHOLE_TABLE
from airflow_dynamic_tables.core.tables.type_parsing import parse_type
from airflow_dynamic_tables.core.tables.types import DataType, Primitive
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.definitions.queries.editing import replace_tables
from airflow_dynamic_tables.exceptions import DefinitionError
from airflow_dynamic_tables.services.creating.reading import ReadTable, read
from airflow_dynamic_tables.services.creating.wanted import QueryPlace, WantedTable
from airflow_dynamic_tables.services.queries.functions import bind_functions
from airflow_dynamic_tables.services.queries.views import inline_views
from airflow_dynamic_tables.services.refresh.binding import bind_sources, job_environment
from airflow_dynamic_tables.services.refresh.planning import Bound
from airflow_dynamic_tables.services.workspace import Workspace

Run = Callable[[QueryTestPlans, Mapping[str, str]], QueryTestOutcomes]
"""Runs plans on some Spark, see :meth:`~airflow_dynamic_tables.runners.base.Runner.run_query_tests`."""

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")

_NUMBERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), int),
    **dict.fromkeys(("float", "double"), float),
    "boolean": "true".__eq__,
}
"""Values that JSON has a type for."""


@dataclass(frozen=True, slots=True)
class FirstRows:
    """The first rows of a query, and whether it has more."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    is_cut: bool


def read_query(
    workspace: Workspace, definitions: Definitions, query: str, scope: tuple[str, str], place: QueryPlace
) -> ReadTable:
    """Check a query, and find every table that it reads.

    :param scope: catalog and database of short names.
    :raises DefinitionError: with all mistakes, each at its place in the query.
    """
    wanted = WantedTable(TableIdentifier(*scope, "(query)"), query, scope, place)
    return read(workspace, definitions, wanted, DEFAULT_FORMAT, is_stored=False)


def answer(workspace: Workspace, wanted: ReadTable, most: int, place: QueryPlace, run: Run) -> FirstRows:
    """The first rows of a query over the current versions of its tables.

    :param wanted: see :func:`read_query`.
    :param most: how many rows at most.
    :raises DefinitionError: what Spark says is wrong with the query.
    :raises DynamicTableError: when a table cannot be read, see
        :func:`~airflow_dynamic_tables.services.refresh.binding.bind_sources`, or Spark did not run.
    """
    plan = _plan(workspace, wanted)
    (outcome,) = run(QueryTestPlans((QueryTestPlan(plan, (), limit=most + 1),)), job_environment(workspace, plan)).outcomes
    if outcome.returned is None:
        raise DefinitionError((place.mistake(0, outcome.error or "Spark returned no rows and no error"),))
    return _first_rows(outcome.returned, most)


def _plan(workspace: Workspace, wanted: ReadTable) -> RefreshPlan:
    table = inline_views(workspace, wanted.table, wanted.sources)
    sources = bind_sources(workspace, table, wanted.sources)
    views = dict(zip(table.upstream, (quote(source.view) for source in sources), strict=True))
    query, functions = bind_functions(workspace, replace_tables(table.expanded_query, views))
    traits = FORMATS[table.format]
    return RefreshPlan(
        token="query",
        identifier=str(table.identifier),
        schedule_time=workspace.now(),
        action=RefreshAction.FULL,
        reason="a query",
        statement=table.expanded_query,
        query=query,
        stage="",
        file_format=traits.file_format,
        keys_in_files=traits.keys_in_files,
        partition_keys=(),
        partitions=WHOLE_TABLE,
        sources=sources,
        functions=functions,
        timezone=table.timezone,
        settings=Bound(table, sources, query, functions).settings,
        allowed=workspace.settings.allowed,
    )


def _first_rows(returned: ReturnedRows, most: int) -> FirstRows:
    kinds = [parse_type(column.type) for column in returned.columns]
    rows = [json.loads(row) for row in returned.rows[:most]]
    return FirstRows(
        tuple(column.name for column in returned.columns),
        tuple(tuple(_value(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in rows),
        len(returned.rows) > most,
    )


def _value(value: Any, kind: DataType) -> Any:
    """A value of the job as a reader of the table has it."""
    if value is None:
        return None
    match kind:
        case Primitive("timestamp"):
            try:
                return _EPOCH + timedelta(microseconds=int(value))
            except OverflowError:
                return to_plain(cell_of_spark(value, kind, "UTC"), kind)
        case Primitive("binary"):
            return bytes.fromhex(value)
        case Primitive(name) if name in _NUMBERS:
            return _NUMBERS[name](value)
        case Primitive():
            return value
    return to_plain(cell_of_spark(value, kind, "UTC"), kind)
