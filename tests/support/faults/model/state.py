"""The model: what a table has to be like, whatever happened to whoever worked on it. Values only; it touches nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

Row = tuple[int, int]
"""The number of a row, and how many of the columns that came later it has."""

Rows = Mapping[str, tuple[Row, ...]]
"""All rows of a table, sorted, by day; a day without rows is not in it."""


class Broken(AssertionError):  # noqa: N818 - as of a promise
    """The table, the ledger or the disk is not what the model says."""


@dataclass(frozen=True, slots=True)
class Change:
    """What the commit of a token does: it replaces ``planned`` days (all, when there are none) or restores version ``restored``.

    ``at`` is the schedule time, which counts for whole refreshes only.
    """

    token: str
    rows: Rows = field(default_factory=dict)
    planned: tuple[str, ...] = ()
    at: datetime | None = None
    width: int = 0
    restored: int | None = None

    def overlaps(self, other: Change) -> bool:
        """Whether both would replace some of the same rows."""
        return not self.planned or not other.planned or bool({*self.planned} & {*other.planned})

    def applied(self, rows: Rows) -> Rows:
        """The rows of the table after a refresh."""
        kept = {day: held for day, held in rows.items() if self.planned and day not in self.planned}
        return without_empty({**kept, **self.rows})


@dataclass(frozen=True, slots=True)
class Made:
    """A version that was made: its rows and up to when it is fresh."""

    token: str
    rows: Rows
    fresh: datetime | None


@dataclass(slots=True)
class TableState:
    """One table from its making on, whatever it is called: every version it ever had, and its rows now."""

    made: list[Made] = field(default_factory=list)
    rows: Rows = field(default_factory=dict)
    width: int = 0
    kept: set[int] = field(default_factory=set)
    undone: set[int] = field(default_factory=set)
    """Versions of which others put partitions back at some time."""
    forgotten: set[int] = field(default_factory=set)
    """Versions that another engine made the table forget; their numbers need not be in the ledger."""

    @property
    def fresh(self) -> datetime | None:
        """Up to when the table is fresh."""
        return self.made[-1].fresh if self.made else None

    def number_of(self, token: str) -> int | None:
        """Which version the commit of a token made."""
        return next((number for number, made in enumerate(self.made, 1) if made.token == token), None)

    def land(self, change: Change) -> None:
        """The commit of a change landed."""
        if self.number_of(change.token) is not None:
            raise Broken(f"{change.token} landed twice")
        if change.restored is not None:
            old = self.made[change.restored - 1]
            self._make(change.token, old.rows, old.fresh)
            return
        if change.width < self.width:
            raise Broken(f"{change.token} landed, although it has fewer columns than the table")
        fresh = self.fresh
        if not change.planned:
            if fresh is not None and change.at is not None and change.at < fresh:
                raise Broken(f"{change.token} of {change.at} landed over a version of {fresh}")
            fresh = change.at
        self.width = change.width
        self._make(change.token, change.applied(self.rows), fresh)

    def _make(self, token: str, rows: Rows, fresh: datetime | None) -> None:
        self.rows = rows
        self.made.append(Made(token, rows, fresh))
        self.kept.add(len(self.made))


def without_empty(rows: Rows) -> Rows:
    """Rows without the days that have none, in order."""
    return {day: tuple(sorted(held)) for day, held in sorted(rows.items()) if held}
