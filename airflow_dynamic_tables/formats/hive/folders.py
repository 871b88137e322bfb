"""The folders of a Hive table's partitions: their listing, their fingerprints, and the deletion of orphan files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hive_metastore.ttypes import Partition, Table

from airflow_dynamic_tables.clients.files import (
    Deleted,
    FileEntry,
    delete_entries,
    exists,
    is_object_store,
    last_changed,
    list_entries,
    list_files,
    plain_path,
)
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.metastore.tables import KIND, columns_of, file_uri
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import describe
from airflow_dynamic_tables.core.refresh.plan import SourcePart
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.core.schema import partition_of, spark_ddl
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConfigurationError, ConflictError
from airflow_dynamic_tables.formats.fingerprints import File, SameRows, fingerprints, partition_sizes, schema_digest, unsettled
from airflow_dynamic_tables.formats.hive import parameters as tables
from airflow_dynamic_tables.formats.hive.commits import HiveCommits, Values
from airflow_dynamic_tables.formats.hive.records import (
    claim,
    find_dropped,
    find_undone,
    marks_folder,
    named,
    owners,
    replaced_since,
    undone,
)
from airflow_dynamic_tables.formats.orphans import check_own_folder, is_in, is_old

Folder = tuple[str, Mapping[str, str]]
"""The URI of a folder without a trailing slash, and its partition, which is empty for an unpartitioned table."""

Files = Mapping[str, Mapping[str, Any]]
"""File attributes from the store, by URI."""


def state(
    table: Table,
    version: str,
    folders: Collection[Folder],
    files: Files,
    compacted: Mapping[str, SameRows],
    seen_at: datetime | None = None,
) -> SourceState:
    """Return the state of a table; its creation time tells it from a recreated table of the same name.

    :param compacted: see :func:`notes`; compacted partitions keep their previous state.
    :param seen_at: a time before the listing; omitted if files are never rewritten in place.
    """
    partitions = folder_fingerprints(folders, files)
    location = table.sd.location
    for name, same in compacted.items():
        if same.after == partitions.get(name):
            partitions[name] = same.before
            location = location if name else same.location
    return SourceState(
        version=version,
        identity=str(table.createTime) if table.createTime else None,
        location=location,
        schema=schema_digest(spark_ddl(columns_of(table))),
        partitions=partitions,
        unsettled=unsettled(by_partition(folders, files.items()), seen_at) if seen_at is not None else (),
        sizes=partition_sizes((spec, int(files[file]["size"])) for spec, (file, _) in by_partition(folders, files.items())),
        changed_at=last_changed(files.values()),
    )


def folder_fingerprints(folders: Collection[Folder], files: Files) -> dict[str, str]:
    """Return a fingerprint of each partition, by its text, from the folder's location and its files."""
    return fingerprints(by_partition(folders, [*((folder, {}) for folder, _ in folders), *files.items()]))


def notes(partitions: Iterable[tuple[Mapping[str, str], Table | Partition]]) -> dict[str, SameRows]:
    """Return the records of compactions by the text of the partition, which is empty for an unpartitioned table."""
    noted = ((describe(spec), SameRows.read_in(one.parameters)) for spec, one in partitions)
    return {name: same for name, same in noted if same is not None}


@dataclass(frozen=True, slots=True)
class FolderListing:
    """The files of some folders with their attributes; ``parts`` are groups that a job reads together."""

    parts: tuple[SourcePart, ...]
    files: Files

    @property
    def only(self) -> SourcePart | None:
        """The only part if folder names identify all partitions, so that no parts are needed; ``None`` otherwise."""
        return self.parts[0] if len(self.parts) == 1 and not self.parts[0].values else None


def list_folders(folders: Iterable[Folder]) -> FolderListing:
    """List the files directly in these folders, with one call per common base folder.

    :raises CatalogUnavailableError: if a folder does not exist or cannot be listed; names it. Object stores have no empty
        folders, so a missing folder counts as empty there.
    """
    together: list[SourcePart] = []
    apart: list[SourcePart] = []
    files: dict[str, Mapping[str, Any]] = {}
    for base, below in _by_base(folders).items():
        if base is not None:
            listed = _listed(base, [folder for folder, _ in below])
            together.append(SourcePart(tuple(listed), base))
            files |= listed
        else:
            for folder, spec in below:
                listed = _listed(folder, (folder,))
                apart.append(SourcePart(tuple(listed), values=spec))
                files |= listed
    return FolderListing(tuple(part for part in (*together, *apart) if part.files), files)


def by_partition(folders: Collection[Folder], named: Iterable[File]) -> Iterator[tuple[Mapping[str, str], File]]:
    """Yield folders and files with each of their partitions."""
    specs: dict[str, list[Mapping[str, str]]] = {}  # several partitions may share a folder
    for folder, spec in folders:
        specs.setdefault(folder, []).append(spec)
    for name, info in named:
        for spec in specs[name if name in specs else name.rpartition("/")[0]]:
            yield spec, (name, info)


def _by_base(folders: Iterable[Folder]) -> dict[str | None, list[Folder]]:
    """Group folders by the base folder below which their names identify the partition; ``None`` if the names do not."""
    by_base: dict[str | None, list[Folder]] = {}
    for folder, spec in sorted(folders, key=lambda one: (one[0], *one[1].values())):
        base, *names = folder.rsplit("/", len(spec))
        told = partition_of("/".join(names))
        says_it = [(key.lower(), value) for key, value in told.items()] == [(key.lower(), value) for key, value in spec.items()]
        by_base.setdefault(base if says_it else None, []).append((folder, spec))
    return by_base


def _listed(base: str, folders: Collection[str]) -> dict[str, Mapping[str, Any]]:
    """Return the files directly in one of these folders, all below one base, spelled like the folders."""
    try:
        files = list_files(base)
    except FileNotFoundError:
        files = {}
    spelled = {plain_path(folder): folder for folder in folders}
    listed = {}
    for file, info in files.items():
        folder, _, name = plain_path(file).rpartition("/")
        if folder in spelled and info.get("size"):
            listed[f"{spelled[folder]}/{name}"] = info
    _check_there(set(folders) - {file.rpartition("/")[0] for file in listed})
    return listed


def _check_there(empty: Collection[str]) -> None:
    """Check that folders without files exist: a deleted folder, or a disk that is not mounted, is not an empty folder."""
    for folder in sorted(empty):
        if not is_object_store(folder) and not exists(folder):
            raise CatalogUnavailableError(f"{folder} is not there, but the metastore leads to it.")


log = logging.getLogger(__name__)


def delete_orphans(metastore: Metastore, path: ObjectPath, before: datetime, held: Callable[[], Collection[str]]) -> Deleted:
    """See :meth:`~airflow_dynamic_tables.formats.base.LakeTable.delete_orphans`.

    A folder counts as changed when it was written, and when a commit replaced it, because running readers still read it. The
    order of the steps makes this safe with concurrent refreshes: a file that existed at listing time belongs to a stage that is
    unfinished now, or to a commit that completed before and is referenced now, or it is an orphan.
    """
    table = tables.load(metastore, path)
    if table is None or tables.identity(table) is None:  # the next commit assigns an id
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
    if used and entries and not any(is_in(entry, used) for entry in entries):
        raise ConfigurationError(f"The files of {path} are not listed below {location} as the table spells them; none goes.")
    kept |= used | {plain_path(folder) for folder in (marks_folder(location), *replaced_since(entries, location, before))}
    lost = _lost(metastore, path, table)
    kept |= {plain_path(tables.stage_of(tables.root(table), version.token)) for version in lost}
    _note_dropped(now, partitions, entries)
    left = {stage for folder in leads_to if (stage := tables.left_in(table, folder))}
    _finish(metastore, path, table, [stage for stage in left if plain_path(stage) not in kept])
    orphans = [entry for entry in entries if is_old(entry, before) and not is_in(entry, kept)]
    if not orphans or not _is_alone(metastore, table, entries, before):
        return Deleted()
    return delete_entries(location, orphans)


def _lost(metastore: Metastore, path: ObjectPath, table: Table) -> list[Version]:
    """Return versions undone by another engine; their files are kept although the table does not refer to them."""
    found = find_undone(metastore, path, tables.load(metastore, path))
    if found is None:
        raise ConflictError(f"{path} is changed all the time; its files are looked at next time.")
    for one in found:
        log.warning("Version %s of %s was undone by another engine, %s.", one.version.number, path, one.how)
    lost = undone(table)
    return [*(one.version for one in found), *([lost] if lost is not None else [])]


def _finish(metastore: Metastore, path: ObjectPath, table: Table, stages: Collection[str]) -> None:
    """Complete a successful commit, and drop leftovers of commits whose process died or lost its connection.

    :param stages: stages with partitions without rows, not held by any refresh.
    """
    commits = HiveCommits(metastore, path)
    pending = tables.pending(table)
    if pending is not None and commits.landed(pending):
        commits.complete(pending)
    for stage in stages:
        commits.clear(stage)


def _is_alone(metastore: Metastore, table: Table, entries: Collection[FileEntry], before: datetime) -> bool:
    """Return whether the folder belongs to this table only.

    The table's mark must be old enough that other tables in the folder had time to add theirs. Tables created by the first
    release share a folder if one was renamed, or if two metastores have the same warehouse.
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
    table: Table | None = tables.load(metastore, path)
    if table is None or not table.partitionKeys:
        return table, {}
    partitions = HiveCommits(metastore, path).partitions(table)
    return tables.load(metastore, path), partitions


def _used(table: Table | None, partitions: Mapping[Values, Partition]) -> list[str]:
    read = (*([table] if table is not None else []), *partitions.values())
    return [file_uri(one.sd.location).rstrip("/") for one in read if one.sd.location]


def _note_dropped(table: Table | None, partitions: Mapping[Values, Partition], entries: Collection[FileEntry]) -> None:
    """Log which partitions were dropped by others, before their files are deleted."""
    if table is None or not table.partitionKeys:
        return
    files = (entry.path for entry in entries if not entry.is_folder)
    for version, gone in find_dropped(table, partitions, files):
        name = f"{table.dbName}.{table.tableName}"
        message = "Partitions of version %s of %s were dropped by another engine, and stay so until they are refreshed: %s"
        log.warning(message, version.number, name, named(gone))
