"""The query of a CREATE TABLE AS, read as that of a dynamic table: the same names, the same rules, the same job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from airflow_dynamic_tables.catalog.values import CatalogView
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake, did_you_mean
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.core.schedule.refresh_mode import RefreshMode
from airflow_dynamic_tables.core.tables.formats import VIEW
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.definitions.partitioning.problems import key_problems, output_problems
from airflow_dynamic_tables.definitions.queries.editing import expand, unclear_names
from airflow_dynamic_tables.definitions.queries.text import Analysis, Problem, Target, analyse, refusals
from airflow_dynamic_tables.exceptions import (
    CatalogNotFoundError,
    DefinitionError,
    NotFoundError,
    TableNotFoundError,
    UnsupportedError,
)
from airflow_dynamic_tables.services.creating.wanted import WantedTable
from airflow_dynamic_tables.services.workspace import Workspace

_NEVER_DUE = Freshness(1)
"""A freshness that nobody asks for: nothing schedules the table."""


@dataclass(frozen=True, slots=True)
class ReadTable:
    """A wanted table as a dynamic one that is refreshed once, and the declared sources that it reads."""

    table: DynamicTable
    sources: dict[TableIdentifier, Source]


def read(
    workspace: Workspace, definitions: Definitions, wanted: WantedTable, table_format: str, *, is_stored: bool = True
) -> ReadTable:
    """Check a query, and find every table that it reads: among the definitions, or in the catalogs.

    :param is_stored: whether a table is made of its rows, which needs a different name for each column.
    :raises DefinitionError: with all that is wrong with it.
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
            problems.append(Problem(reference.parts[0].start, found))
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


def _place(problem: Problem) -> int:
    return problem.offset


def _key_mistakes(analysis: Analysis, wanted: WantedTable, table_format: str) -> Iterator[Mistake]:
    """What is wrong with the partition keys, as far as the text tells; the job sees the rest."""
    keys = tuple(enumerate(wanted.partition_keys))
    problems = list(key_problems(keys, table_format))
    if analysis.outputs is not None:
        problems += output_problems(keys, analysis)
    for number, problem in problems:
        yield wanted.keys_place.mistake(number, problem) if wanted.keys_place else wanted.place.mistake(0, problem)


def _output_problems(analysis: Analysis) -> Iterator[Problem]:
    """Columns of one name, as far as the text tells."""
    uses = Counter(name.lower() for name in analysis.outputs or () if name)
    for name in sorted(name for name, count in uses.items() if count > 1):
        yield Problem(0, f"the query returns column {name!r} more than once; give each its own name with AS")


@dataclass(frozen=True, slots=True)
class _Found:
    """A table that is there, and how it is read when no format of ours has it."""

    identifier: TableIdentifier
    source: Source | None = None


def _found(workspace: Workspace, definitions: Definitions, wanted: WantedTable, names: tuple[str, ...]) -> _Found | str:
    """The table of a name in the query, or what is wrong with that name."""
    written = ".".join(names)
    if len(names) > 3:
        return f"{written!r} has more than three parts: catalog.database.table"
    identifier = TableIdentifier.completed(names, *wanted.scope)
    if identifier in definitions.sources:
        return _Found(identifier, definitions.sources[identifier])
    try:
        entry = workspace.readable(identifier.catalog).get_table(identifier.path)
    except UnsupportedError:
        return _Found(identifier)  # it is there, and binding says why it cannot be read
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
