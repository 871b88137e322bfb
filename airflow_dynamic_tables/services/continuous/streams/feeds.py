"""Feeds: numbered sets of new files of the tables that a stream reads, written by its worker.

The newest feed in Spark's log is the only record of what was read of a table, so it survives any interruption.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from airflow_dynamic_tables.clients.files import delete_folder, list_entries, plain_path, read_text, write_text
from airflow_dynamic_tables.core.formats import Endless
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import Feed, RefreshPlan, SourceBinding
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.streaming.stream_plans import (
    FEED_FILE,
    LOG,
    ROWS,
    LoggedFile,
    entry_name,
    folder_name,
    newest,
    number_of,
    read_entry,
)
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import NotFoundError, UnsupportedError, UpstreamError
from airflow_dynamic_tables.formats import registry
from airflow_dynamic_tables.formats.base import Increment
from airflow_dynamic_tables.services import source_progress as partitions
from airflow_dynamic_tables.services.refresh.planning import connection_variable, source_of
from airflow_dynamic_tables.services.workspace import Workspace

_KEPT = 20
"""Number of feeds retained, far more than can occur between the plan of a batch and its commit."""

_LISTEN = 1.0
"""Seconds between two checks whether the job has taken a feed."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FeedPlace:
    """The folder of the feeds of one table, and the run of its stream that writes new ones.

    ``has_begun`` means that Spark has read some of them, ``private`` that only their owner may read them.
    """

    folder: str
    run: str
    has_begun: bool = False
    private: bool = False


class TableFeeds:
    """The feeds of one table.

    :param interval: seconds between two checks for new files.
    :param now: the current time, timezone-aware.
    """

    def __init__(self, name: str, place: FeedPlace, look: Look, interval: float, now: Callable[[], datetime]) -> None:
        self._name = name
        self._place = place
        self._look = look
        self._interval = interval
        self._now = now
        self._number: int | None = None
        self._read: SourceState | None = None
        self._offered: int | None = None
        self._looked_at: float | None = None
        self._listened_at: float | None = None
        self._waiting = ""
        self._seen_at: datetime | None = None

    def turn(self) -> str:
        """Offer new files if a check is due and the job has taken the last offer.

        :return: why the stream has to start over; empty if it can continue.
        """
        tick = time.monotonic()
        if self._listened_at is not None and tick - self._listened_at < min(_LISTEN, self._interval):
            return ""
        self._listened_at = tick
        if why := self._take_over():
            return why
        is_due = self._looked_at is None or tick - self._looked_at >= self._interval
        if not is_due or (self._offered is not None and self._offered != self._number):
            return ""
        self._looked_at = tick
        seen_at = self._now()
        increment = self._look(self._read)
        if increment.late:
            log.warning(
                "%s: %s came after their time was over: %s.", self._name, len(increment.late), ", ".join(increment.late[:3])
            )
        if increment.ended:
            return f"{self._name}: {increment.ended}"
        if increment.waiting != self._waiting:
            self._waiting = increment.waiting
            log.info("%s: %s.", self._name, increment.waiting or "nothing waits any more")
        if increment.binding is not None:
            self._offered = 0 if self._number is None else self._number + 1
            folder = f"{self._place.folder}/{folder_name(self._offered, self._place.run)}"
            write_text(f"{folder}/{FEED_FILE}", Feed(increment.binding, seen_at).to_json(), private=self._place.private)
        elif not increment.waiting:
            self._seen_at = seen_at
        return ""

    def read_by(self, number: int, planned_at: datetime) -> Feed:
        """Return the newest feed of a batch.

        Its time is that of the last check before the batch was planned, if that check found nothing new.
        """
        self._take_over()
        _, feed = self._logged(number)
        if number != self._number or self._seen_at is None or self._seen_at > planned_at:
            return feed
        return replace(feed, seen_at=self._seen_at)

    def _take_over(self) -> str:
        """Read the newest feed from the log; it may be one of an earlier run.

        :return: why the stream has to start over; empty if it can continue.
        """
        listed = [entry.path.rpartition("/")[2] for entry in list_entries(f"{self._place.folder}/{LOG}")]
        number = newest(listed)
        if number is None:
            return f"{self._name}: what was read of it is not known any more" if self._place.has_begun else ""
        if number == self._number:
            return ""
        try:
            files, feed = self._logged(number)
        except (FileNotFoundError, ValueError) as error:
            return f"{self._name}: what was read of it is not known any more ({error})"
        self._number = number
        self._read = feed.source.state
        self._seen_at = None
        self._forget(number, files, listed)
        return ""

    def _logged(self, number: int) -> tuple[tuple[LoggedFile, ...], Feed]:
        files = read_entry(read_text(f"{self._place.folder}/{LOG}/{entry_name(number)}"))
        return files, Feed.from_json(read_text(f"{self._place.folder}/{files[-1].folder}/{FEED_FILE}"))

    def _forget(self, number: int, files: tuple[LoggedFile, ...], listed: list[str]) -> None:
        """Delete copies that all batches have processed, and feeds and log entries too old for any batch."""
        oldest = min(file.number for file in files)
        root = plain_path(self._place.folder)
        names = {entry.path[len(root) + 1 :] for entry in list_entries(self._place.folder) if entry.is_folder}
        for name in names:
            feed = number_of(name)
            if feed is not None and feed < oldest and feed <= number - _KEPT:
                delete_folder(self._place.folder, f"{self._place.folder}/{name}")
            elif feed is not None and feed < oldest and f"{name}/{ROWS}" in names:
                delete_folder(self._place.folder, f"{self._place.folder}/{name}/{ROWS}")
        for name in listed:
            entry = newest((name,))
            if entry is not None and entry < oldest and entry <= number - _KEPT:
                delete_folder(self._place.folder, f"{self._place.folder}/{LOG}/{name}")


class StreamFeeds:
    """The feeds of all tables that a stream reads, by view.

    :param whole: views that are read by complete partitions, whose states the ledger records with a batch.
    """

    def __init__(self, by_view: Mapping[str, TableFeeds], whole: Collection[str] = ()) -> None:
        self._by_view = by_view
        self._whole = whole

    def turn(self) -> str:
        """See :meth:`TableFeeds.turn`."""
        return next(filter(None, (feeds.turn() for feeds in self._by_view.values())), "")

    def read_by(self, noted: str, planned_at: datetime) -> dict[str, Feed]:
        """Return the newest feed of each table in a batch, by view.

        :param noted: Spark's records of the files of the batch and of earlier batches.
        """
        feeds: dict[str, Feed] = {}
        for view, table in self._by_view.items():
            numbers = re.findall(rf"/feeds/{re.escape(view)}/(\d+)-", noted)
            if numbers:
                feeds[view] = table.read_by(max(map(int, numbers)), planned_at)
        return feeds

    def bound(self, plan: RefreshPlan, read: Mapping[str, Feed]) -> RefreshPlan:
        """Return the plan with its sources bound to the versions that were read."""
        return replace(plan, sources=tuple(self._bound(source, read.get(source.view)) for source in plan.sources))

    def _bound(self, source: SourceBinding, feed: Feed | None) -> SourceBinding:
        state = feed.source.state if feed is not None else None
        if state is None:
            return source
        return replace(source, version=state.version, state=state if source.view in self._whole else None)


INSTEAD = "use strategy micro-refresh"
"""The remedy if a stream is not supported."""

Look = Callable[[SourceState | None], Increment]
"""Returns the changes of a table since a state was read; everything if there is none."""


def stream_source(
    workspace: Workspace, table: DynamicTable, identifier: TableIdentifier, source: Source | None, view: str
) -> SourceBinding:
    """Return the binding by which the job of a stream reads a source as ``view``.

    :param source: the declaration of the source; ``None`` for an undeclared table.
    :raises UnsupportedError: if a stream cannot read it; the message contains the reason and the remedy.
    :raises UpstreamError: if it has no version yet.
    """
    if source is not None and source.endless is not None:
        return _endless(source, source.endless, view)
    look = look_of(workspace, table, identifier, source, view)
    if source is not None and look is None:
        return _files(identifier, source, view)
    if look is None:
        raise UnsupportedError(f"{identifier} has no folder of files that a stream could read; {INSTEAD}.")
    found = look(None).binding
    if found is None or found.schema is None:
        raise UnsupportedError(f"A stream reads {identifier} before it has files: give the source a 'schema', or {INSTEAD}.")
    return SourceBinding(
        identifier=str(identifier),
        view=view,
        format=found.format,
        version=_version(source),
        files=(),
        schema=found.schema,
        partition_keys=found.partition_keys,
        options=found.options,
        parts=(),
        event_time=source.event_time if source is not None else None,
        is_fed=True,
    )


def look_of(
    workspace: Workspace, table: DynamicTable, identifier: TableIdentifier, source: Source | None, view: str
) -> Look | None:
    """Return the function that detects changes of a source; ``None`` if Spark detects them itself, or they cannot be detected.

    :raises UpstreamError: if the source has no version yet.
    """
    watermark = source.watermark if source is not None else None
    if source is not None and watermark is not None:
        return lambda since: partitions.added_since(workspace, source, watermark, table.timezone, view, since)
    described = source or source_of(workspace, identifier)
    if not registry.tells_news(described.format):
        return None
    stores = workspace.readable(identifier.catalog).stores()

    def look(since: SourceState | None) -> Increment:
        try:
            return registry.added_since(described, stores, view, since)
        except NotFoundError as error:
            raise UpstreamError(f"{identifier} has no version yet; refresh it first.") from error

    return look


def _version(source: Source | None) -> str:
    """Return an identifier of how the stream reads a source; it changes with the watermark."""
    if source is None or source.watermark is None:
        return "stream"
    decisive = replace(source.watermark, monitor_interval=None)
    return f"whole partitions {hashlib.sha256(repr(decisive).encode()).hexdigest()[:16]}"


def _endless(source: Source, endless: Endless, view: str) -> SourceBinding:
    """Return the binding of an unbounded source. Its connection options are in the job's environment, not in the plan."""
    return SourceBinding(
        identifier=str(source.identifier),
        view=view,
        format=source.format,
        version="stream",
        files=(),
        options={**endless.presets, **source.options},
        password_variable=connection_variable(source.conn_id) if source.conn_id else None,
        parts=(),
        has_files=False,
        event_time=source.event_time,
        conn_id=source.conn_id,
    )


def _files(identifier: TableIdentifier, source: Source, view: str) -> SourceBinding:
    """Return the binding of a folder whose files are read as they arrive.

    :raises UnsupportedError: if there is no folder of files, or their columns are not declared.
    """
    if source.path is None:
        raise UnsupportedError(f"{identifier} has no folder of files that a stream could read; {INSTEAD}.")
    if source.schema is None:
        raise UnsupportedError(f"A stream reads {identifier} before it has files: give the source a 'schema', or {INSTEAD}.")
    return SourceBinding(
        identifier=str(identifier),
        view=view,
        format=source.format,
        version="stream",
        files=(),
        base_path=source.path,
        schema=source.schema,
        partition_keys=source.partition_keys,
        options=dict(source.options),
        parts=(),
        event_time=source.event_time,
    )
