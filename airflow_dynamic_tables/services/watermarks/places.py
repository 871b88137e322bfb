"""Folders of the partitions of a source, with their files, markers and modification times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from airflow_dynamic_tables.catalog.values import CatalogView
from airflow_dynamic_tables.clients.files import FileEntry, exists, list_entries, plain_path
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import NULL_PARTITION, PartitionSpec, describe
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schema import is_hidden, partition_name, partition_of
from airflow_dynamic_tables.services.workspace import Workspace


@dataclass(frozen=True, slots=True)
class PartitionFolder:
    """The folder of a source partition, listed before the files to read are listed.

    ``values`` are those of the partition keys, in their order; ``location`` is the URI of the folder. ``files`` are the paths of
    all files in it. ``changed_at`` and ``created_at`` are the newest and oldest modification times in it, by the clock of the
    store; ``None`` if unavailable.
    """

    values: Mapping[str, str]
    location: str
    files: frozenset[str] = frozenset()
    changed_at: datetime | None = None
    created_at: datetime | None = None
    is_link: bool = False

    def has(self, name: str) -> bool:
        """Return whether the folder directly contains a file with that name."""
        if self.is_link:  # the target of a link is not listed
            return exists(f"{self.location}/{name}")
        return f"{plain_path(self.location)}/{name}" in self.files


def folders_of(
    workspace: Workspace, source: Source, keys: Sequence[str], wanted: Iterable[str] | None
) -> dict[str, PartitionFolder]:
    """Return the folders of the partitions of a source, by partition text; including those without data.

    :param wanted: for a source with a metastore, the partitions whose folders to list; ``None``: all.
    :raises CatalogUnavailableError: if a folder cannot be listed.
    """
    if source.path is not None:
        return _below(source.path, keys)
    names = None if wanted is None else set(wanted)
    found: dict[str, PartitionFolder] = {}
    for values, location in _of_catalog(workspace, source.identifier, {}):
        name = describe(values)
        if names is None or name in names:
            found[name] = _folder(values, location, list_entries(location))
    return found


def partition_folders(workspace: Workspace, table: TableIdentifier, spec: PartitionSpec) -> list[str]:
    """Return the URIs of the folders of the table partitions that match ``spec``, as recorded in the catalog."""
    return [location for _, location in _of_catalog(workspace, table, spec)]


def _of_catalog(workspace: Workspace, identifier: TableIdentifier, spec: PartitionSpec) -> Iterator[tuple[dict[str, str], str]]:
    catalog = workspace.readable(identifier.catalog)
    table = catalog.get_table(identifier.path)
    root = ("" if isinstance(table, CatalogView) else table.location or "").rstrip("/")
    for partition in catalog.get_partitions(identifier.path, spec):
        values = dict(partition.spec)
        yield values, partition.location or f"{root}/{partition_name(tuple(values), tuple(values.values()))}"


def partition_names(binding: SourceBinding) -> dict[str, str]:
    """Return the partition text of each file of a source."""
    names: dict[str, str] = {}
    for part in binding.parts:
        for file in part.files:
            names[file] = _name_of(file, part.base_path, binding.partition_keys, part.values)
    for file in binding.files:
        names[file] = _name_of(file, binding.base_path, binding.partition_keys, {})
    return names


def _name_of(file: str, base: str | None, keys: Sequence[str], values: Mapping[str, str]) -> str:
    told = dict(values)
    if base is not None:
        folder = plain_path(file)[len(plain_path(base)) + 1 :].rpartition("/")[0]
        told |= {key.lower(): value for key, value in partition_of(folder).items()}
    by_lower = {key.lower(): value for key, value in told.items()}
    return describe({key: by_lower[key.lower()] for key in keys if key.lower() in by_lower})


def _below(root: str, keys: Sequence[str]) -> dict[str, PartitionFolder]:
    """Return the folders whose names contain values of all keys, in any order."""
    top = plain_path(root)
    inside: dict[str, list[FileEntry]] = {}
    for entry in list_entries(root):
        names = entry.path.rstrip("/")[len(top) + 1 :].split("/")
        if len(names) >= len(keys) and not is_hidden("/".join(names[: len(keys)])):
            inside.setdefault("/".join(names[: len(keys)]), []).append(entry)
    folders: dict[str, PartitionFolder] = {}
    for relative, entries in inside.items():
        spec = partition_of(relative)
        if set(keys) <= spec.keys():
            values = {key: spec[key] for key in keys}
            name = describe({key: value or NULL_PARTITION for key, value in values.items()})
            folders[name] = _folder(values, f"{root.rstrip('/')}/{relative}", entries)
    return folders


def _folder(values: Mapping[str, str], location: str, entries: Sequence[FileEntry]) -> PartitionFolder:
    times = [entry.changed_at for entry in entries if entry.changed_at is not None]
    own = plain_path(location)
    return PartitionFolder(
        values=values,
        location=location,
        files=frozenset(entry.path for entry in entries if not entry.is_folder),
        changed_at=max(times, default=None),
        created_at=min(times, default=None),
        is_link=any(entry.is_link for entry in entries if entry.path == own),
    )
