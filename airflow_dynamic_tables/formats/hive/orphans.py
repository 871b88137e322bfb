"""What no partition points at any more: deleted when those who began to read it have had time enough."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from hive_metastore.ttypes import Partition, Table

from airflow_dynamic_tables.clients.deleting import Deleted, delete_entries
from airflow_dynamic_tables.clients.files import Entry, list_entries, plain_path
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.metastore.tables import KIND, file_uri
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.exceptions import ConfigurationError, ConflictError
from airflow_dynamic_tables.formats.hive import parameters as tables
from airflow_dynamic_tables.formats.hive.commits import PartitionCommits, Values
from airflow_dynamic_tables.formats.hive.records import claim, marks_folder, owners, replaced_since, undone
from airflow_dynamic_tables.formats.hive.undone import find_dropped, find_undone, named
from airflow_dynamic_tables.formats.own_folder import check_own_folder

log = logging.getLogger(__name__)


def delete_orphans(metastore: Metastore, path: ObjectPath, before: datetime, held: Callable[[], Collection[str]]) -> Deleted:
    """See :meth:`~airflow_dynamic_tables.formats.base.LakeTable.delete_orphans`.

    A folder counts as changed when it was written, and when a commit took its place: readers that began before still read it.
    The order is what makes it safe beside refreshes: a file that was there when the files were listed is either of a stage
    that is unfinished now, or of one whose commit landed before and so is referred to now, or nobody's.
    """
    table = tables.load(metastore, path)
    if table is None or tables.identity(table) is None:  # its next commit gives it an id
        return Deleted()
    location = f"{tables.root(table)}/{tables.VERSIONS}"
    check_own_folder(tables.root(table), ())
    check_own_folder(location, ())
    entries = list_entries(location)
    trace(Step.LISTED, str(path))
    kept = {plain_path(folder) for folder in held()}
    now, partitions = _read(metastore, path)
    leads_to = _used(now, partitions)
    used = {plain_path(folder) for folder in leads_to if tables.is_below(folder, location)}
    if used and entries and not any(_is_in(entry, used) for entry in entries):
        raise ConfigurationError(f"The files of {path} are not listed below {location} as the table spells them; none goes.")
    kept |= used | {plain_path(folder) for folder in (marks_folder(location), *replaced_since(entries, location, before))}
    lost = _lost(metastore, path, table)
    kept |= {plain_path(tables.stage_of(tables.root(table), version.token)) for version in lost}
    _note_dropped(now, partitions, entries)
    old = [entry for entry in entries if entry.changed_at is not None and entry.changed_at < before]
    orphans = [entry for entry in old if not _is_in(entry, kept)]
    left = {stage for folder in leads_to if (stage := tables.left_in(table, folder))}
    _finish(metastore, path, table, [stage for stage in left if plain_path(stage) not in kept])
    if not orphans or not _is_alone(metastore, table, entries, before):
        return Deleted()
    return delete_entries(location, orphans)


def _lost(metastore: Metastore, path: ObjectPath, table: Table) -> list[Version]:
    """Versions whose files stay though the table does not lead to them: another engine took them away.

    :raises ConflictError: while commits change the table all the time.
    """
    found = find_undone(metastore, path, tables.load(metastore, path))
    if found is None:
        raise ConflictError(f"{path} is changed all the time; its files are looked at next time.")
    for one in found:
        log.warning("Version %s of %s was undone by another engine, %s.", one.version.number, path, one.how)
    lost = undone(table)
    return [*(one.version for one in found), *([lost] if lost is not None else [])]


def _finish(metastore: Metastore, path: ObjectPath, table: Table, stages: Collection[str]) -> None:
    """Record a commit that landed, and drop what commits left: whose owner died, or lost the wire, before it could do so.

    :param stages: where partitions without rows are, though no refresh holds them any more.
    """
    commits = PartitionCommits(metastore, path)
    pending = tables.pending(table)
    if pending is not None and commits.landed(pending):
        commits.complete(pending)
    for stage in stages:
        commits.clear(stage)


def _is_alone(metastore: Metastore, table: Table, entries: Collection[Entry], before: datetime) -> bool:
    """Whether the folder is this table's only; it was marked a while ago, so that others who share it had time to mark it, too.

    Tables that the first release made share a folder when one has been renamed, or when two metastores have one warehouse.
    """
    root = tables.root(table)
    own = tables.identity(table)
    marks = owners(entries, f"{root}/{tables.VERSIONS}", before)
    others = [*(mark for mark in marks if mark != own), *_neighbours(metastore, table)]
    if others:
        log.warning("%s.%s shares %s with %s; nothing is deleted there.", table.dbName, table.tableName, root, ", ".join(others))
    elif own not in marks:
        claim(table)
    return not others and marks.get(str(own), False)


def _neighbours(metastore: Metastore, table: Table) -> list[str]:
    """Other dynamic tables of the metastore that lie in the folder of a table, too."""
    root = tables.root(table)
    neighbours: list[str] = []
    for database in metastore.ask("get_all_databases"):
        names = metastore.ask("get_table_names_by_filter", database, f'hive_filter_field_params__{KIND} = "dynamic_table"', -1)
        others = [name for name in names if (database, name) != (table.dbName, table.tableName)]
        for other in metastore.ask("get_table_objects_by_name", database, others) if others else ():
            if tables.is_at(other.sd.location, root) or tables.is_below(other.sd.location, root):
                neighbours.append(f"{database}.{other.tableName}")
    return neighbours


def _read(metastore: Metastore, path: ObjectPath) -> tuple[Table | None, dict[Values, Partition]]:
    """The table, read after its partitions."""
    table: Table | None = tables.load(metastore, path)
    if table is None or not table.partitionKeys:
        return table, {}
    partitions = PartitionCommits(metastore, path).partitions(table)
    return tables.load(metastore, path), partitions


def _used(table: Table | None, partitions: Mapping[Values, Partition]) -> list[str]:
    """Every folder that the table leads to."""
    read = (*([table] if table is not None else []), *partitions.values())
    return [file_uri(one.sd.location).rstrip("/") for one in read if one.sd.location]


def _note_dropped(table: Table | None, partitions: Mapping[Values, Partition], entries: Collection[Entry]) -> None:
    """Say which partitions others dropped, before their files go."""
    if table is None or not table.partitionKeys:
        return
    files = (entry.path for entry in entries if not entry.is_folder)
    for version, gone in find_dropped(table, partitions, files):
        name = f"{table.dbName}.{table.tableName}"
        message = "Partitions of version %s of %s were dropped by another engine, and stay so until they are refreshed: %s"
        log.warning(message, version.number, name, named(gone))


def _is_in(entry: Entry, folders: Collection[str]) -> bool:
    """Whether an entry is one of the folders, or below one."""
    parts = entry.path.split("/")
    return any("/".join(parts[:end]) in folders for end in range(1, len(parts) + 1))
