"""How a table comes along: how fast its refreshes are, and up to where they read each source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.ledger.latest import KnowsTheLatest


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a refresh that made a version took, all steps together, and how many rows it wrote in each second of that."""

    token: str
    version: int | None
    finished_at: datetime | None
    seconds: float
    rows: int | None
    bytes: int | None
    rows_per_second: float | None


@dataclass(frozen=True, slots=True)
class NewerParent:
    """A dynamic table that has a newer version than the one that a version of another table read, by their numbers.

    ``read`` is ``None`` where that number is not known: the version was read at a snapshot of another engine or of a compaction.
    """

    table: str
    version: int
    read: int | None

    def __str__(self) -> str:
        """As people read it."""
        read = f"the v{self.read} that was read" if self.read is not None else "what was read"
        return f"{self.table} v{self.version} is newer than {read}"


@dataclass(frozen=True, slots=True)
class Reader:
    """A dynamic table that reads another one: its current version, and the version of the other that this one read."""

    table: str
    version: int | None
    read: int | None


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Up to where a version of a table has read one source.

    ``version`` is that of the source; ``partitions`` is how many it had then, and ``last_partition`` the one whose text sorts
    last; ``None`` when it has none, or nobody knows. ``version_now`` is its version now, and ``moved`` whether that is another
    one; ``None``: nobody looked, or nobody can tell. ``number`` and ``number_now`` are the numbers of the version that was read
    and of the current one, when the source is a dynamic table, as far as they are known.
    """

    source: str
    version: str
    partitions: int | None = None
    last_partition: str | None = None
    version_now: str | None = None
    moved: bool | None = None
    number: int | None = None
    number_now: int | None = None


@dataclass(frozen=True, slots=True)
class ReadVersions:
    """Which versions of dynamic tables a version of a table read: the current one of each, and the number of the one it read."""

    current: Mapping[str, Version]
    numbers: Mapping[str, int]

    def newer(self, version: Version) -> tuple[NewerParent, ...]:
        """The tables that have a newer version now than the one that a version read, sorted.

        :param version: what read them.
        """
        return tuple(
            NewerParent(name, now.number, self.numbers.get(name))
            for name, now in sorted(self.current.items())
            if now.number and self._is_newer(version, name, now)
        )

    def _is_newer(self, version: Version, name: str, now: Version) -> bool:
        read = self.numbers.get(name)
        # Without a number the version may have read it at a snapshot that another engine, or a compaction, made of it.
        return now.number > read if read is not None else now.committed_at > version.committed_at


NOTHING_READ = ReadVersions({}, {})


def versions_read(
    ledger: KnowsTheLatest, versions: Mapping[TableIdentifier, Version | None], current: Mapping[str, Version | None]
) -> dict[TableIdentifier, ReadVersions]:
    """Which versions of dynamic tables the versions of tables read; the ledger is asked once for all of them.

    :param versions: of the tables in question.
    :param current: the current versions of dynamic tables, by their full names, as far as they are known.
    """
    unknown = {
        (source, read)
        for version in versions.values()
        for source, read in (version.sources.items() if version else ())
        if (now := current.get(source)) is not None and now.snapshot != read
    }
    numbers = ledger.version_numbers(unknown) if unknown else {}
    numbers |= {(name, now.snapshot): now.number for name, now in current.items() if now is not None}
    return {
        table: ReadVersions(
            {source: now for source in version.sources if (now := current.get(source)) is not None},
            {source: numbers[source, read] for source, read in version.sources.items() if (source, read) in numbers},
        )
        for table, version in versions.items()
        if version is not None
    }


def pace_of(refresh: Refresh) -> Pace:
    """What its steps and rows come to; a step with a dot is a part of another one."""
    seconds = sum(value for step, value in refresh.seconds.items() if "." not in step)
    return Pace(
        token=refresh.token,
        version=refresh.version,
        finished_at=refresh.finished_at,
        seconds=round(seconds, 3),
        rows=refresh.rows,
        bytes=refresh.bytes,
        rows_per_second=round(refresh.rows / seconds, 1) if refresh.rows is not None and seconds else None,
    )


def positions_of(
    version: Version,
    states: Mapping[str, SourceState],
    now: Mapping[str, SourceState],
    read: ReadVersions = NOTHING_READ,
) -> tuple[SourcePosition, ...]:
    """Up to where a version has read its sources, by their names.

    :param states: what is recorded of the sources of that version.
    :param now: what they are like now, as far as a user looked.
    :param read: those of them that are dynamic tables.
    """
    positions = (_position(source, at, states.get(source), now.get(source)) for source, at in sorted(version.sources.items()))
    return tuple(
        replace(
            position,
            number=read.numbers.get(position.source),
            number_now=current.number if (current := read.current.get(position.source)) is not None else None,
        )
        for position in positions
    )


def _position(source: str, version: str, state: SourceState | None, now: SourceState | None) -> SourcePosition:
    partitions = sorted(filter(None, (state.partitions or {}) if state else {}))
    return SourcePosition(
        source=source,
        version=version,
        partitions=len(partitions) or None,
        last_partition=partitions[-1] if partitions else None,
        version_now=now.version if now else None,
        moved=_moved(version, now) if now else None,
    )


def _moved(version: str, now: SourceState) -> bool | None:
    if now.version == version:
        return False
    # Without parts it is a server's own count, which goes up whatever anybody does there.
    return True if now.partitions is not None else None


def paces_of(refreshes: Iterable[Refresh]) -> tuple[Pace, ...]:
    """Those of the refreshes that made a version."""
    return tuple(pace_of(refresh) for refresh in refreshes if refresh.state is RefreshState.SUCCEEDED)
