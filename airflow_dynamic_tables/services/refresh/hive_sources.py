"""Binding a table that a Hive metastore knows and nobody here refreshes: exactly its files, whatever folders they are in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_dynamic_tables.clients.files import fingerprint, list_files, plain_path
from airflow_dynamic_tables.core.refresh.plan import SourceBinding, SourcePart
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.tables.schema import spark_ddl
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.workspace import Workspace

if TYPE_CHECKING:
    from airflow_dynamic_tables.catalog.hive.scan import Folder

_Files = Mapping[str, Mapping[str, Any]]


def bind_hive(workspace: Workspace, source: Source, view: str) -> SourceBinding:
    """Bind a Hive table to the files that it has now; its version changes with its files and its partitions.

    :raises ConfigurationError: when its catalog is no Hive metastore.
    :raises TableNotFoundError: when the metastore does not know it.
    :raises UnsupportedError: when Spark cannot read it without Hive.
    """
    # Thrift takes long to import, and Airflow imports this module whenever it parses a DAG file.
    from airflow_dynamic_tables.catalog.hive.catalog import HiveCatalog

    catalog = workspace.catalogs.get(source.identifier.catalog)
    if not isinstance(catalog, HiveCatalog):
        raise ConfigurationError(f"Source {source.identifier} has format hive, but catalog {catalog.name} is not of type hive.")
    scan = catalog.scan(source.identifier.path)
    listed = _listed(scan.folders)
    parts = _parts(scan.folders, listed)
    only = parts[0] if len(parts) == 1 and not parts[0].values else None
    partitions: dict[str, Mapping[str, Any]] = {f"{folder.name}={folder.location}": {} for folder in scan.folders}
    return SourceBinding(
        identifier=str(source.identifier),
        view=view,
        format=scan.format,
        version=fingerprint({**partitions, **{name: info for files in listed.values() for name, info in files.items()}}),
        files=only.files if only is not None else (),
        base_path=only.base_path if only is not None else None,
        schema=spark_ddl(scan.columns),
        partition_keys=scan.partition_keys,
        options={**scan.options, **source.options},
        parts=parts if only is None else (),
    )


def _parts(folders: Sequence[Folder], listed: Mapping[str, _Files]) -> tuple[SourcePart, ...]:
    """The files by the base folder that their partitions lie below, and one part for every partition that lies elsewhere."""
    together: dict[str | None, list[str]] = {}
    apart: list[SourcePart] = []
    for folder in folders:
        files = listed[folder.location]
        if folder.name and folder.base is None:
            apart.append(SourcePart(tuple(files), values=folder.spec))
        else:
            together.setdefault(folder.base, []).extend(files)
    return tuple(part for part in (*(SourcePart(tuple(files), base) for base, files in together.items()), *apart) if part.files)


def _listed(folders: Sequence[Folder]) -> dict[str, dict[str, Mapping[str, Any]]]:
    """By location, the files that lie directly in it; the partitions below one base are listed at once."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {folder.location: {} for folder in folders}
    locations = {plain_path(location): location for location in found}
    for place in sorted({folder.base or folder.location for folder in folders}):
        try:
            files = list_files(place)
        except FileNotFoundError:
            continue  # Hive, too, takes a missing folder for an empty one
        for name, info in files.items():
            folder, _, file = plain_path(name).rpartition("/")
            if folder in locations and info.get("size"):
                location = locations[folder]
                found[location][f"{location}/{file}"] = info
    return found
