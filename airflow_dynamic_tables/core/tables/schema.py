"""Columns of a table, and which changes of them are legal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.exceptions import SchemaEvolutionError

_WAY_OUT = "Drop the table (dynamic-tables drop) and refresh it again, or give the definition another name."


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


def check_partition_keys(table: object, keys: tuple[str, ...], wanted: tuple[str, ...]) -> None:
    """Check that a table has the partition keys of its definition.

    :raises SchemaEvolutionError: when it does not.
    """
    if keys != wanted:
        raise SchemaEvolutionError(
            f"{table} is partitioned by ({', '.join(keys)}), its definition now by ({', '.join(wanted)}). {_WAY_OUT}"
        )


def parted(columns: Sequence[Column], partition_keys: Sequence[str]) -> tuple[list[Column], list[Column]]:
    """The columns that are no partition keys, and the keys in their order."""
    by_name = {column.name: column for column in columns}
    data = [column for column in columns if column.name not in partition_keys]
    return data, [by_name[key] for key in partition_keys if key in by_name]


@dataclass(frozen=True, slots=True)
class TableLayout:
    """What every further refresh of a table has to fit: the columns and partition keys that it has now.

    With ``keys_last`` the table has its partition keys behind all other columns, wherever a query returns them.
    """

    columns: tuple[Column, ...]
    partition_keys: tuple[str, ...] = ()
    keys_last: bool = False

    def evolved(self, returned: Sequence[Column]) -> tuple[Column, ...]:
        """The table's columns after a query that returns these, see :func:`evolve`. Job and commit both ask here.

        :raises SchemaEvolutionError: when they do not fit; says what to do.
        """
        try:
            if not self.keys_last:
                return evolve(self.columns, returned)
            data, keys = parted(self.columns, self.partition_keys)
            new_data, new_keys = parted(returned, self.partition_keys)
            # A null in a partition key is refused by its value, not by what Spark thinks possible.
            return (*evolve(data, new_data), *evolve([replace(key, nullable=True) for key in keys], new_keys))
        except SchemaEvolutionError as error:
            raise SchemaEvolutionError(f"{error} {_WAY_OUT}") from None
