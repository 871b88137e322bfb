"""The Hive metastore catalog, its partitions and functions."""

from __future__ import annotations

import getpass
import json
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Self

from hive_metastore.ttypes import AddPartitionsRequest, Function, FunctionType, Partition, ResourceType, ResourceUri, Table

from airflow_dynamic_tables.catalog import delta_entries as delta
from airflow_dynamic_tables.catalog.base import (
    DEFAULT_DATABASE,
    CatalogDefaults,
    CatalogEntry,
    full_spec,
    function_taken,
    is_found,
    no_function,
    no_partition,
    partition_keys,
    partition_taken,
)
from airflow_dynamic_tables.catalog.hive.encoding import STATISTICS, UNKNOWN, is_technical, set_statistics, statistics_of
from airflow_dynamic_tables.catalog.hive.session import (
    KEEP_STATISTICS,
    MAX_DATABASE_NAME,
    MAX_NAME,
    is_legal,
)
from airflow_dynamic_tables.catalog.hive.tables import HiveTables
from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDatabase,
    CatalogFunction,
    CatalogPartition,
)
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.metastore.tables import PREFIX, file_uri
from airflow_dynamic_tables.clients.stores import EntryStore, MetastoreStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.lineage import DatasetName, metastore_symlink
from airflow_dynamic_tables.core.partitions import PartitionSpec
from airflow_dynamic_tables.core.schema import partition_name, partition_of
from airflow_dynamic_tables.exceptions import (
    AlreadyExistsError,
    FunctionNotFoundError,
    InvalidPartitionError,
    NotFoundError,
    PartitionNotFoundError,
)

BATCH = 1_000
"""Partitions per call, because a metastore builds the entire response in memory."""


class HivePartitions(HiveTables):
    """Partitions of tables."""

    def list_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[dict[str, str]]:
        wanted = spec or {}
        table = self.load(path)
        known = self.as_stored(path, table)
        keys = partition_keys(self.name, path, known, wanted)
        if delta.is_delta(known):
            return [dict(partition.spec) for partition in delta.partitions_of(known, keys, wanted)]
        specs = (dict(zip(keys, partition_of(name).values(), strict=True)) for name in self._partition_names(table, keys, wanted))
        # The metastore matches by pattern, so the result may contain other partitions.
        return sorted((one for one in specs if wanted.items() <= one.items()), key=lambda one: tuple(one.values()))

    def get_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[CatalogPartition]:
        table = self.load(path)
        known = self.as_stored(path, table)
        keys = partition_keys(self.name, path, known, spec or {})
        if delta.is_delta(known):
            return delta.partitions_of(known, keys, spec or {})
        partitions = (_partition_from_hive(table, partition, keys) for partition in self._load_partitions(table, spec))
        return sorted(partitions, key=lambda partition: tuple(partition.spec.values()))

    def get_partition(self, path: ObjectPath, spec: PartitionSpec) -> CatalogPartition:
        try:
            table, partition, keys = self._load_one(path, spec)
        except PartitionNotFoundError:  # it may be a partition of a Delta table
            return super().get_partition(path, spec)
        return _partition_from_hive(table, partition, keys)

    def create_partitions(
        self, path: ObjectPath, partitions: Sequence[CatalogPartition], *, ignore_if_exists: bool = False
    ) -> None:
        """Create all partitions or, on an error, none.

        :raises InvalidPartitionError: also for an empty value, which Hive cannot distinguish from null.
        """
        stored = self.load(path)
        table = self.value(stored)
        created: dict[tuple[str, ...], Partition] = {}
        for partition in partitions:
            spec = full_spec(self.name, path, table, partition.spec)
            if not all(spec.values()):
                raise InvalidPartitionError(
                    f"Table {path} in catalog {self.name}: a partition value of a Hive table is never empty."
                )
            key = tuple(spec.values())
            if key not in created:
                created[key] = _new(stored, partition, key)
            elif not ignore_if_exists:
                raise partition_taken(self.name, path, spec)
        if not created:
            return

        request = AddPartitionsRequest(path.database, path.name, list(created.values()), ignore_if_exists, needResult=False)
        try:
            self.session.call("add_partitions_req", request)
        except AlreadyExistsError as error:
            raise partition_taken(self.name, path, self._first_taken(path, table, created)) from error

    def _alter_partition(self, path: ObjectPath, partition: CatalogPartition) -> None:
        _, stored, _ = self._load_one(path, partition.spec)
        _update(stored, partition)
        self.session.call("alter_partition_with_environment_context", path.database, path.name, stored, KEEP_STATISTICS)

    def _drop_partition(self, path: ObjectPath, spec: PartitionSpec) -> None:
        try:
            _, stored, _ = self._load_one(path, spec)
            self.session.call("drop_partition", path.database, path.name, stored.values, False)
        except NotFoundError as error:
            raise no_partition(self.name, path, spec) from error

    def _load_partitions(self, table: Table, spec: PartitionSpec | None = None) -> list[Partition]:
        keys = [field.name for field in table.partitionKeys]
        wanted = {key.lower(): value for key, value in (spec or {}).items()}
        names = self._partition_names(table, keys, wanted)
        partitions: list[Partition] = []
        for start in range(0, len(names), BATCH):
            batch = names[start : start + BATCH]
            partitions += self.session.call("get_partitions_by_names", table.dbName, table.tableName, batch)
        return [one for one in partitions if wanted.items() <= dict(zip(keys, one.values, strict=True)).items()]

    def _partition_names(self, table: Table, keys: Sequence[str], spec: PartitionSpec) -> list[str]:
        """Return Hive's names of the partitions that match ``spec``, and possibly of others, because Hive matches by pattern."""
        values = [spec.get(key, "") for key in keys]
        if not any(values):
            return list(self.session.call("get_partition_names", table.dbName, table.tableName, -1))
        return list(self.session.call("get_partition_names_ps", table.dbName, table.tableName, values, -1))

    def _load_one(self, path: ObjectPath, spec: PartitionSpec) -> tuple[Table, Partition, tuple[str, ...]]:
        """Return a table, one of its partitions, and the partition keys."""
        try:
            table = self.load(path)
            known = self.value(table)
            if delta.is_delta(known):
                raise InvalidPartitionError(f"The partitions of {path} are those of its log.")
            values = full_spec(self.name, path, known, spec)
            partition = self.session.call("get_partition", path.database, path.name, list(values.values()))
        except (NotFoundError, InvalidPartitionError) as error:
            raise no_partition(self.name, path, spec) from error
        return table, partition, tuple(values)

    def _first_taken(self, path: ObjectPath, table: AnyTable, new: Mapping[tuple[str, ...], Partition]) -> dict[str, str]:
        """Return the first of some new partitions that already exists."""
        keys = partition_keys(self.name, path, table, {})
        names = [partition_name(keys, values) for values in new]
        taken = self.session.call("get_partitions_by_names", path.database, path.name, names)
        values = next((tuple(one.values) for one in taken), next(iter(new)))
        return dict(zip(keys, values, strict=True))


def _new(table: Table, partition: CatalogPartition, values: Sequence[str]) -> Partition:
    new = Partition(list(values), table.dbName, table.tableName, createTime=0, lastAccessTime=0, sd=copy(table.sd))
    new.sd.location = None
    new.parameters = {}
    _update(new, partition)
    # Otherwise the metastore would list the folder, which is still empty, and record that there are no files.
    new.parameters = dict.fromkeys(STATISTICS.values(), UNKNOWN) | new.parameters
    return new


def _update(stored: Partition, partition: CatalogPartition) -> None:
    """Update a metastore partition to a value; parameters of other clients are kept."""
    kept = {key: value for key, value in (stored.parameters or {}).items() if is_technical(key)}
    comment = {"comment": partition.comment} if partition.comment is not None else {}
    kept.pop("comment", None)
    stored.parameters = {**kept, **partition.properties, **comment}
    set_statistics(stored.parameters, partition.statistics)
    if partition.location is not None:
        stored.sd.location = partition.location


def _partition_from_hive(table: Table, stored: Partition, keys: Sequence[str]) -> CatalogPartition:
    """Return the value of a metastore partition; its location only if it is not the default folder."""
    parameters = stored.parameters or {}
    usual = f"{file_uri(table.sd.location)}/{partition_name(keys, stored.values)}" if table.sd.location else None
    place = file_uri(stored.sd.location) if stored.sd.location else None
    return CatalogPartition(
        spec=dict(zip(keys, stored.values, strict=True)),
        location=None if place == usual else place,
        comment=parameters.get("comment"),
        properties={key: value for key, value in parameters.items() if not is_technical(key)},
        statistics=statistics_of(parameters),
    )


_OURS = PREFIX.replace(".", ":")
"""URI prefix of the resource that holds what Hive has no field for."""


class HiveFunctions(HivePartitions):
    """Functions by name, in lower case."""

    def list_functions(self, database: str) -> list[str]:
        self.load_database(database)
        return sorted(self.session.call("get_functions", database, "*"))

    def get_function(self, path: ObjectPath) -> CatalogFunction:
        return _function_from_hive(self._load_function(path))

    def function_exists(self, path: ObjectPath) -> bool:
        return is_found(FunctionNotFoundError, self._load_function, path)

    def _create_function(self, path: ObjectPath, function: CatalogFunction) -> None:
        self.load_database(path.database)
        self.session.check_name("function", path.name.lower(), MAX_NAME)
        try:
            self.session.call("create_function", _function_to_hive(path, function))
        except AlreadyExistsError as error:
            raise function_taken(self.name, path) from error

    def _alter_function(self, path: ObjectPath, function: CatalogFunction) -> None:
        self._load_function(path)
        # The metastore's own alter_function does not change the jars.
        self.session.call("drop_function", path.database, path.name.lower())
        self.session.call("create_function", _function_to_hive(path, function))

    def _rename_function(self, path: ObjectPath, new_name: str) -> None:
        function = self._load_function(path)
        renamed = ObjectPath(path.database, new_name)
        self.session.check_name("function", new_name.lower(), MAX_NAME)
        if self.function_exists(renamed):
            raise function_taken(self.name, renamed)
        function.functionName = new_name.lower()
        self.session.call("alter_function", path.database, path.name.lower(), function)

    def _drop_function(self, path: ObjectPath) -> None:
        self._load_function(path)
        self.session.call("drop_function", path.database, path.name.lower())

    def _load_function(self, path: ObjectPath) -> Function:
        if not is_legal(path.database, path.name.lower()):
            raise no_function(self.name, path)
        try:
            return self.session.call("get_function", path.database, path.name.lower())
        except NotFoundError as error:
            raise no_function(self.name, path) from error


def _function_to_hive(path: ObjectPath, function: CatalogFunction) -> Function:
    """Convert a function: a Java class with its jars in Hive's fields, everything else in a resource of this package."""
    properties = dict(function.properties)
    resources = [ResourceUri(ResourceType.JAR, jar) for jar in properties.pop("jars", "").split(",") if jar]
    if properties or function.language != "java":
        ours = json.dumps({"language": function.language, "properties": properties}, sort_keys=True)
        resources.append(ResourceUri(ResourceType.FILE, _OURS + ours))
    return Function(
        functionName=path.name.lower(),
        dbName=path.database,
        className=function.name,
        ownerName=getpass.getuser(),
        ownerType=1,
        createTime=0,
        functionType=FunctionType.JAVA,
        resourceUris=resources,
    )


def _function_from_hive(stored: Function) -> CatalogFunction:
    uris = [resource.uri for resource in stored.resourceUris or ()]
    ours: dict[str, Any] = next((json.loads(uri.removeprefix(_OURS)) for uri in uris if uri.startswith(_OURS)), {})
    jars = ",".join(uri for uri in uris if not uri.startswith(_OURS))
    properties = {**ours.get("properties", {}), **({"jars": jars} if jars else {})}
    return CatalogFunction(stored.className, ours.get("language", "java"), properties)


class HiveCatalog(HiveFunctions):
    """Databases, tables, views, functions, partitions and statistics of a Hive metastore (2.3 and later), one part for each.

    The metastore folds names to lower case and accepts only letters, digits and underscores. A name that it would change is
    rejected on creation, and is never found.

    :param warehouse: URI of the folder for new databases; by default the metastore's own.
    """

    publishes_drafts = True

    @classmethod
    def from_entry(cls, entry: CatalogEntry, defaults: CatalogDefaults) -> Self:  # noqa: ARG003 - it needs none
        metastore = Metastore(entry.required("uri"))
        return cls(entry.name, metastore, entry.folder("warehouse"), entry.default_database or DEFAULT_DATABASE)

    def open(self) -> None:
        """Connect, and create the default database if it is missing."""
        self.create_database(self.default_database, CatalogDatabase(), ignore_if_exists=True)

    def close(self) -> None:
        """Close connections."""
        self.metastore.close()

    def stores(self) -> tuple[MetastoreStore, EntryStore]:
        return MetastoreStore(self.name, self.metastore), EntryStore(self.name, self.location)

    def dataset_names(self, path: ObjectPath, location: str | None) -> tuple[DatasetName, ...]:
        symlink = metastore_symlink(self.metastore.uri, path.database, path.name)
        return *super().dataset_names(path, location), symlink

    def check_path(self, path: ObjectPath) -> None:
        self.session.check_name("database", path.database, MAX_DATABASE_NAME)
        self.session.check_name("table", path.name, MAX_NAME)
