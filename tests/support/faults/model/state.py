"""The model: what a table has to be like, whatever happened to whoever worked on it. Values only; it touches nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

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
        kept = {day: held for day, held in rows.items() if self.planned and day not in self.planned}
        return without_empty({**kept, **self.rows})


@dataclass(frozen=True, slots=True)
class Made:
    """A version that was made: its rows, up to when it is fresh, and how many columns came until then.

    ``line`` are the versions that its rows continue, the oldest first, and its own number.
    """

    token: str
    rows: Rows
    fresh: datetime | None
    width: int
    line: tuple[int, ...]


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
    line: tuple[int, ...] = ()
    """The versions that the rows of now continue; others may have gone back behind later ones."""
    left: set[int] = field(default_factory=set)
    """Versions that others went back behind at some time, or of which the table could not tell whether they did."""
    is_unknown: bool = False
    """Whether the version of now is forgotten, and the table cannot tell any more which one it was."""

    @property
    def current(self) -> int | None:
        """The number of the version that is current; ``None`` before the first one, or when it cannot be told."""
        return self.line[-1] if self.line and not self.is_unknown else None

    @property
    def fresh(self) -> datetime | None:
        """Up to when the table is fresh."""
        return self.made[self.current - 1].fresh if self.current is not None else None

    def is_fresher(self, at: datetime | None, clock: timedelta = timedelta()) -> bool:
        """Whether the table is fresh beyond a time; a time that lies ahead by that clock counts as none."""
        fresh = self.fresh
        return fresh is not None and at is not None and at < fresh and fresh <= datetime.now(UTC) + clock + timedelta(hours=1)

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
            if self.is_fresher(change.at):
                raise Broken(f"{change.token} of {change.at} landed over a version of {fresh}")
            fresh = change.at
        self.width = change.width
        self._make(change.token, change.applied(self.rows), fresh)

    def go_back(self, number: int, *, with_columns: bool) -> None:
        """Others made a version current again, without a version of its own."""
        made = self.made[number - 1]
        self.left |= {*self.line} - {*made.line}
        self.rows, self.line, self.is_unknown = made.rows, made.line, False
        self.width = made.width if with_columns else self.width

    def lose(self) -> None:
        """Others dropped the table; what comes by its name next is another one, which counts on."""
        self.left |= {*self.line}
        self.rows, self.line, self.kept, self.is_unknown = {}, (), set(), False

    def _make(self, token: str, rows: Rows, fresh: datetime | None) -> None:
        number = len(self.made) + 1
        self.line, self.is_unknown = (*self.line, number), False
        self.rows = rows
        self.made.append(Made(token, rows, fresh, self.width, self.line))
        self.kept.add(number)


def without_empty(rows: Rows) -> Rows:
    """Rows without the days that have none, in order."""
    return {day: tuple(sorted(held)) for day, held in sorted(rows.items()) if held}
