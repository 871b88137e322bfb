"""Versions of a Delta table: its log, its expiry by truncating the log behind a checkpoint, and the deletion of orphan files.

A log has no gaps, so the kept versions are a range that ends with the current one. Commits by others expire with the version of
ours that they follow.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_dynamic_tables.clients.delta.log import FOLDER, Action, DeltaLog
from airflow_dynamic_tables.clients.delta.snapshots import (
    DeltaSnapshot,
    file_uri,
    open_snapshot,
    protected_before,
    why_unwritable,
)
from airflow_dynamic_tables.clients.files import (
    Deleted,
    FileEntry,
    as_os_errors,
    delete_entries,
    list_entries,
    open_file,
    plain_path,
)
from airflow_dynamic_tables.core.schema import TableLayout, is_hidden
from airflow_dynamic_tables.core.versions import HOURLY_UP_TO, Retention, StreamPosition, Version
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConflictError, VersionNotFoundError
from airflow_dynamic_tables.formats.commits import FENCE, TOKEN, version_of
from airflow_dynamic_tables.formats.delta.entries import APPLICATION, FRESH, KEEPS_TOKENS, TOKENS_KEPT, application_of, is_new
from airflow_dynamic_tables.formats.orphans import References, check_own_folder, delete_unreferenced

_ATTEMPTS = 5

_LONGEST_READING = timedelta(minutes=10)
"""Longest time between a reader's listing of a log and its reads."""

CHECKPOINT_AFTER = 100
"""Number of log entries after which a checkpoint is written for readers to start at; Delta's default."""

_OF_VERSION = re.compile(r"(\d{20})\.(json|crc|checkpoint\..*|\d{20}\.compacted\.json)")
"""Log files of one version: its entry, checksums, checkpoint parts, and compacted entries that start with it."""

log = logging.getLogger(__name__)


def expire(location: str, retention: Retention, now: datetime, pinned: Callable[[], Collection[str]], least: int) -> int:
    """See :meth:`~airflow_dynamic_tables.formats.base.LakeTable.expire`.

    :raises ConflictError: if concurrent commits keep changing the table.
    :raises CatalogUnavailableError: if the log cannot be read or written.
    """
    for _ in range(_ATTEMPTS):
        history = DeltaHistory.at(location)
        entries = history.log.versions()
        if history.snapshot is None or not entries or why_unwritable(history.snapshot):
            return 0
        protected = protected_before(history.snapshot)
        if sum(entry < _oldest_kept(history, entries, retention, now, ()) for entry in entries) < least:
            return 0
        oldest = _oldest_kept(history, entries, retention, now, pinned())
        if history.log.versions() == entries:
            return _forget_before(history.log, oldest, now, protected) if oldest > 0 else 0
    raise ConflictError(f"{location} was changed by others {_ATTEMPTS} times meanwhile; its old versions go next time.")


def keep_readable(location: str, version: int) -> None:
    """Write a checkpoint of the committed version if one is due; a failure is only logged."""
    if version == 0 or version % CHECKPOINT_AFTER:
        return
    try:
        _write_checkpoint(location, version)
    except (CatalogUnavailableError, VersionNotFoundError) as error:
        log.warning(
            "No checkpoint of version %s in %s: %s; its readers take longer until the next one.", version, location, error
        )


def _oldest_kept(history: DeltaHistory, entries: list[int], retention: Retention, now: datetime, pinned: Collection[str]) -> int:
    """Return the oldest log version to keep, with all newer ones; without versions of ours, all are kept."""
    # A log cannot keep thinned versions: keep the last day and the newest versions.
    whole = replace(retention, thinned=False, version_max_age=min(retention.version_max_age, HOURLY_UP_TO))
    kept = whole if retention.thinned else retention
    oldest = min(entries, default=0) if not any(True for _ in history.versions()) else entries[-1]
    replaced_at: datetime | None = None
    for newer, version in enumerate(history.versions()):
        entry = int(version.snapshot)
        if kept.keeps(newer, replaced_at, now) or {version.token, version.snapshot} & set(pinned):
            oldest = min(oldest, entry)
        replaced_at = version.committed_at
    return min([oldest, *(entry for entry in entries if str(entry) in pinned)])


def _forget_before(log: DeltaLog, oldest: int, now: datetime, protected: int) -> int:
    """Delete the log before a version, which gets a checkpoint; newest files first, so that the remaining log has no gaps.

    Readers that listed the log before the checkpoint existed still read older entries. Therefore the log is truncated at an older
    checkpoint, and the new one is used the next time.

    :param protected: the version before which other engines may have to read the log as it is.
    """
    if oldest < protected:
        return 0
    if oldest not in log.checkpoints():
        _write_checkpoint(log.location, oldest)
    whole = log.checkpoints()
    folder = f"{log.location}/{FOLDER}"
    entries = list_entries(folder)
    young = {version for version, entry in _by_version(entries) if _is_checkpoint(entry) and not _is_settled(entry, now)}
    first = max((version for version in whole if protected <= version <= oldest and version not in young), default=0)
    files = [entry for version, entry in _by_version(entries) if version < first]
    try:
        with as_os_errors():
            delete_entries(folder, files)
    except OSError as error:
        raise CatalogUnavailableError(f"The log in {log.location} cannot be cut off before version {first}: {error}") from error
    return sum(log.uri(version).endswith(entry.path.rpartition("/")[2]) for version, entry in _by_version(files))


def _by_version(entries: Iterable[FileEntry]) -> Iterator[tuple[int, FileEntry]]:
    """Yield the log files of one version, with its number."""
    for entry in entries:
        folder, _, name = entry.path.rpartition("/")
        if folder.endswith(f"/{FOLDER}") and (match := _OF_VERSION.fullmatch(name)):
            yield int(match[1]), entry


def _is_checkpoint(entry: FileEntry) -> bool:
    return ".checkpoint." in entry.path


def _is_settled(entry: FileEntry, now: datetime) -> bool:
    return entry.changed_at is not None and entry.changed_at < now - _LONGEST_READING


def _write_checkpoint(location: str, version: int) -> None:
    snapshot = open_snapshot(location, version)
    if snapshot is not None:
        snapshot.create_checkpoint()


STAGES = "_stages"
"""Folder beside the log; ``VACUUM`` of any engine ignores names that begin with an underscore."""

STREAM = "dynamic-tables.stream"
"""Property of a version with its position in a stream."""


@final
@dataclass(frozen=True, slots=True)
class DeltaHistory:
    """The current snapshot of a table and its log; ``snapshot`` is ``None`` if the table does not exist."""

    log: DeltaLog
    snapshot: DeltaSnapshot | None

    @classmethod
    def at(cls, location: str) -> DeltaHistory:
        """Read a table.

        :raises CatalogUnavailableError: if its log cannot be read.
        """
        return cls(DeltaLog(location), open_snapshot(location))

    @property
    def is_new(self) -> bool:
        """Whether nothing was committed yet."""
        return is_new(self.snapshot)

    @property
    def next_entry(self) -> int:
        """The number of the next log entry."""
        return self.snapshot.version + 1 if self.snapshot is not None else 0

    def versions(self) -> Iterator[Version]:
        """Yield the versions whose entries are kept, newest first."""
        for entry, info in self._lineage():
            if (version := _version(entry, info)) is not None:
                yield version

    def current(self) -> Version | None:
        """Return the current version even if another engine's clean-up deleted its entry; ``None`` before the first commit.

        If the version is unknown, it has number 0 and no data timestamp.
        """
        if self.snapshot is None or self.is_new:
            return None
        newest = next(self.versions(), None)
        if newest is not None:
            return newest
        number = self.snapshot.transaction(APPLICATION)
        if number is None:
            return None
        token = self._token_of(number)
        # The number is recorded forever and does not reveal a RESTORE whose entry is deleted, too; a file of the version does.
        has_files = token != "" and self.find_files(token) is not None
        if not has_files or any(_is_restore(info) for _, info in self._lineage()):
            return Version(0, "", "", None, self._latest_time())
        return self._forgotten(self.snapshot, number, token)

    def next_number(self) -> int:
        """Return the next version number: above all previous ones, also those rolled back by others."""
        noted = self.snapshot.transaction(APPLICATION) if self.snapshot is not None else None
        if noted is None:  # checkpoints of Spark left it out where it was recorded without a time
            versions = (_version(entry, info) for entry, info in self._infos())
            newest = next(filter(None, versions), None)
            noted = newest.number if newest is not None else 0
        return 1 + noted

    def find(self, token: str) -> Version | None:
        """Return the version committed with a token, if the table still records it."""
        if self.snapshot is None:
            return None
        number = self.snapshot.transaction(application_of(token))
        if number is None and self.snapshot.properties.get(KEEPS_TOKENS) == TOKENS_KEPT:
            return None
        for entry, info in self._infos():
            version = _version(entry, info)
            if version is not None and version.token == token:
                return version
        return self._forgotten(self.snapshot, number, token) if number is not None else None

    def find_files(self, token: str) -> Version | None:
        """Return the version committed with a token if only files of its stage show it: its number is unknown, 0."""
        stage = f"{stage_of(self.log.location, token)}/"
        if self.snapshot is None or not any(file.uri.startswith(stage) for file in self.snapshot.files):
            return None
        return Version(0, token, "", None, self._latest_time())

    def position(self) -> StreamPosition | None:
        """Return the table's position in a stream; ``None`` if its rows are of no stream, or were changed by others."""
        if self.snapshot is None:
            return None
        for entry, info in self._infos():
            told = _told(info)
            if TOKEN in told:
                return _position(told)
            if FENCE not in told and not self._keeps_rows(entry):
                return None
        return None

    def layout(self) -> TableLayout | None:
        """Return the layout that the next refresh has to match; ``None`` before the first commit."""
        if self.snapshot is None or self.is_new:
            return None
        return TableLayout(self.snapshot.columns, self.snapshot.partition_keys)

    def _infos(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield the commit info of the entries up to the snapshot, newest first."""
        if self.snapshot is None:
            return iter(())
        return self.log.infos(entry for entry in self.log.versions()[::-1] if entry < self.next_entry)

    def _lineage(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield entries newest first, without those rolled back by a ``RESTORE`` of others."""
        newest = None
        for entry, info in self._infos():
            if newest is not None and entry > newest:
                continue
            yield entry, info
            newest = self._restored(entry, info) if _is_restore(info) else None

    def _restored(self, entry: int, info: Mapping[str, Any]) -> int:
        """Return the entry restored by a ``RESTORE`` of others; one before all others if unknown."""
        try:
            return int((info.get("operationParameters") or {})["version"])
        except (ValueError, TypeError, KeyError):
            return self._with_files_of(entry)

    def _with_files_of(self, restore: int) -> int:
        """Return the latest entry before a ``RESTORE`` to a timestamp at which the table had the same files."""
        first, *others = (entry for entry in self.log.versions() if entry <= restore)
        wanted = self._paths(restore)
        differing = wanted ^ self._paths(first)
        found = -1 if differing else first
        for entry, actions in zip(others[:-1], self.log.entries(others[:-1]), strict=True):
            gone, come = (_paths_in(actions or (), kind) for kind in ("remove", "add"))
            differing = (differing - gone - come) | ((gone - come) & wanted) | (come - wanted)
            if not differing:
                found = entry
        return found

    def _paths(self, entry: int) -> set[str]:
        """Return the files of the table as of an entry."""
        snapshot = open_snapshot(self.log.location, entry)
        return {file.path for file in snapshot.files} if snapshot is not None else set()

    def _keeps_rows(self, entry: int) -> bool:
        """Return whether an entry of others leaves the rows unchanged: it rewrote files, or changed none."""
        actions = self.log.entry(entry) or []
        changes = [said for action in actions for kind, said in action.items() if kind in ("add", "remove")]
        return bool(actions) and not any(said.get("dataChange", True) for said in changes)

    def _forgotten(self, snapshot: DeltaSnapshot, number: int, token: str) -> Version:
        """Return a version whose entry is deleted, from its recorded number; the latest one has a data timestamp."""
        latest = snapshot.transaction(APPLICATION)
        noted = snapshot.transaction(FRESH) if latest == number else None
        fresh = datetime.fromtimestamp(noted / 1000, UTC) if noted is not None else None
        return Version(number, token, "", fresh, self._latest_time())

    def _token_of(self, number: int) -> str:
        """Return the token of a version whose entry is deleted from the newest checkpoint; empty if not recorded."""
        for uri in self.log.newest_checkpoint():
            try:
                with as_os_errors(), open_file(uri) as stream:
                    noted = _transactions(stream, is_text=uri.endswith(".json"))
            except (OSError, KeyError, ValueError, pa.ArrowException) as error:
                raise CatalogUnavailableError(f"Checkpoint {uri} cannot be read: {error}") from error
            for txn in filter(None, noted):
                if txn["version"] == number and txn["appId"].startswith(f"{APPLICATION}/") and txn["appId"] != FRESH:
                    return str(txn["appId"]).partition("/")[2]
        return ""

    def _latest_time(self) -> datetime:
        """Return the time of the last change in the log; no version can be newer."""
        info = next((info for _, info in self._infos()), {})
        return datetime.fromtimestamp(float(info.get("timestamp") or 0) / 1000, UTC)


def stage_of(location: str, token: str) -> str:
    """Return the stage folder of a token."""
    return f"{location}/{STAGES}/{quote(token, safe='')}"


def _transactions(stream: Any, *, is_text: bool) -> list[Mapping[str, Any] | None]:
    if is_text:
        return [json.loads(line).get("txn") for line in stream]
    return [*pq.read_table(stream, columns=["txn"]).column("txn").to_pylist()]


def position_told(position: StreamPosition | None) -> dict[str, str]:
    """Return the property that records the stream position of a version."""
    return {STREAM: json.dumps(asdict(position), sort_keys=True)} if position is not None else {}


def _told(info: Mapping[str, Any]) -> Mapping[str, str]:
    told = info.get("tags")
    return told if isinstance(told, dict) else {}


def _version(entry: int, info: Mapping[str, Any]) -> Version | None:
    """Return the version of an entry; ``None`` for entries of others, who may write arbitrary tags."""
    told = _told(info)
    if TOKEN not in told:
        return None
    try:
        return version_of(told, str(entry), int(info["timestamp"]))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _position(told: Mapping[str, str]) -> StreamPosition | None:
    try:
        return StreamPosition(**json.loads(told[STREAM]))
    except (ValueError, TypeError, KeyError):
        return None


def _paths_in(actions: Iterable[Action], kind: str) -> set[str]:
    return {action[kind]["path"] for action in actions if kind in action}


def _is_restore(info: Mapping[str, Any]) -> bool:
    """Return whether an entry is a ``RESTORE`` of others."""
    return info.get("operation") == "RESTORE" and TOKEN not in _told(info)


_OF_OTHERS = timedelta(days=6)
"""Additional age of files by others, which may still be being written.

With the day for our own files, it adds up to a week, Delta's default.
"""

_KEEPS_LONGER = "delta.deletedFileRetentionDuration"
"""Table property that requires a longer retention."""

_DAYS = {"hour": 1 / 24, "day": 1, "week": 7}

_HALF_ENTRY = re.compile(r"\.\d{20}\.json\.[0-9a-f]{32}\.tmp|_commit_[0-9a-f-]+\.json\.tmp")
"""Incomplete log entries left by a killed writer, ours or delta-rs."""


def delete_orphans(location: str, before: datetime, held: Callable[[], Collection[str]]) -> Deleted:
    """See :meth:`~airflow_dynamic_tables.formats.base.LakeTable.delete_orphans`.

    :raises CatalogUnavailableError: if a part of the log cannot be read; nothing is deleted then.
    :raises ConfigurationError: if the folder is not that of exactly one table.
    """

    def read(entries: Sequence[FileEntry]) -> References | None:
        check_own_folder(location, _other_tables(entries, plain_path(location)))
        snapshot = open_snapshot(location)
        if snapshot is None:
            return None
        kept = None if why_unwritable(snapshot) else _longer(before, snapshot.properties.get(_KEEPS_LONGER))
        files = {plain_path(uri) for uri in _referenced(location)}
        return References(files, lambda entry, _: _limit(entry, location, before, kept))

    return delete_unreferenced(location, held, read)


def _limit(entry: FileEntry, location: str, before: datetime, foreign_before: datetime | None) -> datetime | None:
    """Return the age limit of an orphan.

    :param foreign_before: the limit for files by others; ``None`` keeps them.
    """
    name = entry.path[len(plain_path(location)) + 1 :]
    if name.startswith(f"{STAGES}/"):
        return before
    if name.startswith(f"{FOLDER}/"):
        return before if _HALF_ENTRY.fullmatch(name.rpartition("/")[2]) else None
    return foreign_before if name.endswith(".parquet") and not entry.is_folder and not is_hidden(name) else None


def _referenced(location: str) -> set[str]:
    """Return the URIs of all files of all versions in the log."""
    log = DeltaLog(location)
    entries = log.versions()
    snapshot = open_snapshot(location, entries[0]) if entries else None
    if snapshot is None:
        raise CatalogUnavailableError(
            f"The log in {location} has no version that can be read by its entries; no file is deleted."
        )
    used = {file.uri for file in snapshot.files}
    for actions in log.entries(entries):
        if actions is None:
            raise CatalogUnavailableError(f"The log in {location} is being cut off; its files are looked at next time.")
        used |= {
            file_uri(location, said["path"]) for action in actions for kind, said in action.items() if kind in ("add", "cdc")
        }
    return used


def _other_tables(entries: Sequence[FileEntry], root: str) -> list[str]:
    folders = (entry.path.removesuffix(f"/{FOLDER}") for entry in entries if entry.path.endswith(f"/{FOLDER}"))
    return [folder for folder in folders if folder != root]


def _longer(before: datetime, interval: str | None) -> datetime | None:
    """Return the time limit for files by others; ``None`` if the table property cannot be parsed."""
    if interval is None:
        return before - _OF_OTHERS
    match = re.fullmatch(r"(?:interval )?(\d+) (hour|day|week)s?", interval.strip().lower())
    if match is None:
        return None
    return before - max(_OF_OTHERS, timedelta(days=int(match[1]) * _DAYS[match[2]]))
