"""What the model checker looks at, and what other engines do to it; each kind of table has its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from tests.support.faults.model.state import Row, Rows, without_empty

KEPT = 3
"""How many versions a definition keeps, at least."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A version as the table's own metadata tell of it."""

    number: int
    token: str
    fresh: datetime | None
    snapshot: str


class Lake(ABC):
    """Tables as somebody sees them who knows nothing of this package, and what such a one does to them.

    ``format`` is what a definition says. ``partitioned`` tells whether the table has partitions, ``can_forget`` whether earlier
    versions can be read, restored, and forgotten, ``can_move`` whether it can be renamed and dropped, and ``kept`` how many of
    its newest versions it keeps in any case. With ``can_put_back`` others write partitions back as they read
    them; with ``can_go_back`` they make an earlier version current again, with its columns if ``columns_go_back``; with
    ``is_served`` they empty or drop the table behind the catalog, or end all connections to its server. Without ``is_atomic``
    whoever dies may leave a part of what they wrote.
    """

    format: ClassVar[str]
    can_forget: ClassVar[bool] = False
    can_move: ClassVar[bool] = True
    can_put_back: ClassVar[bool] = False
    can_go_back: ClassVar[bool] = False
    columns_go_back: ClassVar[bool] = False
    is_served: ClassVar[bool] = False
    is_atomic: ClassVar[bool] = True
    kept: ClassVar[int] = KEPT
    points: ClassVar[tuple[str, ...]]
    """Points, beside the named steps, at which processes may be killed."""
    strikes: ClassVar[tuple[str, ...]] = ("kill", "kill", "kill", "stop", "stop", "stop", "full")
    """What happens to refreshes."""
    partitioned: bool = True

    @property
    @abstractmethod
    def table(self) -> TableIdentifier:
        """The table that is refreshed."""

    @abstractmethod
    def versions(self, name: str) -> list[Seen]:
        """The versions that are kept, by number."""

    @abstractmethod
    def rows(self, name: str, snapshot: str | None = None) -> Rows:
        """The rows of a table now, or of one of its versions; none when there is no table yet."""

    @abstractmethod
    def problems(self, name: str) -> list[str]:
        """Files that the table needs and that are not there, and whatever else no reader would bear."""

    @abstractmethod
    def left_over(self, name: str) -> list[str]:
        """Files of the table that nothing refers to."""

    @abstractmethod
    def append(self, name: str, day: str, row: Row) -> None:
        """Another engine adds a row."""

    @abstractmethod
    def delete(self, name: str, day: str) -> None:
        """Another engine deletes the rows of a day."""

    @abstractmethod
    def compact(self, name: str) -> None:
        """Another engine writes all rows anew."""

    def forget(self, name: str, keep: int) -> None:
        """Another engine makes the table forget all but the newest snapshots that the rows of now continue."""
        raise NotImplementedError

    def go_back(self, name: str, snapshot: str) -> None:
        """Another engine makes the rows of a version current again."""
        raise NotImplementedError

    def empty(self, name: str) -> None:
        """Another client deletes all rows."""
        raise NotImplementedError

    def lose(self, name: str) -> None:
        """Another client drops the table, which its catalog still knows."""
        raise NotImplementedError

    def disconnect(self) -> None:
        """The server ends all connections."""
        raise NotImplementedError

    def read_partitions(self, name: str) -> None:
        """Another engine begins to analyze all partitions: it reads them."""
        raise NotImplementedError

    def write_partitions(self, name: str) -> list[str]:
        """It ends, and writes back those that are there; the days of these."""
        raise NotImplementedError

    def places(self, name: str) -> dict[str, str]:  # noqa: ARG002 - most tables have no folders
        """The folder of every partition by its day."""
        return {}

    def close(self) -> None:  # noqa: B027 - not all have something to close
        """Let go of connections."""


def rows_of(read: Iterable[dict[str, Any]]) -> Rows:
    """Rows as the model has them.

    :raises ValueError: when the columns that came later do not hold what the job wrote.
    """
    rows: dict[str, tuple[Row, ...]] = {}
    for row in read:
        more = [value for name, value in sorted(row.items()) if name.startswith("c") and value is not None]
        if any(value != row["n"] for value in more):
            raise ValueError(f"nobody wrote {row}")
        rows[row["ds"]] = (*rows.get(row["ds"], ()), (row["n"], len(more)))
    return without_empty(rows)
