"""What is different between a declared table and the deployed one, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airflow_dynamic_tables.core.identifiers import TableIdentifier


class Change(StrEnum):
    """What deploying a definition does to its table, from nothing to everything."""

    UNCHANGED = "UNCHANGED"
    NEW = "NEW"
    """Nothing of that name is deployed."""

    METADATA = "METADATA"
    """The same rows in the same columns."""

    COLUMNS = "COLUMNS"
    """The old columns, and behind them new ones, which are null in rows that are not made again."""

    DATA = "DATA"
    """Other rows in the same columns."""

    REBUILD = "REBUILD"
    """Rows that do not fit the table: it has to be made anew."""

    REMOVED = "REMOVED"
    """It is deployed, and nobody declares it any more."""

    UNKNOWN = "UNKNOWN"
    """Its catalog cannot be asked."""

    @property
    def words(self) -> str:
        """As people read it."""
        return _WORDS[self]

    @property
    def makes_other_rows(self) -> bool:
        """Whether rows that are there are not those of the definition any more."""
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
    """One thing that a definition says otherwise than the deployed one; ``None``: it says nothing."""

    name: str
    deployed: Any
    declared: Any


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A column that the table has, and what becomes of it: types in Spark's words, ``None`` for no such column."""

    name: str
    deployed: str | None
    declared: str | None


@dataclass(frozen=True, slots=True)
class Touched:
    """A table that reads a changed one, directly or not, and its columns that may have other values; ``None``: all of them."""

    table: TableIdentifier
    columns: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Cost:
    """What a table holds now, which is what is computed again when all of it is; ``None``: nobody counted."""

    rows: int | None
    bytes: int | None
    files: int | None
    partitions: int | None


@dataclass(frozen=True, slots=True)
class Difference:
    """How a table, as it is declared, differs from the deployed one."""

    identifier: TableIdentifier
    change: Change
    place: str | None = None
    """Where the table is declared: path and line."""
    reason: str | None = None
    """Why it is that change."""
    next: str | None = None
    """What applying it does, and what is left for a refresh."""
    fields: tuple[FieldChange, ...] = ()
    query: str = ""
    """How the text of the query differs, line by line."""
    columns: tuple[ColumnChange, ...] = ()
    downstream: tuple[Touched, ...] = ()
    cost: Cost | None = None
    claimed: str | None = None
    """The two deployments that declare the table."""
    is_possible: bool = True
    """False for a rebuild that nothing does in one step."""
