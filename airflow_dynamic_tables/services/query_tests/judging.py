"""Whether a test holds: what its query returned against what it expects."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake, did_you_mean
from airflow_dynamic_tables.core.query_tests.comparing import Columns, Difference, difference
from airflow_dynamic_tables.core.query_tests.plan import QueryTestOutcome, ReturnedRows
from airflow_dynamic_tables.core.query_tests.values import Cell, Row, cell_of, cell_of_spark
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.core.tables.type_parsing import parse_type
from airflow_dynamic_tables.definitions.query_tests.model import QueryTest

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


class Verdict(StrEnum):
    """What became of a test: ``error`` when nobody knows whether it holds."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class QueryTestResult:
    """The verdict on one test; ``place`` is its path:line:column, ``message`` says what is wrong with it itself."""

    table: TableIdentifier
    name: str
    verdict: Verdict
    seconds: float
    place: str
    message: str | None = None
    difference: Difference | None = None

    @property
    def full_name(self) -> str:
        """What no other test is called."""
        return f"{self.table}::{self.name}"


class _WrongTestError(Exception):
    """What a test expects cannot be; carries where and why."""

    def __init__(self, mistake: Mistake) -> None:
        self.mistake = mistake
        super().__init__(mistake.message)


def judge(test: QueryTest, outcome: QueryTestOutcome) -> QueryTestResult:
    """The verdict on a test that was run."""
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
    """The verdict on a test that could not be run."""
    return _result(test, Verdict.ERROR, seconds, message=message)


def _result(
    test: QueryTest,
    verdict: Verdict,
    seconds: float,
    place: str | None = None,
    message: str | None = None,
    found: Difference | None = None,
) -> QueryTestResult:
    mistake = test.at("name", "")
    here = f"{mistake.path}:{mistake.line}:{mistake.column}"
    return QueryTestResult(test.table.identifier, test.name, verdict, seconds, place or here, message, found)


def _difference(test: QueryTest, returned: ReturnedRows, expected: ReturnedRows | None) -> Difference:
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
    """Which columns have another type than expected; ``None``: none of them."""
    types = {column.name: column.type for column in returned.columns}
    wrong = (f"column {name!r} is {types[name]}, not {kind}" for name, kind in test.expected.types.items() if types[name] != kind)
    return "; ".join(wrong) or None


def _check_names(test: QueryTest, names: Sequence[str], expected: ReturnedRows | None) -> None:
    """Check that all columns that the test names are there."""
    wanted = [column.name for column in expected.columns] if expected is not None else test.expected.named
    for name in (*wanted, *test.expected.key, *test.expected.only, *test.expected.types):
        if name not in names:
            hint = did_you_mean(name, names) or f"; it returns {', '.join(names)}"
            raise _WrongTestError(test.at("expect", f"the query returns no column {name!r}{hint}"))


def _rows_of_spark(rows: ReturnedRows, compared: Sequence[Column], zone: str) -> list[Row]:
    """The compared columns of rows, which have them all."""
    at = {column.name: number for number, column in enumerate(rows.columns)}
    kinds = [(at[column.name], parse_type(rows.columns[at[column.name]].type)) for column in compared]
    values = map(json.loads, rows.rows)
    return [tuple(cell_of_spark(row[number], kind, zone) for number, kind in kinds) for row in values]


def _expected_rows(test: QueryTest, expected: ReturnedRows | None, compared: Sequence[Column]) -> list[Row]:
    """What the test expects, in the types that the query returns; a column that a row leaves out is NULL."""
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
    """What a query expects; whole numbers may stand for other numbers, else the types have to be those of the table's query."""
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
    """A value in the type of the column: a number in the spelling that it has there."""
    if cell is None or kind == column.type:
        return cell
    try:
        return cell_of(cell, parse_type(column.type), test.table.timezone)
    except ValueError as error:
        raise _WrongTestError(test.at("expect", f"{column.name!r}: {error}")) from None


def _is_number(kind: str) -> bool:
    return kind.startswith(_NUMBERS)
