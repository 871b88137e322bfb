"""Stages of refreshes of Delta tables, each published as one log entry that replaces exactly the planned partitions.

An entry is only written if its number is free; after a concurrent commit, the table is read again. The entry records the token,
so the outcome of a commit can always be looked up in the table.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache

from airflow_dynamic_tables.clients.delta.log import Action
from airflow_dynamic_tables.clients.delta.snapshots import DeltaFile, DeltaSnapshot, open_snapshot, why_unwritable
from airflow_dynamic_tables.clients.files import delete_files, delete_folder, exists
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.schema import TableLayout, evolve
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    CommitRejectedError,
    CommitUnknownError,
    SchemaEvolutionError,
    TableNotFoundError,
    UnsupportedError,
    VersionNotFoundError,
)
from airflow_dynamic_tables.formats.base import CommitRequest, StagedTable, kept_version
from airflow_dynamic_tables.formats.commits import (
    check_addition,
    check_base,
    check_position,
    check_result,
    fresh_until,
    not_restored,
    snapshot_properties,
    unknown,
    until_done,
    version_of,
)
from airflow_dynamic_tables.formats.delta.entries import (
    AddedFile,
    Definition,
    DeltaChange,
    commit_entry,
    definition_of,
    fence_entry,
    staged_files,
)
from airflow_dynamic_tables.formats.delta.history import DeltaHistory, keep_readable, position_told, stage_of


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry to write to the log, and the version that it creates."""

    number: int
    actions: list[Action]
    version: Version


class DeltaStagedTable(StagedTable):
    """The stage of one refresh of a Delta table.

    :param locate: returns the URI of its folder; ``None`` if it is not in the catalog.
    """

    def __init__(self, locate: Callable[[], str | None], path: ObjectPath, token: str) -> None:
        self._locate = locate
        self._path = path
        self._token = token

    def begin(self) -> str:
        location = self._locate()
        if location is None:
            raise TableNotFoundError(f"Table {self._path} is not in its catalog, which has to say where it lies.")
        snapshot = open_snapshot(location)
        if snapshot is not None:
            self._check_writable(snapshot)
        return stage_of(location, self._token)

    def commit(self, request: CommitRequest, before_publish: Callable[[], None]) -> Version:
        stage = stage_of(self._location(), self._token)
        check_result(request, self._token, stage, can_add=True)
        added = cache(lambda: staged_files(request, f"{stage}/data"))  # the stage no longer changes
        return self._committed(lambda history: self._replacement(history, request, added), before_publish)

    def restore(self, number: int, before_publish: Callable[[], None], *, with_columns: bool = False) -> Version:
        return self._committed(lambda history: self._restoration(history, number, with_columns=with_columns), before_publish)

    def outcome(self) -> Version | None:
        location = self._locate()
        if location is None:
            return None
        history = DeltaHistory.at(location)
        return history.find(self._token) or history.find_files(self._token)

    def fence(self) -> None:
        """See :meth:`StagedTable.fence`: an entry without changes takes the number that the commit would need."""
        until_done(self._fenced, self._path, "fencing", pause=False)

    def abort(self, location: str | None = None) -> None:  # noqa: ARG002 - known without it
        """See :meth:`StagedTable.abort`; the files of a dropped table are kept."""
        folder = self._locate()
        if folder is not None:
            delete_folder(folder, stage_of(folder, self._token))

    def _location(self) -> str:
        location = self._locate()
        if location is None:
            raise CommitRejectedError(f"{self._path} was dropped meanwhile.")
        return location

    def _committed(self, change: Callable[[DeltaHistory], _Entry], before_publish: Callable[[], None]) -> Version:
        location = self._location()

        def attempt() -> Version | None:
            if self._location() != location:
                raise CommitRejectedError(f"{self._path} was dropped and recreated meanwhile.")
            history = DeltaHistory.at(location)
            if version := history.find(self._token):
                return version
            entry = change(history)
            before_publish()
            return self._publish(history, entry)

        return until_done(attempt, self._path, "committing")

    def _publish(self, history: DeltaHistory, entry: _Entry) -> Version | None:
        """Write the entry to the log; ``None`` if this attempt failed and can no longer succeed."""
        try:
            if not history.log.put(entry.number, entry.actions):
                return None
        except CommitUnknownError as error:
            with suppress(CatalogUnavailableError, CommitRejectedError, CommitUnknownError):
                if self.outcome() is None:
                    self.fence()
                return self.outcome()
            raise unknown(self._path, error) from error
        if self._location() != history.log.location:
            raise CommitRejectedError(f"{self._path} was dropped and made again during the commit, which no reader sees.")
        try:
            is_lost = history.log.may_be_cut_off(entry.number) and DeltaHistory.at(history.log.location).find(self._token) is None
        except CatalogUnavailableError as error:
            raise unknown(self._path, error) from error
        if is_lost:
            # The log was truncated, including a concurrent entry with this number, so readers ignore this entry.
            delete_files(history.log.location, [history.log.uri(entry.number)])
            return None
        keep_readable(history.log.location, entry.number)
        return entry.version

    def _fenced(self) -> bool | None:
        location = self._locate()
        if location is None:
            return True  # a commit requires an existing table
        history = DeltaHistory.at(location)
        if history.find(self._token) or (history.snapshot is not None and why_unwritable(history.snapshot)):
            return True  # the entry that put a feature there took the number of any commit planned before
        return history.log.put(history.next_entry, fence_entry(history.snapshot, self._token)) or None

    def _replacement(self, history: DeltaHistory, request: CommitRequest, added: Callable[[], list[AddedFile]]) -> _Entry:
        """Return the entry of a commit on the current table: definition, removed files, added files and token."""
        check_base(self._path, request, history.current(), history.versions)
        check_position(self._path, request, history.position)
        snapshot = history.snapshot
        check_addition(self._path, request, str(snapshot.version) if snapshot is not None else "")
        definition, is_kept = self._evolution(history, request)
        replaced = request.replaced if is_kept else WHOLE_TABLE
        change = DeltaChange(
            definition,
            added=added(),
            removed=_covered(snapshot, replaced),
            parameters={"mode": "Append" if request.replaced.is_empty else "Overwrite"},
        )
        fresh = fresh_until(request.data_timestamp, history.current())
        told = snapshot_properties(self._token, history.next_number(), fresh, request.sources, request.partitions)
        return self._entry(history, change, {**told, **position_told(request.position)}, fresh)

    def _restoration(self, history: DeltaHistory, number: int, *, with_columns: bool) -> _Entry:
        old = kept_version(history.versions(), number, self._path)
        now = history.snapshot
        then = open_snapshot(history.log.location, int(old.snapshot))
        if now is None or then is None:
            raise CommitRejectedError(f"{self._path} was dropped meanwhile.")
        self._check_writable(now)
        definition = definition_of(now)
        if with_columns:
            definition = replace(definition, columns=then.columns, partition_keys=then.partition_keys)
        else:
            self._check_fits(number, then, now)
        here, there = ({file.path: file for file in one.files} for one in (now, then))
        restored = [file for path, file in there.items() if path not in here]
        self._check_there(number, restored)
        change = DeltaChange(
            definition,
            restored=restored,
            removed=[file for path, file in here.items() if path not in there],
            operation="RESTORE",
            parameters={"version": old.snapshot},
        )
        told = snapshot_properties(self._token, history.next_number(), old.data_timestamp, old.sources, WHOLE_TABLE)
        return self._entry(history, change, told, old.data_timestamp)

    def _entry(self, history: DeltaHistory, change: DeltaChange, told: dict[str, str], fresh: datetime | None) -> _Entry:
        actions = commit_entry(history.snapshot, history.log.location, change, told, history.next_number(), fresh)
        version = version_of(told, str(history.next_entry), actions[0]["commitInfo"]["timestamp"])
        return _Entry(history.next_entry, actions, version)

    def _evolution(self, history: DeltaHistory, request: CommitRequest) -> tuple[Definition, bool]:
        """Return the definition of the table after the commit, and whether its other partitions are kept."""
        columns, keys = request.result.columns, request.partition_keys
        snapshot = history.snapshot
        layout = history.layout()
        if snapshot is not None:
            self._check_writable(snapshot)
        if snapshot is None or layout is None:
            return Definition(columns, keys, request.comment), True
        layout.check_keys(self._path, keys, request.rebuild)
        wanted = layout.evolved(columns, request.rebuild)
        return Definition(wanted, keys, request.comment or snapshot.comment), layout.is_kept(columns, keys)

    def _check_writable(self, snapshot: DeltaSnapshot) -> None:
        if why := why_unwritable(snapshot):
            raise UnsupportedError(
                f"Delta table {self._path} {why}, so its rows cannot be replaced here; take that off the table with the engine "
                "that put it there, or drop the table and refresh it again."
            )

    def _check_fits(self, number: int, then: DeltaSnapshot, now: DeltaSnapshot) -> None:
        """Check that the files of an earlier version are compatible with the current columns."""
        try:
            evolve(then.columns, now.columns)
            TableLayout((), then.partition_keys).check_keys(self._path, now.partition_keys)
        except SchemaEvolutionError as error:
            raise not_restored(number, self._path, error) from error

    def _check_there(self, number: int, files: list[DeltaFile]) -> None:
        """Check that the files of an earlier version still exist, because ``VACUUM`` may have deleted them."""
        with ThreadPoolExecutor(8, thread_name_prefix="restoring") as executor:
            are_there = list(executor.map(lambda file: exists(file.uri), files))
        if gone := next((file for file, is_there in zip(files, are_there, strict=True) if not is_there), None):
            raise VersionNotFoundError(
                f"Version {number} of {self._path} cannot be restored: {gone.uri} was deleted, maybe by another engine's VACUUM."
            )


def _covered(snapshot: DeltaSnapshot | None, partitions: PartitionSet) -> list[DeltaFile]:
    return [file for file in snapshot.files if partitions.covers(file.partition)] if snapshot is not None else []
