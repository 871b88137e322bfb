"""Planning a unit test: the refresh that it plays, with given rows in the places of all that the query reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from airflow_dynamic_tables.core.identifiers import TableIdentifier, quote
from airflow_dynamic_tables.core.query_tests.plan import GivenTable, QueryTestPlan
from airflow_dynamic_tables.core.query_tests.values import seen_by_readers, sql_of
from airflow_dynamic_tables.core.refresh.actions import RefreshAction
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, SourceBinding
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.tables.dates import scheduled_partitions
from airflow_dynamic_tables.core.tables.formats import FORMATS
from airflow_dynamic_tables.core.tables.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.core.tables.type_parsing import parse_type
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.queries.editing import replace_tables
from airflow_dynamic_tables.definitions.query_tests.model import GivenRows, QueryTest
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.queries.functions import bind_functions
from airflow_dynamic_tables.services.queries.views import inline_views
from airflow_dynamic_tables.services.refresh.binding import view_name
from airflow_dynamic_tables.services.refresh.planning import Bound
from airflow_dynamic_tables.services.refresh.preview import statement
from airflow_dynamic_tables.services.refresh.requests import in_time_zone
from airflow_dynamic_tables.services.workspace import Workspace

_SOME_TIME = datetime(2000, 1, 1, tzinfo=UTC)
"""The schedule time of a test that names none; nothing hangs on it."""


def plan_test(workspace: Workspace, test: QueryTest, sources: Mapping[TableIdentifier, Source]) -> QueryTestPlan:
    """Plan a test as a refresh is planned. Catalogs are asked for views that are not given and for functions, nothing else.

    :param sources: those of the definitions.
    :raises ConfigurationError: when rows are missing of a table that the query reads, or given of one that it does not read.
    :raises CatalogError: as for a refresh, see :func:`~airflow_dynamic_tables.services.queries.views.inline_views`.
    """
    given = {rows.identifier: rows for rows in test.given}
    others = {name: source for name, source in sources.items() if name not in given}
    table = inline_views(workspace, test.table, others)
    _check_given(table, given)
    views = {name: view_name(table, number) for number, name in enumerate(table.upstream)}
    query, functions = bind_functions(
        workspace, replace_tables(table.expanded_query, {name: quote(view) for name, view in views.items()})
    )
    bindings = tuple(SourceBinding(str(name), view, format="values", version="given") for name, view in views.items())
    time, partitions = _refreshed(test)
    traits = FORMATS[table.format]
    plan = RefreshPlan(
        token="test",
        identifier=str(table.identifier),
        schedule_time=time,
        action=RefreshAction.FULL,
        reason=f"test: {test.name}",
        statement=statement(table.expanded_query, partitions),
        query=query,
        stage="",
        file_format=traits.file_format,
        keys_in_files=traits.keys_in_files,
        partition_keys=table.partition_keys,
        partitions=partitions,
        sources=bindings,
        functions=functions,
        timezone=table.timezone,
        expectations=table.expectations,
        settings=Bound(table, bindings, query, functions).settings,
        allowed=workspace.settings.allowed,
    )
    tables = tuple(_given_table(given[name], view, sources.get(name)) for name, view in views.items())
    return QueryTestPlan(plan, tables, test.expected.query)


def _check_given(table: DynamicTable, given: Iterable[TableIdentifier]) -> None:
    """Check that there are rows of all tables that the query reads once views are written out, and of no others.

    :raises ConfigurationError: names them.
    """
    names = set(given)
    if missing := [str(name) for name in table.upstream if name not in names]:
        raise ConfigurationError(f"The query reads {', '.join(missing)}, whose rows are not given; 'rows: []' gives none.")
    if others := sorted(map(str, names.difference(table.upstream))):
        raise ConfigurationError(f"The query does not read {', '.join(others)}; it reads {', '.join(map(str, table.upstream))}.")


def _refreshed(test: QueryTest) -> tuple[datetime, PartitionSet]:
    """The schedule time, and which partitions a refresh at that time would replace, or those that are named."""
    table = test.table
    if test.schedule_time is None:
        return _SOME_TIME, WHOLE_TABLE if test.partitions is None else test.partitions
    time = in_time_zone(test.schedule_time, table)
    if test.partitions is not None:
        return time, test.partitions
    return time, scheduled_partitions(time, table.freshness, table.formatters, table.timezone)


def _given_table(given: GivenRows, view: str, source: Source | None) -> GivenTable:
    same = source.event_time.deduplicate if source is not None and source.event_time is not None else ()
    if given.query is None:
        return GivenTable(str(given.identifier), view, _rows_sql(given), deduplicate=same)
    columns = tuple(Column(column.name, str(seen_by_readers(parse_type(column.type)))) for column in given.columns)
    return GivenTable(str(given.identifier), view, given.query, columns, given.others, same)


def _rows_sql(given: GivenRows) -> str:
    """A query for rows."""
    kinds = [parse_type(column.type) for column in given.columns]
    names = [quote(column.name) for column in given.columns]
    if not given.rows:
        nothing = ", ".join(f"{sql_of(None, kind)} AS {name}" for kind, name in zip(kinds, names, strict=True))
        return f"SELECT {nothing} WHERE false"
    rows = (", ".join(sql_of(cell, kind) for cell, kind in zip(row, kinds, strict=True)) for row in given.rows)
    return f"SELECT * FROM VALUES {', '.join(f'({row})' for row in rows)} AS t({', '.join(names)})"
