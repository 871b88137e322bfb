"""Partitions as a Hive metastore keeps them, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from urllib.parse import unquote

from hive_metastore.ttypes import Partition, Table

from airflow_dynamic_tables.catalog.hive.tables import STATISTICS, is_technical
from airflow_dynamic_tables.catalog.values import CatalogPartition, TableStatistics
from airflow_dynamic_tables.clients.metastore.tables import file_uri, partition_name

_UNKNOWN = "-1"


def values_of(name: str) -> tuple[str, ...]:
    """The values in the name of a partition."""
    return tuple(unquote(part.partition("=")[2]) for part in name.split("/"))


def new_partition(table: Table, partition: CatalogPartition, values: Sequence[str]) -> Partition:
    """A new partition as the metastore is to have it: stored as its table is."""
    made = Partition(list(values), table.dbName, table.tableName, createTime=0, lastAccessTime=0, sd=copy(table.sd))
    made.sd.location = None
    made.parameters = {}
    update_partition(made, partition)
    # Or the metastore would look into the folder, and call what it has not yet got known: no files.
    made.parameters = dict.fromkeys(STATISTICS.values(), _UNKNOWN) | made.parameters
    return made


def update_partition(found: Partition, partition: CatalogPartition) -> None:
    """Change a partition of the metastore into that value; what others keep in its parameters stays."""
    kept = {key: value for key, value in (found.parameters or {}).items() if is_technical(key)}
    comment = {"comment": partition.comment} if partition.comment is not None else {}
    kept.pop("comment", None)
    found.parameters = {**kept, **partition.properties, **comment}
    set_statistics(found.parameters, partition.statistics)
    if partition.location is not None:
        found.sd.location = partition.location


def from_hive_partition(table: Table, found: Partition, keys: Sequence[str]) -> CatalogPartition:
    """The value that a partition of the metastore is; its location only when it is not the usual folder."""
    parameters = found.parameters or {}
    usual = f"{file_uri(table.sd.location)}/{partition_name(keys, found.values)}" if table.sd.location else None
    place = file_uri(found.sd.location) if found.sd.location else None
    return CatalogPartition(
        spec=dict(zip(keys, found.values, strict=True)),
        location=None if place == usual else place,
        comment=parameters.get("comment"),
        properties={key: value for key, value in parameters.items() if not is_technical(key)},
        statistics=statistics_of(parameters),
    )


def statistics_of(parameters: Mapping[str, str]) -> TableStatistics:
    """Size of a table or partition, from the parameters where Hive and Spark keep it."""
    known = {field: int(parameters[name]) for field, name in STATISTICS.items() if parameters.get(name, _UNKNOWN) != _UNKNOWN}
    return TableStatistics(**known)


def set_statistics(parameters: dict[str, str], statistics: TableStatistics) -> None:
    """Write a size into the parameters of a table or partition."""
    for field, name in STATISTICS.items():
        value = getattr(statistics, field)
        parameters.pop(name, None)
        if value is not None:
            parameters[name] = str(value)
