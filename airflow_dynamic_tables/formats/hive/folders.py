"""The folders of a Hive table, one for each partition, wherever they lie: their files, listed with as few calls as can be."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hive_metastore.ttypes import Partition, Table

from airflow_dynamic_tables.clients.files import exists, list_files, plain_path
from airflow_dynamic_tables.clients.metastore.tables import columns_of
from airflow_dynamic_tables.clients.object_stores import is_object_store
from airflow_dynamic_tables.core.refresh.plan import SourcePart
from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.core.tables.data_files import partition_of
from airflow_dynamic_tables.core.tables.partitions import describe
from airflow_dynamic_tables.core.tables.schema import spark_ddl
from airflow_dynamic_tables.exceptions import CatalogUnavailableError
from airflow_dynamic_tables.formats.fingerprints import File, SameRows, fingerprints, schema_digest, unsettled

Folder = tuple[str, Mapping[str, str]]
"""Its URI without a slash at the end, and the partition that it is of; which is empty for an unpartitioned table."""

Files = Mapping[str, Mapping[str, Any]]
"""Files by their URIs, and what the store says of each."""


def state(
    table: Table,
    version: str,
    folders: Collection[Folder],
    files: Files,
    compacted: Mapping[str, SameRows],
    seen_at: datetime | None = None,
) -> SourceState:
    """What a table is like; a table that was dropped and made anew under the same name was made at another time.

    :param files: those of all folders, see :class:`Listing`.
    :param compacted: see :func:`notes`; such a partition is like it was before.
    :param seen_at: a time before they were listed; left out where nobody changes a file in its place.
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
    )


def folder_fingerprints(folders: Collection[Folder], files: Files) -> dict[str, str]:
    """A fingerprint of each partition, by its text: of where its folder is, and of the files in it."""
    return fingerprints(by_partition(folders, [*((folder, {}) for folder, _ in folders), *files.items()]))


def notes(partitions: Iterable[tuple[Mapping[str, str], Table | Partition]]) -> dict[str, SameRows]:
    """What compactions noted in partitions, by the text of each; of an unpartitioned table that is empty."""
    noted = ((describe(spec), SameRows.read_in(one.parameters)) for spec, one in partitions)
    return {name: same for name, same in noted if same is not None}


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of some folders, and what the store says of each; in ``parts`` as a job reads them together."""

    parts: tuple[SourcePart, ...]
    files: Files

    @property
    def only(self) -> SourcePart | None:
        """The one part that holds everything, when the names of the folders tell all partitions; then no parts are needed."""
        return self.parts[0] if len(self.parts) == 1 and not self.parts[0].values else None


def list_folders(folders: Iterable[Folder]) -> Listing:
    """Files that lie directly in these folders. Those below one base are listed at once.

    :raises CatalogUnavailableError: when a folder cannot be listed, or is not there; names it. An object store has no empty
        folders, so there a missing one is an empty one.
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
    return Listing(tuple(part for part in (*together, *apart) if part.files), files)


def by_partition(folders: Collection[Folder], named: Iterable[File]) -> Iterator[tuple[Mapping[str, str], File]]:
    """Folders and files, each with every partition that it is of."""
    specs: dict[str, list[Mapping[str, str]]] = {}  # several partitions may lie in one folder
    for folder, spec in folders:
        specs.setdefault(folder, []).append(spec)
    for name, info in named:
        for spec in specs[name if name in specs else name.rpartition("/")[0]]:
            yield spec, (name, info)


def _by_base(folders: Iterable[Folder]) -> dict[str | None, list[Folder]]:
    """Folders by the one below which their names say of which partition they are; those whose names do not say it by none."""
    by_base: dict[str | None, list[Folder]] = {}
    for folder, spec in sorted(folders, key=lambda one: (one[0], *one[1].values())):
        base, *names = folder.rsplit("/", len(spec))
        told = partition_of("/".join(names))
        says_it = [(key.lower(), value) for key, value in told.items()] == [(key.lower(), value) for key, value in spec.items()]
        by_base.setdefault(base if says_it else None, []).append((folder, spec))
    return by_base


def _listed(base: str, folders: Collection[str]) -> dict[str, Mapping[str, Any]]:
    """Files that lie directly in one of these folders, all below one, spelled as these are."""
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
    """Check that folders without files are there: one that somebody deleted, or on a disk that is away, is not an empty one."""
    for folder in sorted(empty):
        if not is_object_store(folder) and not exists(folder):
            raise CatalogUnavailableError(f"{folder} is not there, but the metastore leads to it.")
