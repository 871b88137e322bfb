"""Validation of relationships, the expectations that refer to another table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from airflow_dynamic_tables.core.formats import FORMATS, VIEW
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake, did_you_mean
from airflow_dynamic_tables.core.refresh.expectations import Relationship
from airflow_dynamic_tables.core.refresh.spark_settings import row_settings
from airflow_dynamic_tables.core.types import column_types
from airflow_dynamic_tables.definitions.building import Named
from airflow_dynamic_tables.definitions.declarations.source import SourceDeclaration
from airflow_dynamic_tables.definitions.declarations.table import ExpectationDeclaration, TableDeclaration, ViewDeclaration
from airflow_dynamic_tables.definitions.entries import Entry, Expansion, format_of
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.definitions.queries.text import lineage


def reference_mistakes(entry: Entry, declared: TableDeclaration, named: Named) -> Iterator[Mistake]:
    """Yield mistakes of the tables that relationships name: unknown ones, and those that cannot be read as of one version."""
    for number, item in enumerate(declared.expectations):
        if item.to is None:
            continue
        try:
            identifier, other = named(item.to)
        except ValueError as error:
            yield entry.mistake("expectations", str(error), number, "to")
            continue
        if problem := _problem(entry, declared, identifier, other):
            yield entry.mistake("expectations", problem, number, "to")


def _problem(entry: Entry, declared: TableDeclaration, identifier: TableIdentifier, other: Entry | None) -> str | None:
    """Return why a relationship cannot refer to a table, with the remedy."""
    known = other.declaration if other is not None else None
    if identifier == entry.identifier:
        traits = FORMATS.get(format_of(entry, declared))
        if traits is not None and traits.in_server and declared.partitioned_by:
            return f"the rows of other partitions are not read from a table of format {traits.name}; refer to another table"
    elif isinstance(known, ViewDeclaration) or (isinstance(known, SourceDeclaration) and known.format == VIEW):
        return f"{identifier} is a view; refer to the table that it reads"
    elif isinstance(known, SourceDeclaration) and FORMATS[known.format].endless is not None:
        return f"{identifier} never ends, so no row is known to be missing in it; refer to a table"
    elif isinstance(known, SourceDeclaration) and known.watermark == "source":
        return f"{identifier} is read by complete partitions, and a row may be in a later one; refer to another table"
    return None


def relationship_mistakes(
    definitions: Definitions, table: DynamicTable, entry: Entry, expansions: Mapping[TableIdentifier, Expansion]
) -> Iterator[Mistake]:
    """Yield mistakes of the columns of relationships, as far as the definitions determine the columns of both tables."""
    for number, item, relationship in _located(table, entry):
        key = "to_columns" if item.to_columns else "relationship"
        for position, message in _column_problems(definitions, table, relationship, expansions):
            yield entry.mistake("expectations", message, number, key, position)


def mistake_at(table: DynamicTable, entry: Entry, to: TableIdentifier, message: str) -> Mistake:
    """Return a mistake at the first relationship to a table."""
    numbers = (number for number, _, relationship in _located(table, entry) if relationship.to == str(to))
    return entry.mistake("expectations", message, next(numbers), "to")


def _located(table: DynamicTable, entry: Entry) -> Iterator[tuple[int, ExpectationDeclaration, Relationship]]:
    """Yield the relationships of a table, each with its index among the declared expectations and its declaration."""
    of_table = {one.name: one.relationship for one in table.expectations}
    declared = entry.declaration.expectations if isinstance(entry.declaration, TableDeclaration) else ()
    for number, item in enumerate(declared):
        if (relationship := of_table.get(item.full_name)) is not None:
            yield number, item, relationship


def _column_problems(
    definitions: Definitions, table: DynamicTable, relationship: Relationship, expansions: Mapping[TableIdentifier, Expansion]
) -> Iterator[tuple[int, str]]:
    """Yield the problems of the columns of a relationship, each with its index."""
    to = TableIdentifier.parse(relationship.to)
    others = _columns(definitions, to, relationship.to_columns, expansions)
    folded = {name.lower() for name in others.types}
    unknown = [number for number, column in enumerate(relationship.to_columns) if column.lower() not in folded]
    for number in unknown if others.is_complete else ():
        column = relationship.to_columns[number]
        yield number, f"{to} has no column {column!r}{did_you_mean(column, list(others.types))}"
    own = _columns(definitions, table.identifier, relationship.columns, expansions)
    if problem := relationship.type_problem(own.folded, others.folded):
        yield problem


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of a table by name, with their types as far as they are known."""

    types: Mapping[str, str | None]
    is_complete: bool

    @property
    def folded(self) -> dict[str, str | None]:
        """The types by name in lower case."""
        return {name.lower(): kind for name, kind in self.types.items()}


def _columns(
    definitions: Definitions, name: TableIdentifier, wanted: tuple[str, ...], expansions: Mapping[TableIdentifier, Expansion]
) -> _Columns:
    """Return the columns of a table that its definition determines.

    :param wanted: the columns whose types are traced to those of sources.
    """
    if (source := definitions.sources.get(name)) is not None:
        types = column_types(source.schema, source.partition_keys)
        return _Columns(types, is_complete=source.schema is not None and bool(types))
    table, outputs = definitions.tables.get(name), expansions[name].analysis.outputs if name in expansions else None
    if table is None or outputs is None:
        return _Columns({}, is_complete=False)
    folded = {column.lower() for column in wanted}
    names = [output for output in outputs if output is not None]
    return _Columns(
        {output: _traced_type(definitions, table, output) if output.lower() in folded else None for output in names},
        is_complete=len(names) == len(outputs),
    )


def _traced_type(definitions: Definitions, table: DynamicTable, column: str) -> str | None:
    """Return the type of a column of the query; ``None`` if it is unknown."""
    read = {str(name): definitions.sources.get(name) for name in table.upstream}
    types = {name: column_types(source.schema, source.partition_keys) for name, source in read.items() if source is not None}
    found = lineage(table.expanded_query, column, types, row_settings(table.spark.conf), table.timezone)
    return found.type if found.is_closed and not found.obstacles else None
