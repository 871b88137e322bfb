"""Deletion of orphan files of a Delta table, both our own and those of other writers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime, timedelta

from airflow_dynamic_tables.clients.deleting import Deleted, delete_entries
from airflow_dynamic_tables.clients.delta.log import FOLDER, DeltaLog
from airflow_dynamic_tables.clients.delta.snapshots import file_uri, open_snapshot
from airflow_dynamic_tables.clients.files import Entry, list_entries, plain_path
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.core.schema import is_hidden
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConfigurationError
from airflow_dynamic_tables.formats.delta.history import STAGES, DeltaHistory
from airflow_dynamic_tables.formats.exclusive_location import check_own_folder

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

    A file that existed at listing time belongs to a stage that is unfinished now, or to a commit that completed before and is in
    the log now, or it is an orphan.

    :raises CatalogUnavailableError: if a part of the log cannot be read; nothing is deleted then.
    :raises ConfigurationError: if the folder is not that of exactly one table.
    """
    entries = list_entries(location)
    root = plain_path(location)
    check_own_folder(location, _other_tables(entries, root))
    trace(Step.LISTED, location)
    unfinished = {*held()}
    history = DeltaHistory.at(location)
    if history.snapshot is None:
        return Deleted()
    used = {plain_path(uri) for uri in _referenced(location)}
    unfinished |= {*held()}
    if used and used.isdisjoint(entry.path for entry in entries):
        raise ConfigurationError(f"No file of {location} is listed as its log spells it; none is deleted.")
    foreign_before = _longer(before, history.snapshot.properties.get(_KEEPS_LONGER))
    free = [entry for entry in entries if entry.path not in used]
    return delete_entries(location, _old(free, root, before, foreign_before, unfinished))


def _old(
    entries: Sequence[Entry], root: str, before: datetime, foreign_before: datetime | None, unfinished: Collection[str]
) -> Iterator[Entry]:
    """Yield the files that are old enough to delete.

    :param foreign_before: the limit for files by others; ``None`` keeps them.
    :param unfinished: folders of stages whose commits may be running.
    """
    folders = tuple(f"{plain_path(folder)}/" for folder in unfinished)
    for entry in entries:
        name = entry.path[len(root) + 1 :]
        if name.startswith(f"{STAGES}/"):
            limit: datetime | None = before
        elif name.startswith(f"{FOLDER}/"):
            limit = before if _HALF_ENTRY.fullmatch(name.rpartition("/")[2]) else None
        else:
            limit = foreign_before if name.endswith(".parquet") and not entry.is_folder and not is_hidden(name) else None
        is_old = limit is not None and entry.changed_at is not None and entry.changed_at < limit
        if is_old and not f"{entry.path}/".startswith(folders):
            yield entry


def _referenced(location: str) -> set[str]:
    """Return the URIs of all files of all versions in the log.

    :raises CatalogUnavailableError: if they cannot be determined for a version.
    """
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


def _other_tables(entries: Sequence[Entry], root: str) -> list[str]:
    """Return the subfolders that are Delta tables of their own."""
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
