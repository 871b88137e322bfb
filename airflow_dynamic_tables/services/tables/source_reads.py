"""Freshness of tables: the versions read from their sources, and the time up to which they are current.

A table with time partitions is fresh up to the end of its unbroken ticks: it has the partitions of every tick up to then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.schedule import is_ahead
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.ledger.latest import SqlLatest
from airflow_dynamic_tables.services.workspace import Workspace


def fresh_until(workspace: Workspace, version: Version | None) -> datetime | None:
    """Return the time up to which a table is fresh; ``None`` if none.

    Times in the future are ignored. They come from a wrong clock, and would block refreshes until then.
    """
    times = (found_fresh(workspace, version), version.data_timestamp if version is not None else None)
    return latest_known(times, workspace.now())


def latest_known(times: Iterable[datetime | None], now: datetime) -> datetime | None:
    """Return the latest of some times that is not in the future."""
    return max((time for time in times if time is not None and not is_ahead(time, now)), default=None)


def found_fresh(workspace: Workspace, version: Version | None) -> datetime | None:
    """Return the time up to which nothing had changed since a version was created; ``None`` if it was not checked.

    The result is valid for that version only, so it is recorded under its token.
    """
    found = workspace.ledger.get_refresh(stretch(version.token)) if version is not None else None
    return found.data_timestamp if found is not None and found.action is RefreshAction.NO_DATA else None


def stretch(token: str) -> str:
    """Return the token of the history record of how long a version remained current."""
    return f"{token}-unchanged"


@dataclass(frozen=True, slots=True)
class Pace:
    """The duration of the refresh that created a version, over all steps, and the rows that it wrote per second."""

    token: str
    version: int | None
    finished_at: datetime | None
    seconds: float
    rows: int | None
    bytes: int | None
    rows_per_second: float | None


@dataclass(frozen=True, slots=True)
class NewerParent:
    """A dynamic table with a newer version than the one that another table read, by version numbers.

    ``read`` is ``None`` if the number is unknown, because the snapshot was created by another engine or a compaction.
    """

    table: str
    version: int
    read: int | None

    def __str__(self) -> str:
        """Return a description for display."""
        read = f"the v{self.read} that was read" if self.read is not None else "what was read"
        return f"{self.table} v{self.version} is newer than {read}"


@dataclass(frozen=True, slots=True)
class Reader:
    """A dynamic table that reads another one: its current version, and the version of the other table that this version read."""

    table: str
    version: int | None
    read: int | None


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """The position up to which a version of a table has read one source.

    ``version`` is the version of the source; ``partitions`` is the number of its partitions then, and ``last_partition`` the one
    that sorts last; ``None`` if there are none, or unknown. ``version_now`` is its current version, and ``moved`` whether that is
    different; ``None`` if not checked or unknown. ``number`` and ``number_now`` are the version numbers that were read and are
    current, if the source is a dynamic table and they are known.
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
    """The versions of dynamic tables that a version read: the current one of each, and the number of the one it read."""

    current: Mapping[str, Version]
    numbers: Mapping[str, int]

    def newer(self, version: Version) -> tuple[NewerParent, ...]:
        """Return the tables that now have a newer version than the one that was read, sorted."""
        return tuple(
            NewerParent(name, now.number, self.numbers.get(name))
            for name, now in sorted(self.current.items())
            if now.number and self._is_newer(version, name, now)
        )

    def _is_newer(self, version: Version, name: str, now: Version) -> bool:
        read = self.numbers.get(name)
        # Without a number, the version may have read a snapshot of another engine or a compaction.
        return now.number > read if read is not None else now.committed_at > version.committed_at


NOTHING_READ = ReadVersions({}, {})


def versions_read(
    ledger: SqlLatest, versions: Mapping[TableIdentifier, Version | None], current: Mapping[str, Version | None]
) -> dict[TableIdentifier, ReadVersions]:
    """Return the versions of dynamic tables that table versions have read, with a single ledger query.

    :param versions: the versions of the tables.
    :param current: the known current versions of dynamic tables, by full name.
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
    """Sum up the steps and rows of a refresh. A step with a dot is a part of another step."""
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
    """Return the positions up to which a version has read its sources, sorted by source name.

    :param states: the recorded states of the sources of that version.
    :param now: the current states of the sources, as far as they were checked.
    :param read: those of the sources that are dynamic tables.
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
    # Without partitions it is a server's own counter, which increases with any activity on the server.
    return True if now.partitions is not None else None


def paces_of(refreshes: Iterable[Refresh]) -> tuple[Pace, ...]:
    """Return the pace of those refreshes that created a version."""
    return tuple(pace_of(refresh) for refresh in refreshes if refresh.state is RefreshState.SUCCEEDED)
