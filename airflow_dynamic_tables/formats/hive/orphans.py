"""What no partition points at any more: deleted when those who began to read it have had time enough."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime

from hive_metastore.ttypes import Table

from airflow_dynamic_tables.clients.files import Deleted, Entry, delete_entries, list_entries, plain_path, read_text, write_text
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.metastore.tables import file_uri
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.formats.hive import parameters as tables
from airflow_dynamic_tables.formats.hive.commits import PartitionCommits

_REPLACED = "_replaced.json"
"""File in a stage that says which folders its commit takes the place of; as old as the commit."""


def write_replaced(stage: str, locations: Iterable[str]) -> None:
    """Say, before a commit, which folders it takes the place of."""
    write_text(f"{stage}/{_REPLACED}", json.dumps([file_uri(location) for location in locations]))


def delete_orphans(metastore: Metastore, path: ObjectPath, before: datetime, held: Callable[[], Collection[str]]) -> Deleted:
    """See :meth:`~airflow_dynamic_tables.formats.base.LakeTable.delete_orphans`.

    A folder counts as changed when it was written, and when a commit took its place: readers that began before still read it.
    The order is what makes it safe beside refreshes: a file that was there when the files were listed is either of a stage
    that is unfinished now, or of one whose commit landed before and so is referred to now, or nobody's.
    """
    table = tables.load(metastore, path)
    if table is None:
        return Deleted()
    location = f"{tables.root(table)}/{tables.VERSIONS}"
    found = list_entries(location)
    trace(Step.LISTED, str(path))
    kept = {plain_path(folder) for folder in held()}
    used = {plain_path(folder) for folder in _used(metastore, path) if tables.is_below(folder, location)}
    if used and found and not any(_is_in(entry, used) for entry in found):
        raise ConfigurationError(f"The files of {path} are not listed below {location} as the table spells them; none goes.")
    kept |= used | {plain_path(folder) for folder in _young(found, location, before)}
    old = [entry for entry in found if entry.changed_at is not None and entry.changed_at < before]
    return delete_entries(location, [entry for entry in old if not _is_in(entry, kept)])


def _used(metastore: Metastore, path: ObjectPath) -> list[str]:
    """Every folder that the table leads to."""
    table: Table | None = tables.load(metastore, path)
    if table is None:
        return []
    partitions = PartitionCommits(metastore, path).partitions(table).values() if table.partitionKeys else ()
    return [file_uri(one.sd.location).rstrip("/") for one in (table, *partitions) if one.sd.location]


def _young(found: Sequence[Entry], location: str, before: datetime) -> list[str]:
    """Folders that were replaced after that time."""
    root, folders = plain_path(location), []
    for entry in found:
        if entry.path.endswith(f"/{_REPLACED}") and entry.changed_at is not None and entry.changed_at >= before:
            folders += json.loads(read_text(f"{location}{entry.path[len(root) :]}"))
    return folders


def _is_in(entry: Entry, folders: Collection[str]) -> bool:
    """Whether an entry is one of the folders, or below one."""
    parts = entry.path.split("/")
    return any("/".join(parts[:end]) in folders for end in range(1, len(parts) + 1))
