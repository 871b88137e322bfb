"""Specs of partitions, checked against the table that they are of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from airflow_dynamic_tables.catalog.errors import no_partition
from airflow_dynamic_tables.catalog.values import AnyTable, CatalogPartition, CatalogView
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.partitions import PartitionSpec, check_spec
from airflow_dynamic_tables.exceptions import InvalidPartitionError, TableNotFoundError


def partition_keys(catalog: str, path: ObjectPath, table: AnyTable, spec: PartitionSpec) -> tuple[str, ...]:
    """The table's partition keys, once it is known that it has some, and among them those of a (partial) spec.

    :raises InvalidPartitionError: when not.
    """
    keys = () if isinstance(table, CatalogView) else table.partition_keys
    if not keys:
        raise InvalidPartitionError(f"Table {path} in catalog {catalog} is not partitioned.")
    if unknown := sorted(set(spec) - set(keys)):
        raise InvalidPartitionError(
            f"Table {path} in catalog {catalog} has no partition key {unknown[0]}; its keys are {', '.join(keys)}."
        )
    return keys


def full_spec(catalog: str, path: ObjectPath, table: AnyTable, spec: PartitionSpec) -> dict[str, str]:
    """The spec of one partition in the order of the table's keys.

    :raises InvalidPartitionError: when it does not have exactly these keys.
    """
    keys = partition_keys(catalog, path, table, {})
    try:
        check_spec(spec, keys)
    except ValueError as error:
        raise InvalidPartitionError(f"Table {path} in catalog {catalog}: {error}.") from error
    return {key: spec[key] for key in keys}


def one_partition(
    catalog: str, path: ObjectPath, spec: PartitionSpec, find: Callable[[ObjectPath, PartitionSpec], Sequence[CatalogPartition]]
) -> CatalogPartition:
    """The one of the partitions of a table that has exactly this spec.

    :param find: the partitions that agree with a spec.
    :raises PartitionNotFoundError: for every problem, as FLIP-30 has it.
    """
    try:
        candidates = find(path, spec)
    except (TableNotFoundError, InvalidPartitionError) as error:
        raise no_partition(catalog, path, spec) from error
    for partition in candidates:
        if partition.spec == spec:
            return partition
    raise no_partition(catalog, path, spec)
