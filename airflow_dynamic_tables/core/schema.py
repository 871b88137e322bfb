"""Columns of a table, and the schema changes allowed in ordinary and full refreshes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from urllib.parse import unquote

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.partitions import NULL_PARTITION
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
    """A missing comment keeps the old one, which may have been set by others; an empty comment removes it."""
    return old.comment if new.comment in (None, old.comment) else new.comment or None


def evolve(old: Sequence[Column], new: Sequence[Column]) -> tuple[Column, ...]:
    """The table's columns after a query that returns ``new``: old ones first and unchanged, appended ones nullable.

    Names are compared exactly. Old columns keep the table's nullability (source: Flink's ALTER … AS rule).

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
    """The columns that are not partition keys, and the keys in their order."""
    by_name = {column.name: column for column in columns}
    data = [column for column in columns if column.name not in partition_keys]
    return data, [by_name[key] for key in partition_keys if key in by_name]


class Rebuild(StrEnum):
    """Schema changes that the commit of a full refresh can make atomically with replacing the rows."""

    EVERYTHING = "EVERYTHING"
    """Columns and partition keys."""

    COLUMNS = "COLUMNS"
    """Columns."""

    NAMES = "NAMES"
    """Names of columns, if types by position stay the same; trailing columns may be dropped."""

    NOTHING = "NOTHING"


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The columns and partition keys of a table, which every further refresh has to fit.

    With ``keys_last``, the table has its partition keys after all other columns, wherever a query returns them. ``rebuild`` is
    what a full refresh can change, ``limit`` a sentence with the reason for the limitation.
    """

    columns: tuple[Column, ...]
    partition_keys: tuple[str, ...] = ()
    keys_last: bool = False
    rebuild: Rebuild = Rebuild.EVERYTHING
    limit: str = ""

    def check_keys(self, table: object, wanted: tuple[str, ...], granted: Rebuild = Rebuild.NOTHING) -> None:
        """Check that a table has the partition keys of its definition, or that this refresh can change them.

        :raises SchemaEvolutionError: when it cannot, with the remedy.
        """
        if not self.can_have(wanted, granted):
            keys = f"({', '.join(self.partition_keys)}), its definition now by ({', '.join(wanted)})"
            raise SchemaEvolutionError(
                f"{table} is partitioned by {keys}. {self._way_out(is_possible=self.rebuild is Rebuild.EVERYTHING)}"
            )

    def can_have(self, keys: tuple[str, ...], granted: Rebuild) -> bool:
        """Return whether a table has these partition keys, or can get them by a permitted change."""
        return self.partition_keys == keys or granted is Rebuild.EVERYTHING

    def evolved(self, returned: Sequence[Column], granted: Rebuild = Rebuild.NOTHING) -> tuple[Column, ...]:
        """The table's columns after a query that returns these, see :func:`evolve`. Used by both job and commit.

        :param granted: what this refresh may change; nothing, unless it is a full refresh.
        :raises SchemaEvolutionError: when the columns do not fit, with the remedy.
        """
        try:
            return self._fitted(returned)
        except SchemaEvolutionError as error:
            if self._can_become(returned, granted):
                return self._recreated(returned)
            raise SchemaEvolutionError(f"{error} {self._way_out(is_possible=self._can_become(returned, self.rebuild))}") from None

    def is_kept(self, returned: Sequence[Column], partition_keys: tuple[str, ...]) -> bool:
        """Return whether a commit of these keeps the table's columns and partition keys, except for appended columns."""
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
        # A null in a partition key is rejected by its value, not by the nullability that Spark infers.
        return (*evolve(data, new_data), *evolve([replace(key, nullable=True) for key in keys], new_keys))

    def _can_become(self, returned: Sequence[Column], granted: Rebuild) -> bool:
        if granted is Rebuild.NAMES:
            return all(old.type == new.type for old, new in zip(self.columns, returned, strict=False))
        return granted is not Rebuild.NOTHING

    def _recreated(self, returned: Sequence[Column]) -> tuple[Column, ...]:
        """The query's columns; a column with an existing name keeps its comment, unless it has a new one."""
        known = {column.name: column for column in self.columns}
        return tuple(replace(new, comment=_comment(known.get(new.name, new), new)) for new in returned)

    def _way_out(self, *, is_possible: bool) -> str:
        if is_possible:
            return f"{_REBUILD}{_DROP.removeprefix('Drop')}"
        return f"{self.limit} {_DROP}".strip()


_ESCAPED = re.compile(r"[\x01-\x1f\x7f\"#%'*/:=?\\{\[\]^]")

PATTERN_SIGNS = frozenset("{}[]*?\\")
"""Characters that Hadoop interprets as a pattern in a file path."""


def is_hidden(relative_path: str) -> bool:
    """Return whether a file below a table's folder is not data: its name, or a parent folder's, begins with "." or "_".

    Spark's rule; a partition folder such as ``_day=1`` is not hidden, while a file that HDFS is copying is.
    """
    return any(
        part.startswith(".") or (part.startswith("_") and "=" not in part) or part.endswith("._COPYING_")
        for part in relative_path.split("/")
    )


def partition_of(folders: str) -> dict[str, str]:
    """Parse a partition from folder names or a partition name: ``ds=2024-01-01/hh=03``."""
    parts = (part.partition("=") for part in folders.split("/") if part)
    return {unquote(key): unquote(value) for key, _, value in parts}


def partition_name(keys: Sequence[str], values: Sequence[str]) -> str:
    """The name of a partition, which is also its folder in Hive's format: ``ds=2024-01-01/hh=03``."""
    return "/".join(f"{_escape(key.lower())}={_escape(value or NULL_PARTITION)}" for key, value in zip(keys, values, strict=True))


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)
