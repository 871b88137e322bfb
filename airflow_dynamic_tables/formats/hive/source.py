"""How a table is read that a Hive metastore knows and nobody here refreshes: exactly its files, whatever folders they are in."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow_dynamic_tables.clients.files import fingerprint
from airflow_dynamic_tables.clients.metastore.tables import columns_of, file_uri, location_of, partition_keys_of
from airflow_dynamic_tables.clients.stores import MetastoreStore
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.tables.data_files import partition_name
from airflow_dynamic_tables.core.tables.schema import spark_ddl
from airflow_dynamic_tables.exceptions import TableNotFoundError
from airflow_dynamic_tables.formats.hive import parameters as tables
from airflow_dynamic_tables.formats.hive.commits import PartitionCommits
from airflow_dynamic_tables.formats.hive.folders import list_folders, state
from airflow_dynamic_tables.formats.hive.reading import reading


def bind(source: Source, store: MetastoreStore, view: str) -> SourceBinding:
    """Bind a Hive table to the files that it has now; its version changes with its files and its partitions.

    :raises TableNotFoundError: when the metastore does not know it.
    :raises UnsupportedError: when Spark cannot read it without Hive.
    """
    path = source.identifier.path
    table = tables.load(store.metastore, path)
    if table is None or (table.dbName, table.tableName) != (path.database, path.name):  # the metastore folds names
        raise TableNotFoundError(f"Table (or view) {path} does not exist in catalog {store.catalog}.")
    columns = columns_of(table)
    keys = partition_keys_of(table)
    file_format, options = reading(path, table, columns)
    if keys:
        partitions = {one: part.sd.location for one, part in PartitionCommits(store.metastore, path).partitions(table).items()}
    else:
        partitions = {(): location_of(table)}
    folders = [
        (file_uri(location).rstrip("/"), dict(zip(keys, values, strict=True)))
        for values, location in partitions.items()
        if location
    ]
    seen_at = datetime.now(UTC)
    listing = list_folders(folders)
    names = (f"{partition_name(keys, tuple(spec.values()))}={folder}" for folder, spec in folders)
    version = fingerprint({**{name: {} for name in names}, **listing.files})
    return SourceBinding(
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
        state=state(table, version, folders, listing.files, seen_at),
    )
