"""Differences between declared and deployed tables as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airflow_dynamic_tables.core.identifiers import TableIdentifier


class Change(StrEnum):
    """The effect of deploying a definition on its table, in increasing order."""

    UNCHANGED = "UNCHANGED"
    NEW = "NEW"
    """No table with that name is deployed."""

    METADATA = "METADATA"
    """The rows and columns stay the same."""

    COLUMNS = "COLUMNS"
    """New columns are appended, which are null in rows that are not refreshed."""

    DATA = "DATA"
    """The rows change, the columns stay the same."""

    REBUILD = "REBUILD"
    """The rows do not fit the table, so it must be rebuilt."""

    REMOVED = "REMOVED"
    """The table is deployed but no longer declared."""

    UNKNOWN = "UNKNOWN"
    """The catalog is unavailable."""

    @property
    def words(self) -> str:
        """The change for display."""
        return _WORDS[self]

    @property
    def makes_other_rows(self) -> bool:
        """Whether existing rows no longer match the definition."""
        return self in (Change.COLUMNS, Change.DATA, Change.REBUILD)


_WORDS = {
    Change.UNCHANGED: "unchanged",
    Change.NEW: "new",
    Change.METADATA: "metadata only",
    Change.COLUMNS: "new nullable columns",
    Change.DATA: "other data in the same columns",
    Change.REBUILD: "rebuild",
    Change.REMOVED: "no longer declared",
    Change.UNKNOWN: "unknown",
}


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field whose declared value differs from the deployed one; ``None``: not set."""

    name: str
    deployed: Any
    declared: Any


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A column that is added, removed or changes its type: Spark types, ``None`` for no such column."""

    name: str
    deployed: str | None
    declared: str | None


@dataclass(frozen=True, slots=True)
class Touched:
    """A direct or indirect reader of a changed table, and its columns that may have other values; ``None``: all of them."""

    table: TableIdentifier
    columns: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Cost:
    """The size of a table, which is the cost of refreshing all of it; ``None``: unknown."""

    rows: int | None
    bytes: int | None
    files: int | None
    partitions: int | None


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between a declared table and the deployed one."""

    identifier: TableIdentifier
    change: Change
    place: str | None = None
    """Where the table is declared: path and line."""
    reason: str | None = None
    """The reason for the change."""
    next: str | None = None
    """The effect of applying it, and the work left for refreshes."""
    fields: tuple[FieldChange, ...] = ()
    query: str = ""
    """The line diff of the query."""
    columns: tuple[ColumnChange, ...] = ()
    downstream: tuple[Touched, ...] = ()
    cost: Cost | None = None
    claimed: str | None = None
    """The two deployments that declare the table."""
    is_possible: bool = True
    """False for a rebuild that cannot be done atomically."""
