"""Query tests: planning, running, and comparing the returned with the expected rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from airflow_dynamic_tables.core.identifiers import TableIdentifier, quote
from airflow_dynamic_tables.core.mistakes import Mistake, did_you_mean
from airflow_dynamic_tables.core.partition_dates import scheduled_partitions
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.query_test_plans import (
    GivenTable,
    QueryTestOutcome,
    QueryTestOutcomes,
    QueryTestPlan,
    QueryTestPlans,
    ReturnedRows,
)
from airflow_dynamic_tables.core.query_test_values import (
    Cell,
    Columns,
    Row,
    RowDifferences,
    cell_of,
    cell_of_spark,
    difference,
    seen_by_readers,
    sql_of,
)
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.types import parse_type
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.query_test_rows import GivenRows, QueryTest
from airflow_dynamic_tables.exceptions import ConfigurationError, DynamicTableError
from airflow_dynamic_tables.services.queries import inline_views
from airflow_dynamic_tables.services.refresh.planning import bind_query, view_name
from airflow_dynamic_tables.services.refresh.preview import statement
from airflow_dynamic_tables.services.refresh.requests import in_time_zone
from airflow_dynamic_tables.services.workspace import Workspace

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


class Verdict(StrEnum):
    """The result of a test; ``error`` if it could not be determined."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class QueryTestResult:
    """The result of one test; ``place`` is its path:line:column, ``message`` describes an error in the test itself."""

    table: TableIdentifier
    name: str
    verdict: Verdict
    seconds: float
    place: str
    message: str | None = None
    difference: RowDifferences | None = None

    @property
    def full_name(self) -> str:
        """The unique name of the test."""
        return f"{self.table}::{self.name}"


class _WrongTestError(Exception):
    """The expectation of a test is invalid; contains the place and the reason."""

    def __init__(self, mistake: Mistake) -> None:
        self.mistake = mistake
        super().__init__(mistake.message)


def judge(test: QueryTest, outcome: QueryTestOutcome) -> QueryTestResult:
    """Return the result of a test that was run."""
    if outcome.returned is None:
        return error_of(test, outcome.error or "Spark said nothing", outcome.seconds)
    try:
        found = _difference(test, outcome.returned, outcome.expected)
        retyped = _retyped(test, outcome.returned)
    except _WrongTestError as error:
        place = f"{error.mistake.path}:{error.mistake.line}:{error.mistake.column}"
        return _result(test, Verdict.ERROR, outcome.seconds, place, str(error))
    verdict = Verdict.FAILED if found or retyped else Verdict.PASSED
    return _result(test, verdict, outcome.seconds, message=retyped, found=found or None)


def error_of(test: QueryTest, message: str, seconds: float = 0.0) -> QueryTestResult:
    """Return the result of a test that could not be run."""
    return _result(test, Verdict.ERROR, seconds, message=message)


def _result(
    test: QueryTest,
    verdict: Verdict,
    seconds: float,
    place: str | None = None,
    message: str | None = None,
    found: RowDifferences | None = None,
) -> QueryTestResult:
    mistake = test.at("name", "")
    here = f"{mistake.path}:{mistake.line}:{mistake.column}"
    return QueryTestResult(test.table.identifier, test.name, verdict, seconds, place or here, message, found)


def _difference(test: QueryTest, returned: ReturnedRows, expected: ReturnedRows | None) -> RowDifferences:
    names = [column.name for column in returned.columns]
    _check_names(test, names, expected)
    compared = [column for column in returned.columns if not test.expected.only or column.name in test.expected.only]
    columns = Columns(
        tuple(column.name for column in compared), tuple(parse_type(column.type) for column in compared), test.expected.key
    )
    zone = test.table.timezone
    got = _rows_of_spark(returned, compared, zone)
    return difference(columns, _expected_rows(test, expected, compared), got)


def _retyped(test: QueryTest, returned: ReturnedRows) -> str | None:
    """Return the columns whose types differ from the expected ones; ``None`` if there are none."""
    types = {column.name: column.type for column in returned.columns}
    wrong = (f"column {name!r} is {types[name]}, not {kind}" for name, kind in test.expected.types.items() if types[name] != kind)
    return "; ".join(wrong) or None


def _check_names(test: QueryTest, names: Sequence[str], expected: ReturnedRows | None) -> None:
    wanted = [column.name for column in expected.columns] if expected is not None else test.expected.named
    for name in (*wanted, *test.expected.key, *test.expected.only, *test.expected.types):
        if name not in names:
            hint = did_you_mean(name, names) or f"; it returns {', '.join(names)}"
            raise _WrongTestError(test.at("expect", f"the query returns no column {name!r}{hint}"))


def _rows_of_spark(rows: ReturnedRows, compared: Sequence[Column], zone: str) -> list[Row]:
    at = {column.name: number for number, column in enumerate(rows.columns)}
    kinds = [(at[column.name], parse_type(rows.columns[at[column.name]].type)) for column in compared]
    values = map(json.loads, rows.rows)
    return [tuple(cell_of_spark(row[number], kind, zone) for number, kind in kinds) for row in values]


def _expected_rows(test: QueryTest, expected: ReturnedRows | None, compared: Sequence[Column]) -> list[Row]:
    """Return the expected rows in the types that the query returns; a column missing in a row is NULL."""
    zone = test.table.timezone
    if expected is not None:
        return _rows_of_sql(test, expected, compared)
    rows: list[Row] = []
    for row in test.expected.rows:
        cells = []
        for column in compared:
            try:
                cells.append(cell_of(row.values.get(column.name), parse_type(column.type), zone))
            except ValueError as error:
                raise _WrongTestError(row.at(column.name, f"{column.name!r}: {error}")) from None
        rows.append(tuple(cells))
    return rows


def _rows_of_sql(test: QueryTest, expected: ReturnedRows, compared: Sequence[Column]) -> list[Row]:
    """Return the rows that an SQL expectation returns.

    Types must equal those of the table's query, except that numbers are converted.
    """
    kinds = {column.name: column.type for column in expected.columns}
    zone = test.table.timezone
    for column in compared:
        kind = kinds.get(column.name, "void")
        if kind not in (column.type, "void") and not (_is_number(kind) and _is_number(column.type)):
            message = f"{column.name!r} is {column.type}, and the rows of 'sql' have {kind} in it; cast it there"
            raise _WrongTestError(test.at("expect", message))
    there = [column for column in compared if column.name in kinds]
    rows = []
    for row in _rows_of_spark(expected, there, zone):
        cells = dict(zip((column.name for column in there), row, strict=True))
        rows.append(tuple(_converted(test, cells.get(column.name), kinds.get(column.name), column) for column in compared))
    return rows


def _converted(test: QueryTest, cell: Cell, kind: str | None, column: Column) -> Cell:
    if cell is None or kind == column.type:
        return cell
    try:
        return cell_of(cell, parse_type(column.type), test.table.timezone)
    except ValueError as error:
        raise _WrongTestError(test.at("expect", f"{column.name!r}: {error}")) from None


def _is_number(kind: str) -> bool:
    return kind.startswith(_NUMBERS)


_SOME_TIME = datetime(2000, 1, 1, tzinfo=UTC)
"""The schedule time of a test without one; the result does not depend on it."""


def plan_test(workspace: Workspace, test: QueryTest, sources: Mapping[TableIdentifier, Source]) -> QueryTestPlan:
    """Plan a test like a refresh. Catalogs are only queried for functions, and for views without given rows.

    :raises ConfigurationError: if rows of a table that the query reads are missing, or given for one that it does not read.
    :raises CatalogError: as for a refresh, see :func:`~airflow_dynamic_tables.services.queries.inline_views`.
    """
    given = {rows.identifier: rows for rows in test.given}
    others = {name: source for name, source in sources.items() if name not in given}
    table = inline_views(workspace, test.table, others)
    _check_given(table, given)
    views = {name: view_name(table, number) for number, name in enumerate(table.upstream)}
    bindings = tuple(SourceBinding(str(name), view, format="values", version="given") for name, view in views.items())
    time, partitions = _refreshed(test)
    why = (RefreshAction.FULL, f"test: {test.name}")
    bound = bind_query(workspace, table, bindings)
    bound = bound.at(time) if test.schedule_time is not None else bound
    plan = bound.plan("test", time, why, workspace.settings.allowed)
    plan = replace(plan, statement=statement(table.expanded_query, partitions), partitions=partitions)
    tables = tuple(_given_table(given[name], view, sources.get(name)) for name, view in views.items())
    return QueryTestPlan(plan, tables, test.expected.query)


def _check_given(table: DynamicTable, given: Iterable[TableIdentifier]) -> None:
    """Check that rows are given for exactly the tables that the query reads with views inlined.

    :raises ConfigurationError: if not; the message names the tables.
    """
    names = set(given)
    if missing := [str(name) for name in table.upstream if name not in names]:
        raise ConfigurationError(f"The query reads {', '.join(missing)}, whose rows are not given; 'rows: []' gives none.")
    if others := sorted(map(str, names.difference(table.upstream))):
        raise ConfigurationError(f"The query does not read {', '.join(others)}; it reads {', '.join(map(str, table.upstream))}.")


def _refreshed(test: QueryTest) -> tuple[datetime, PartitionSet]:
    """Return the schedule time, and the partitions named in the test or replaced by a refresh at that time."""
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
    kinds = [parse_type(column.type) for column in given.columns]
    names = [quote(column.name) for column in given.columns]
    if not given.rows:
        nothing = ", ".join(f"{sql_of(None, kind)} AS {name}" for kind, name in zip(kinds, names, strict=True))
        return f"SELECT {nothing} WHERE false"
    rows = (", ".join(sql_of(cell, kind) for cell, kind in zip(row, kinds, strict=True)) for row in given.rows)
    return f"SELECT * FROM VALUES {', '.join(f'({row})' for row in rows)} AS t({', '.join(names)})"


Run = Callable[[QueryTestPlans], QueryTestOutcomes]
"""Runs tests on Spark, see :meth:`~airflow_dynamic_tables.runners.base.Runner.run_query_tests`."""


def run_tests(
    workspace: Workspace, tests: Sequence[QueryTest], sources: Mapping[TableIdentifier, Source], run: Run
) -> list[QueryTestResult]:
    """Run tests in one Spark application; the results are in the same order. Without tests, Spark is not started.

    :raises DynamicTableError: as for ``run``; a test that cannot be planned is a result.
    """
    results: dict[int, QueryTestResult] = {}
    plans: dict[int, QueryTestPlan] = {}
    for number, test in enumerate(tests):
        try:
            plans[number] = plan_test(workspace, test, sources)
        except DynamicTableError as error:
            results[number] = error_of(test, str(error))
    outcomes = run(QueryTestPlans(tuple(plans.values()))).outcomes if plans else ()
    for number, outcome in zip(plans, outcomes, strict=True):
        results[number] = judge(tests[number], outcome)
    return [results[number] for number in range(len(tests))]
