"""Columns of a table, and which changes of them are legal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.exceptions import SchemaEvolutionError


@dataclass(frozen=True, slots=True)
class Column:
    """One column; ``type`` is Spark's DDL text, e.g. ``decimal(10,2)`` or ``array<struct<a:int>>``."""

    name: str
    type: str
    nullable: bool = True
    comment: str | None = None


def spark_ddl(columns: Sequence[Column]) -> str:
    """A Spark DDL schema of these columns, e.g. `` `a` int, `b` string``."""
    return ", ".join(f"{quote(column.name)} {column.type}" for column in columns)


def _comment(old: Column, new: Column) -> str | None:
    """No comment is no wish to delete the one that is there, which others may have made; an empty one is."""
    return old.comment if new.comment in (None, old.comment) else new.comment or None


def evolve(old: Sequence[Column], new: Sequence[Column]) -> tuple[Column, ...]:
    """The table's columns after a query that returns ``new``: old ones first and unchanged, appended ones nullable.

    Names are compared exactly. Nullability of old columns is kept as the table has it (source: Flink's ALTER … AS rule).

    :raises SchemaEvolutionError: when a column was dropped, renamed, reordered or changed its type.
    """
    for position, column in enumerate(old):
        if position >= len(new):
            raise SchemaEvolutionError(f"The query no longer returns column {column.name!r}; columns cannot be dropped.")
        returned = new[position]
        if (returned.name, returned.type) != (column.name, column.type):
            raise SchemaEvolutionError(
                f"Column {position + 1} was {column.name} {column.type}, but the query returns {returned.name} {returned.type}; "
                "columns can only be appended at the end, not dropped, renamed, reordered or retyped."
            )
        if not column.nullable and returned.nullable:
            raise SchemaEvolutionError(f"Column {column.name!r} is not nullable, but the query may return nulls in it.")
    kept = tuple(replace(column, comment=_comment(column, returned)) for column, returned in zip(old, new, strict=False))
    return kept + tuple(replace(column, nullable=True) for column in new[len(old) :])
