"""Old versions of a Delta table are forgotten with the beginning of its log; a checkpoint stands for what was before.

A log has no gaps, so what is kept is a row of versions that ends with the current one. What others commit goes with the version
of ours that it follows.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from airflow_dynamic_tables.clients.deleting import delete_entries
from airflow_dynamic_tables.clients.delta.log import FOLDER, DeltaLog
from airflow_dynamic_tables.clients.delta.snapshots import open_snapshot
from airflow_dynamic_tables.clients.files import Entry, list_entries
from airflow_dynamic_tables.clients.object_stores import as_os_errors
from airflow_dynamic_tables.core.tables.retention import HOURLY_UP_TO, Retention
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConflictError, VersionNotFoundError
from airflow_dynamic_tables.formats.delta.history import DeltaHistory

_ATTEMPTS = 5

_LONGEST_READING = timedelta(minutes=10)
"""How long somebody may take who has listed a log to read it."""

CHECKPOINT_AFTER = 100
"""Entries of a log after which a checkpoint is written, which readers begin with; Delta's own default."""

_OF_VERSION = re.compile(r"(\d{20})\.(json|crc|checkpoint\..*|\d{20}\.compacted\.json)")
"""Files of a log that are of one version: its entry, checksums, parts of its checkpoint, what begins with it."""

log = logging.getLogger(__name__)


def expire(location: str, retention: Retention, now: datetime, pinned: Callable[[], Collection[str]], least: int) -> int:
    """See :meth:`~airflow_dynamic_tables.formats.base.LakeTable.expire`.

    :raises ConflictError: when the table does not come to rest.
    :raises CatalogUnavailableError: when the log cannot be read or written.
    """
    for _ in range(_ATTEMPTS):
        history = DeltaHistory.at(location)
        entries = history.log.versions()
        if history.snapshot is None or not entries:
            return 0
        if sum(entry < _oldest_kept(history, entries, retention, now, ()) for entry in entries) < least:
            return 0
        oldest = _oldest_kept(history, entries, retention, now, pinned())
        if history.log.versions() == entries:
            return _forget_before(history.log, oldest, now) if oldest > 0 else 0
    raise ConflictError(f"{location} was changed by others {_ATTEMPTS} times meanwhile; its old versions go next time.")


def keep_readable(location: str, version: int) -> None:
    """Write a checkpoint of a version that was just committed, now and then; that it fails harms nobody."""
    if version == 0 or version % CHECKPOINT_AFTER:
        return
    try:
        _write_checkpoint(location, version)
    except (CatalogUnavailableError, VersionNotFoundError) as error:
        log.warning(
            "No checkpoint of version %s in %s: %s; its readers take longer until the next one.", version, location, error
        )


def _oldest_kept(history: DeltaHistory, entries: list[int], retention: Retention, now: datetime, pinned: Collection[str]) -> int:
    """The oldest version of the log that stays, with all that are newer; of a table without versions of ours, all stay."""
    # Of thinned ones a log cannot keep some: the last day stays, and the newest.
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


def _forget_before(log: DeltaLog, oldest: int, now: datetime) -> int:
    """Take away the log before a version, which has a checkpoint then; the newest of it first, so that what is left is whole.

    Whoever listed the log before there was this checkpoint still reads what is older. So it is a checkpoint of an earlier time up
    to which the log goes; the new one is for the next time.

    :return: how many versions are gone.
    """
    if oldest not in log.checkpoints():
        _write_checkpoint(log.location, oldest)
    whole = log.checkpoints()
    folder = f"{log.location}/{FOLDER}"
    entries = list_entries(folder)
    young = {version for version, entry in _by_version(entries) if _is_checkpoint(entry) and not _is_settled(entry, now)}
    first = max((version for version in whole if version <= oldest and version not in young), default=0)
    files = [entry for version, entry in _by_version(entries) if version < first]
    try:
        with as_os_errors():
            delete_entries(folder, files)
    except OSError as error:
        raise CatalogUnavailableError(f"The log in {log.location} cannot be cut off before version {first}: {error}") from error
    return sum(log.uri(version).endswith(entry.path.rpartition("/")[2]) for version, entry in _by_version(files))


def _by_version(entries: Iterable[Entry]) -> Iterator[tuple[int, Entry]]:
    """The files of a log that are of one version, each with that."""
    for entry in entries:
        folder, _, name = entry.path.rpartition("/")
        if folder.endswith(f"/{FOLDER}") and (match := _OF_VERSION.fullmatch(name)):
            yield int(match[1]), entry


def _is_checkpoint(entry: Entry) -> bool:
    return ".checkpoint." in entry.path


def _is_settled(entry: Entry, now: datetime) -> bool:
    """Whether everybody who reads the log now has seen a checkpoint."""
    return entry.changed_at is not None and entry.changed_at < now - _LONGEST_READING


def _write_checkpoint(location: str, version: int) -> None:
    snapshot = open_snapshot(location, version)
    if snapshot is not None:
        snapshot.create_checkpoint()
