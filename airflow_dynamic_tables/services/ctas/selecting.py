"""The query of a CREATE TABLE AS or SELECT, read with the names, rules and job of a dynamic table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from airflow_dynamic_tables.catalog.values import CatalogView
from airflow_dynamic_tables.core.formats import DEFAULT_FORMAT, VIEW
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake, did_you_mean
from airflow_dynamic_tables.core.query_test_plans import QueryTestOutcomes, QueryTestPlan, QueryTestPlans, ReturnedRows
from airflow_dynamic_tables.core.query_test_values import cell_of_spark, to_plain
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schedule import Freshness, RefreshMode
from airflow_dynamic_tables.core.types import DataType, Primitive, parse_type
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.definitions.queries.editing import expand, unclear_names
from airflow_dynamic_tables.definitions.queries.text import Analysis, QueryProblem, Target, analyse, refusals
from airflow_dynamic_tables.definitions.table_problems import key_problems, output_problems
from airflow_dynamic_tables.exceptions import (
    CatalogNotFoundError,
    DefinitionError,
    NotFoundError,
    TableNotFoundError,
    UnsupportedError,
)
from airflow_dynamic_tables.services.ctas.wanted import QueryPlace, WantedTable
from airflow_dynamic_tables.services.queries import inline_views
from airflow_dynamic_tables.services.refresh.planning import bind_query, bind_sources, job_environment
from airflow_dynamic_tables.services.workspace import Workspace

_NEVER_DUE = Freshness(1)
"""A placeholder freshness, because the table is not scheduled."""


@dataclass(frozen=True, slots=True)
class ReadTable:
    """A wanted table as a dynamic table that is refreshed once, and the declared sources that it reads."""

    table: DynamicTable
    sources: dict[TableIdentifier, Source]


def read(
    workspace: Workspace, definitions: Definitions, wanted: WantedTable, table_format: str, *, is_stored: bool = True
) -> ReadTable:
    """Check a query, and resolve every table that it reads in the definitions or in the catalogs.

    :param is_stored: whether its rows are stored as a table, which requires unique column names.
    :raises DefinitionError: with all mistakes of the query.
    """
    analysis = analyse(wanted.query)
    problems = list(analysis.problems) or [
        *refusals(analysis.needs, workspace.settings.allowed),
        *(_output_problems(analysis) if is_stored else ()),
    ]
    sources: dict[TableIdentifier, Source] = {}
    targets: list[Target] = []
    for reference in () if analysis.problems else analysis.references:
        names = tuple(part.text for part in reference.parts)
        found = _found(workspace, definitions, wanted, names)
        if isinstance(found, str):
            problems.append(QueryProblem(reference.parts[0].start, found))
            continue
        targets.append(Target(found.identifier, found.identifier.sql))
        if found.source is not None:
            sources[found.identifier] = found.source
    if not problems:
        problems = list(unclear_names(analysis, targets))
    of_query = (wanted.place.mistake(each.offset, each.message) for each in sorted(problems, key=_place))
    if mistakes := (*_key_mistakes(analysis, wanted, table_format), *of_query):
        raise DefinitionError(mistakes)
    table = _as_dynamic(wanted, table_format, expand(analysis, targets).strip(), targets)
    return ReadTable(table, sources)


def _as_dynamic(wanted: WantedTable, table_format: str, expanded_query: str, targets: Sequence[Target]) -> DynamicTable:
    return DynamicTable(
        identifier=wanted.identifier,
        query=wanted.query.strip(),
        expanded_query=expanded_query,
        upstream=tuple(dict.fromkeys(target.identifier for target in targets)),
        declared_mode=RefreshMode.FULL,
        mode=RefreshMode.FULL,
        mode_reason="it is made once",
        freshness=_NEVER_DUE,
        cron=None,
        comment=wanted.comment,
        timezone=wanted.timezone,
        partition_keys=wanted.keys,
        format=table_format,
        skip_unchanged=False,
        spark=wanted.spark,
    )


def _place(problem: QueryProblem) -> int:
    return problem.offset


def _key_mistakes(analysis: Analysis, wanted: WantedTable, table_format: str) -> Iterator[Mistake]:
    """Return the mistakes of the partition keys that can be found without Spark; the job finds the others."""
    keys = tuple(enumerate(wanted.partition_keys))
    problems = list(key_problems(keys, table_format))
    if analysis.outputs is not None:
        problems += output_problems(keys, analysis)
    for number, problem in problems:
        yield wanted.keys_place.mistake(number, problem) if wanted.keys_place else wanted.place.mistake(0, problem)


def _output_problems(analysis: Analysis) -> Iterator[QueryProblem]:
    """Return duplicate column names that can be found without Spark."""
    uses = Counter(name.lower() for name in analysis.outputs or () if name)
    for name in sorted(name for name, count in uses.items() if count > 1):
        yield QueryProblem(0, f"the query returns column {name!r} more than once; give each its own name with AS")


@dataclass(frozen=True, slots=True)
class _Found:
    """An existing table, with its source if it is not a table of a supported format."""

    identifier: TableIdentifier
    source: Source | None = None


def _found(workspace: Workspace, definitions: Definitions, wanted: WantedTable, names: tuple[str, ...]) -> _Found | str:
    """Return the table of a name in the query, or an error message for the name."""
    written = ".".join(names)
    if len(names) > 3:
        return f"{written!r} has more than three parts: catalog.database.table"
    identifier = TableIdentifier.completed(names, *wanted.scope)
    if identifier in definitions.sources:
        return _Found(identifier, definitions.sources[identifier])
    try:
        entry = workspace.readable(identifier.catalog).get_table(identifier.path)
    except UnsupportedError:
        return _Found(identifier)  # the table exists, and binding reports why it cannot be read
    except (TableNotFoundError, NotFoundError, CatalogNotFoundError):
        if identifier in definitions.tables:
            return f"{identifier} has no version yet; refresh it first"
        if identifier == wanted.identifier:
            return f"{written!r} is the table that the query is to make; it can read that only to replace it"
        known = [".".join(parts[-len(names) :]) for parts in map(_parts, (*definitions.tables, *definitions.sources))]
        return f"unknown table {written!r}{did_you_mean(written, known) or f'; {identifier} is in no catalog and no definition'}"
    return _Found(identifier, Source(identifier, VIEW) if isinstance(entry, CatalogView) else None)


def _parts(identifier: TableIdentifier) -> tuple[str, str, str]:
    return identifier.catalog, identifier.database, identifier.table


Run = Callable[[QueryTestPlans, Mapping[str, str]], QueryTestOutcomes]
"""Runs plans on Spark, see :meth:`~airflow_dynamic_tables.runners.base.Runner.run_query_tests`."""

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")

_NUMBERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), int),
    **dict.fromkeys(("float", "double"), float),
    "boolean": "true".__eq__,
}
"""Conversion of values that have a JSON type."""


@dataclass(frozen=True, slots=True)
class FirstRows:
    """The first rows of a query, and whether it has more."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    is_cut: bool


def read_query(
    workspace: Workspace, definitions: Definitions, query: str, scope: tuple[str, str], place: QueryPlace
) -> ReadTable:
    """Check a query, and resolve every table that it reads.

    :param scope: catalog and database of short names.
    :raises DefinitionError: with all mistakes, each at its place in the query.
    """
    wanted = WantedTable(TableIdentifier(*scope, "(query)"), query, scope, place)
    return read(workspace, definitions, wanted, DEFAULT_FORMAT, is_stored=False)


def answer(workspace: Workspace, wanted: ReadTable, most: int, place: QueryPlace, run: Run) -> FirstRows:
    """Return the first rows of a query over the current versions of its tables.

    :raises DefinitionError: if Spark rejects the query.
    :raises DynamicTableError: if a table cannot be read, see
        :func:`~airflow_dynamic_tables.services.refresh.planning.bind_sources`, or Spark did not run.
    """
    with workspace.catalogs.holding_sources():
        plan = _plan(workspace, wanted)
        (outcome,) = run(QueryTestPlans((QueryTestPlan(plan, (), limit=most + 1),)), job_environment(workspace, plan)).outcomes
    if outcome.returned is None:
        raise DefinitionError((place.mistake(0, outcome.error or "Spark returned no rows and no error"),))
    return _first_rows(outcome.returned, most)


def _plan(workspace: Workspace, wanted: ReadTable) -> RefreshPlan:
    table = inline_views(workspace, wanted.table, wanted.sources)
    bound = bind_query(workspace, table, bind_sources(workspace, table, wanted.sources))
    return bound.plan("query", workspace.now(), (RefreshAction.FULL, "a query"), workspace.settings.allowed)


def _first_rows(returned: ReturnedRows, most: int) -> FirstRows:
    kinds = [parse_type(column.type) for column in returned.columns]
    rows = [json.loads(row) for row in returned.rows[:most]]
    return FirstRows(
        tuple(column.name for column in returned.columns),
        tuple(tuple(_value(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in rows),
        len(returned.rows) > most,
    )


def _value(value: Any, kind: DataType) -> Any:
    """Convert a value of the job to the one that a reader of the table gets."""
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
