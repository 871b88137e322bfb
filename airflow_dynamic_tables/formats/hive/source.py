"""How a table is read that a Hive metastore knows and nobody here refreshes: exactly its files, whatever folders they are in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from hive_metastore.ttypes import Partition, Table

from airflow_dynamic_tables.clients.files import fingerprint, is_settled
from airflow_dynamic_tables.clients.metastore.tables import columns_of, file_uri, location_of, partition_keys_of
from airflow_dynamic_tables.clients.stores import MetastoreStore
from airflow_dynamic_tables.core.refresh.plan import SourceBinding, SourcePart
from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.tables.data_files import partition_name
from airflow_dynamic_tables.core.tables.partitions import describe
from airflow_dynamic_tables.core.tables.schema import spark_ddl
from airflow_dynamic_tables.exceptions import TableNotFoundError
from airflow_dynamic_tables.formats.hive import parameters as tables
from airflow_dynamic_tables.formats.hive.commits import PartitionCommits, Values
from airflow_dynamic_tables.formats.hive.folders import Files, Folder, by_partition, list_folders, notes, state
from airflow_dynamic_tables.formats.hive.reading import reading
from airflow_dynamic_tables.formats.news import News, why_another


def bind(source: Source, store: MetastoreStore, view: str, conf: Mapping[str, str]) -> SourceBinding:  # noqa: ARG001 - as it is
    """Bind a Hive table to the files that it has now; its version changes with its files and its partitions.

    :raises TableNotFoundError: when the metastore does not know it.
    :raises UnsupportedError: when Spark cannot read it without Hive.
    """
    return _listed(source, store, view)[0]


def news(source: Source, store: MetastoreStore, view: str, since: SourceState | None) -> News:
    """The files that came into a table, see :func:`~airflow_dynamic_tables.formats.registry.news`.

    A file that may change again and look the same is left for later.

    :raises TableNotFoundError: as of :func:`bind`, as for UnsupportedError.
    """
    seen_at = datetime.now(UTC)
    binding, folders, files = _listed(source, store, view)
    then = dict(since.partitions or {}) if since is not None else {}
    now: dict[str, str] = {}
    new: dict[tuple[tuple[str, str], ...], list[str]] = {}
    waiting: list[str] = []
    for spec, (file, info) in by_partition(folders, files.items()):
        name = f"{describe(spec)} {file}"
        if name not in then and not is_settled(info, seen_at):
            waiting.append(file)
            continue
        now[name] = fingerprint({file: info})
        if name not in then:
            new.setdefault(tuple(spec.items()), []).append(file)

    known = binding.state or SourceState(binding.version)
    if since is not None and (why := why_another(since, known) or _why_changed(then, now)):
        return News(ended=why)
    why_waiting = f"{waiting[0]} changed just now, or is a link; so did {len(waiting) - 1} others" if waiting else ""
    if since is not None and not new:
        return News(waiting=why_waiting)
    parts = tuple(SourcePart(tuple(names), values=dict(spec)) for spec, names in new.items())
    read = replace(known, partitions=now, unsettled=())
    return News(replace(binding, files=(), base_path=None, parts=parts, state=read), waiting=why_waiting)


def _why_changed(then: dict[str, str], now: dict[str, str]) -> str:
    """Why files that were read are not all there as they were; empty when they are."""
    for name, known in then.items():
        if name not in now:
            return f"file {name.strip()} was read, and is gone"
        if now[name] != known:
            return f"file {name.strip()} was read, and has changed since"
    return ""


def _listed(source: Source, store: MetastoreStore, view: str) -> tuple[SourceBinding, Collection[Folder], Files]:
    """The table as it is now, the folders of its partitions, and what the store says of the files in them."""
    path = source.identifier.path
    table = tables.load(store.metastore, path)
    if table is None or (table.dbName, table.tableName) != (path.database, path.name):  # the metastore folds names
        raise TableNotFoundError(f"Table (or view) {path} does not exist in catalog {store.catalog}.")
    columns = columns_of(table)
    keys = partition_keys_of(table)
    file_format, options = reading(path, table, columns)
    partitions: dict[Values, Table | Partition] = {(): table}
    if keys:
        partitions = {**PartitionCommits(store.metastore, path).partitions(table)}
    specs = {values: dict(zip(keys, values, strict=True)) for values in partitions}
    locations = {values: one.sd.location if keys else location_of(table) for values, one in partitions.items()}
    folders = [(file_uri(location).rstrip("/"), specs[values]) for values, location in locations.items() if location]
    compacted = notes((specs[values], one) for values, one in partitions.items())
    seen_at = datetime.now(UTC)
    listing = list_folders(folders)
    names = (f"{partition_name(keys, tuple(spec.values()))}={folder}" for folder, spec in folders)
    version = fingerprint({**{name: {} for name in names}, **listing.files})
    binding = SourceBinding(
        identifier=str(source.identifier),
        view=view,
        format=file_format,
        version=version,
        files=listing.only.files if listing.only is not None else (),
        base_path=listing.only.base_path if listing.only is not None and keys else None,
        schema=spark_ddl(columns),
        partition_keys=keys,
        options={**options, **source.options},
        parts=listing.parts if listing.only is None else (),
        state=state(table, version, folders, listing.files, compacted, seen_at),
    )
    return binding, folders, listing.files
