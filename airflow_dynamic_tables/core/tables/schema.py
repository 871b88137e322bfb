"""Columns of a table, and which changes of them are legal: in any refresh, and in a full one that makes the table anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.exceptions import SchemaEvolutionError

_DROP = "Drop the table (dynamic-tables drop) and refresh it again, or give the definition another name."

_REBUILD = (
    "Refresh all of it with --full-refresh (in Airflow the param full_refresh), which changes table and rows in one step. Or drop"
)


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


def parted(columns: Sequence[Column], partition_keys: Sequence[str]) -> tuple[list[Column], list[Column]]:
    """The columns that are no partition keys, and the keys in their order."""
    by_name = {column.name: column for column in columns}
    data = [column for column in columns if column.name not in partition_keys]
    return data, [by_name[key] for key in partition_keys if key in by_name]


class Rebuild(StrEnum):
    """What a commit of a full refresh can change of a table in the one step that replaces its rows."""

    EVERYTHING = "EVERYTHING"
    """Columns and partition keys."""

    COLUMNS = "COLUMNS"
    """Columns."""

    NAMES = "NAMES"
    """Names of columns, as long as those that have the same place have the same type; the last ones may go."""

    NOTHING = "NOTHING"


@dataclass(frozen=True, slots=True)
class TableLayout:
    """What every further refresh of a table has to fit: the columns and partition keys that it has now.

    With ``keys_last`` the table has its partition keys behind all other columns, wherever a query returns them.
    ``rebuild`` is what a full refresh can change all the same, ``limit`` a sentence that says why that is not everything.
    """

    columns: tuple[Column, ...]
    partition_keys: tuple[str, ...] = ()
    keys_last: bool = False
    rebuild: Rebuild = Rebuild.EVERYTHING
    limit: str = ""

    def check_keys(self, table: object, wanted: tuple[str, ...], granted: Rebuild = Rebuild.NOTHING) -> None:
        """Check that a table has the partition keys of its definition, or can get them.

        :param granted: what this refresh may change.
        :raises SchemaEvolutionError: when it does not; says what to do.
        """
        if not self.can_have(wanted, granted):
            keys = f"({', '.join(self.partition_keys)}), its definition now by ({', '.join(wanted)})"
            raise SchemaEvolutionError(
                f"{table} is partitioned by {keys}. {self._way_out(is_possible=self.rebuild is Rebuild.EVERYTHING)}"
            )

    def can_have(self, keys: tuple[str, ...], granted: Rebuild) -> bool:
        """Whether a table has some partition keys, or can get them by what may be changed."""
        return self.partition_keys == keys or granted is Rebuild.EVERYTHING

    def evolved(self, returned: Sequence[Column], granted: Rebuild = Rebuild.NOTHING) -> tuple[Column, ...]:
        """The table's columns after a query that returns these, see :func:`evolve`. Job and commit both ask here.

        :param granted: what this refresh may change; nothing, unless it is a full one.
        :raises SchemaEvolutionError: when they do not fit; says what to do.
        """
        try:
            return self._fitted(returned)
        except SchemaEvolutionError as error:
            if self._can_become(returned, granted):
                return self._anew(returned)
            raise SchemaEvolutionError(f"{error} {self._way_out(is_possible=self._can_become(returned, self.rebuild))}") from None

    def is_kept(self, returned: Sequence[Column], partition_keys: tuple[str, ...]) -> bool:
        """Whether a commit of these leaves the table's columns and partition keys as they are, but for appended columns."""
        try:
            self._fitted(returned)
        except SchemaEvolutionError:
            return False
        return self.partition_keys == partition_keys

    def _fitted(self, returned: Sequence[Column]) -> tuple[Column, ...]:
        if not self.keys_last:
            return evolve(self.columns, returned)
        data, keys = parted(self.columns, self.partition_keys)
        new_data, new_keys = parted(returned, self.partition_keys)
        # A null in a partition key is refused by its value, not by what Spark thinks possible.
        return (*evolve(data, new_data), *evolve([replace(key, nullable=True) for key in keys], new_keys))

    def _can_become(self, returned: Sequence[Column], granted: Rebuild) -> bool:
        if granted is Rebuild.NAMES:
            return all(old.type == new.type for old, new in zip(self.columns, returned, strict=False))
        return granted is not Rebuild.NOTHING

    def _anew(self, returned: Sequence[Column]) -> tuple[Column, ...]:
        """What the query returns; a column of a name that is there already keeps its comment, unless there is another."""
        known = {column.name: column for column in self.columns}
        return tuple(replace(new, comment=_comment(known.get(new.name, new), new)) for new in returned)

    def _way_out(self, *, is_possible: bool) -> str:
        if is_possible:
            return f"{_REBUILD}{_DROP.removeprefix('Drop')}"
        return f"{self.limit} {_DROP}".strip()
