"""Tables of the ``sql`` catalog, and the partitions of tables whose format does not store them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sqlalchemy import ColumnElement, delete, select, update

from airflow_dynamic_tables.catalog import delta_entries as delta
from airflow_dynamic_tables.catalog.base import (
    full_spec,
    no_database,
    no_partition,
    no_table,
    no_version,
    other_kind,
    partition_keys,
    partition_taken,
    table_taken,
)
from airflow_dynamic_tables.catalog.sql.rows import ENTRIES, PARTITIONS, PHYSICAL, TABLES, Rows, SqlDatabases
from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDynamicTable,
    CatalogPartition,
    CatalogView,
    ColumnStatistics,
    TableStatistics,
    decode,
    encode,
    is_own,
    unreadable,
)
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.core.formats import is_placed_by_entry
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import PartitionSpec, describe
from airflow_dynamic_tables.exceptions import InvalidPartitionError, TableNotFoundError, UnsupportedError

if TYPE_CHECKING:  # PyIceberg takes 0.3 s to import
    from pyiceberg.catalog.sql import SqlCatalog as IcebergCatalog

    from airflow_dynamic_tables.catalog.sql.physical import PhysicalTable, PhysicalTables


@dataclass(frozen=True, slots=True)
class Details:
    """Dependent rows of one table, within one transaction. Specs are in the order of the table's keys."""

    rows: Rows
    path: ObjectPath

    def partitions(self) -> list[CatalogPartition]:
        """Return all partitions, ordered by their values."""
        query = select(PARTITIONS.table.c.value).where(*self.rows.at(PARTITIONS, self.path))
        partitions = map(_partition, self.rows.connection.scalars(query))
        return sorted(partitions, key=lambda partition: tuple(partition.spec.values()))

    def partition(self, spec: PartitionSpec) -> CatalogPartition | None:
        """Return a partition."""
        value = self.rows.connection.scalar(select(PARTITIONS.table.c.value).where(*self._is_partition(spec)))
        return _partition(value) if value is not None else None

    def add_partitions(self, partitions: Sequence[CatalogPartition]) -> list[CatalogPartition]:
        """Insert partitions; return those that already exist or are duplicates, which are not inserted."""
        by_spec = {describe(partition.spec): partition for partition in reversed(partitions)}
        values = [
            {"catalog": self.rows.catalog, **self._key, "spec": spec, "value": asdict(partition)}
            for spec, partition in by_spec.items()
        ]
        statement = self.rows.database.insert(PARTITIONS.table).on_conflict_do_nothing().returning(PARTITIONS.table.c.spec)
        inserted = set(self.rows.connection.scalars(statement, values)) if values else set()
        new = {id(by_spec[spec]) for spec in inserted}
        return [partition for partition in partitions if id(partition) not in new]

    def replace_partition(self, partition: CatalogPartition) -> None:
        """Update the value of a partition."""
        change = update(PARTITIONS.table).where(*self._is_partition(partition.spec)).values(value=asdict(partition))
        self.rows.connection.execute(change)

    def remove_partition(self, spec: PartitionSpec) -> None:
        """Delete a partition."""
        self.rows.connection.execute(delete(PARTITIONS.table).where(*self._is_partition(spec)))

    @property
    def _key(self) -> dict[str, str]:
        return {"database": self.path.database, "name": self.path.name}

    def _is_partition(self, spec: PartitionSpec) -> tuple[ColumnElement[bool], ...]:
        return (*self.rows.at(PARTITIONS, self.path), PARTITIONS.table.c.spec == describe(spec))


def _partition(value: Mapping[str, Any]) -> CatalogPartition:
    return CatalogPartition(**{**value, "statistics": TableStatistics(**value["statistics"])})


_DYNAMIC = "dynamic_table"
"""Kind of the rows of dynamic tables."""

_ODD = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 100


class SqlTables(SqlDatabases):
    """Rows of this package, and tables that only PyIceberg knows."""

    def __init__(self, name: str, database: Database, warehouse: str, default_database: str = "default") -> None:
        super().__init__(name, database, default_database)
        self.warehouse = warehouse

    @cached_property
    def _physical(self) -> PhysicalTables:
        from airflow_dynamic_tables.catalog.sql.physical import PhysicalTables  # PyIceberg takes 0.3 s to import

        self.store.create_iceberg_tables()
        return PhysicalTables(self.name, self.store.database, self.warehouse)

    @property
    def iceberg(self) -> IcebergCatalog:
        """PyIceberg's catalog of the physical tables; its namespaces are the databases."""
        return self._physical.iceberg

    def list_tables(self, database: str) -> list[str]:
        with self.store.transaction() as rows:
            rows.get_database(database)
            own = rows.connection.scalars(select(ENTRIES.table.c.name).where(*rows.within(ENTRIES, database)))
            return sorted({*own, *rows.iceberg_tables(database)})

    def list_dynamic_tables(self, database: str) -> list[str]:
        return self._names_of(database, _DYNAMIC)

    def get_dynamic_tables(self, database: str) -> dict[str, CatalogDynamicTable]:
        with self.store.transaction() as rows:
            rows.get_database(database)
            columns = ENTRIES.table.c
            query = select(columns.name, columns.value).where(*rows.within(ENTRIES, database), columns.kind == _DYNAMIC)
            try:
                stored = rows.connection.execute(query.order_by(columns.name)).all()
            except ValueError as error:  # not JSON
                raise unreadable(f"a table of {database}", error) from error
        tables = {row.name: decode(_DYNAMIC, row.value, f"{database}.{row.name}") for row in stored}
        return {name: table for name, table in tables.items() if isinstance(table, CatalogDynamicTable)}

    def list_views(self, database: str) -> list[str]:
        return self._names_of(database, "view")

    def _names_of(self, database: str, kind: str) -> list[str]:
        with self.store.transaction() as rows:
            rows.get_database(database)
            query = select(ENTRIES.table.c.name).where(*rows.within(ENTRIES, database), ENTRIES.table.c.kind == kind)
            return sorted(rows.connection.scalars(query))

    def get_table(self, path: ObjectPath, version: str | None = None) -> AnyTable:
        return self.as_stored(path, *self.load(path), version)

    def as_stored(
        self, path: ObjectPath, entry: AnyTable | None, physical: PhysicalTable | None, version: str | None = None
    ) -> AnyTable:
        """Return the result of :meth:`get` for what :meth:`load` returned."""
        if physical is None and not delta.is_delta(entry):
            if entry is None or version is not None:
                raise no_table(self.name, path)
            return entry
        try:
            stored = physical.as_stored(entry, version) if physical is not None else delta.as_stored(entry, version)
        except UnsupportedError as error:
            raise UnsupportedError(f"{path} in catalog {self.name}: {error}") from error
        if stored is None:
            raise no_version(self.name, path, str(version))
        return stored

    def load(self, path: ObjectPath) -> tuple[AnyTable | None, PhysicalTable | None]:
        """Return the row and the Iceberg table of a path, at least one of which exists.

        :raises TableNotFoundError: when neither exists.
        :raises UnsupportedError: when it is a view of another engine.
        """
        with self.store.transaction() as rows:
            entry = _entry(rows, path)
        physical = self._physical.load(path) if entry is None or _is_iceberg(entry) else None
        if entry is None and physical is None:
            with self.store.transaction() as rows:
                rows.check_is_no_view(path)
            raise no_table(self.name, path)
        if entry is None:
            # The first refresh creates the row, then the table: both may have been created between the two reads.
            with self.store.transaction() as rows:
                entry = _entry(rows, path)
        return entry, physical

    def get_table_statistics(self, path: ObjectPath, spec: PartitionSpec | None = None) -> TableStatistics:
        entry, physical = self.load(path)
        if spec is not None:
            return self.get_partition(path, spec).statistics
        if physical is not None:
            return physical.statistics()
        return delta.statistics_of(entry) if delta.is_delta(entry) else TableStatistics()

    def get_column_statistics(self, path: ObjectPath) -> dict[str, ColumnStatistics]:
        _, physical = self.load(path)
        return physical.column_statistics() if physical is not None else {}

    def table_exists(self, path: ObjectPath) -> bool:
        with self.store.transaction() as rows:
            return _is_taken(rows, path)

    def location(self, path: ObjectPath, table_format: str) -> str | None:
        """Return the location in the row of a table of this package; ``None`` when there is none of that name and format."""
        with self.store.transaction() as rows:
            entry = _entry(rows, path)
        return entry.location if is_own(entry) and entry.format == table_format else None

    def _create_table(self, path: ObjectPath, table: AnyTable) -> None:
        row = {"database": path.database, "name": path.name, **encode(self._placed(path, table))}
        with self.store.transaction() as rows:
            if not rows.lock_database(path.database):
                raise no_database(rows.catalog, path.database)
            if not rows.exists(PHYSICAL, path) and rows.insert(ENTRIES.table, row):
                return
        raise table_taken(self.name, path)

    def change_table(self, path: ObjectPath, change: Callable[[AnyTable], AnyTable]) -> AnyTable:
        """Lock and replace the row.

        :raises UnsupportedError: when only PyIceberg knows the table.
        """
        with self.store.transaction() as rows:
            rows.lock_database(path.database)
            entry = _entry(rows, path)
            if entry is None:
                if rows.exists(PHYSICAL, path):
                    raise UnsupportedError(
                        f"{path} was made through Iceberg and not through catalog {rows.catalog}; alter it there."
                    )
                raise no_table(rows.catalog, path)
            table = self._placed(path, change(entry), entry)
            if type(entry) is not type(table):
                raise other_kind(rows.catalog, path, entry, table)
            rows.connection.execute(update(ENTRIES.table).where(*rows.at(ENTRIES, path)).values(encode(table)))
            return entry

    def _placed(self, path: ObjectPath, table: AnyTable, before: AnyTable | None = None) -> AnyTable:
        """Return a table with a unique location, if its format requires the entry to store it."""
        if not is_own(table):
            return table
        former = before.format if is_own(before) else None
        if former == table.format and table.location is not None:
            return table
        if is_placed_by_entry(table.format):
            return replace(table, location=self._new_location(path))
        return replace(table, location=None) if former is not None and is_placed_by_entry(former) else table

    def _new_location(self, path: ObjectPath) -> str:
        """Return a unique folder name without characters that need encoding, because readers differ in decoding ``%``."""
        database, name = (_ODD.sub("_", part)[:_LONGEST_NAME] for part in (path.database, path.name))
        return f"{self.warehouse.rstrip('/')}/{database}/{name}-{uuid4().hex}"

    def _rename_table(self, path: ObjectPath, new_name: str) -> None:
        renamed = ObjectPath(path.database, new_name)
        with self.store.transaction() as rows:
            rows.lock_database(path.database)
            if not _is_taken(rows, path):
                raise no_table(rows.catalog, path)
            rows.check_is_no_view(path)
            if _is_taken(rows, renamed):
                raise table_taken(rows.catalog, renamed)
            for register in (*TABLES, PARTITIONS):
                change = update(register.table).where(*rows.at(register, path)).values({register.name: new_name})
                rows.connection.execute(change)

    def _drop_table(self, path: ObjectPath) -> None:
        with self.store.transaction() as rows:
            rows.check_is_no_view(path)
            dropped = sum([rows.delete(register, path.database, path.name) for register in TABLES])
            rows.delete(PARTITIONS, path.database, path.name)
        if not dropped:
            raise no_table(self.name, path)


def described(rows: Rows, path: ObjectPath) -> tuple[AnyTable, Details]:
    """Return a table whose partitions are rows, locked until the end of the transaction.

    :raises TableNotFoundError: when it is missing.
    :raises UnsupportedError: when they are part of its Iceberg metadata.
    """
    rows.lock_database(path.database)
    entry = _entry(rows, path)
    if entry is None and not rows.exists(PHYSICAL, path):
        raise no_table(rows.catalog, path)
    if entry is None or _is_iceberg(entry):
        raise UnsupportedError(f"The partitions of {path} in catalog {rows.catalog} are those of its Iceberg metadata.")
    return entry, Details(rows, path)


def _entry(rows: Rows, path: ObjectPath) -> AnyTable | None:
    try:
        row = rows.connection.execute(select(ENTRIES.table).where(*rows.at(ENTRIES, path))).first()
    except ValueError as error:  # not JSON
        raise unreadable(path, error) from error
    return decode(row.kind, row.value, path) if row is not None else None


def _is_taken(rows: Rows, path: ObjectPath) -> bool:
    return any(rows.exists(register, path) for register in TABLES)


def _is_iceberg(entry: AnyTable) -> bool:
    return not isinstance(entry, CatalogView) and entry.format == "iceberg"


class SqlTablePartitions(SqlTables):
    """Partitions of tables; those of Iceberg tables cannot be changed here."""

    def get_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[CatalogPartition]:
        wanted = spec or {}
        entry, physical = self.load(path)
        keys = partition_keys(self.name, path, self.as_stored(path, entry, physical), wanted)
        if physical is not None:
            return physical.partitions(keys, wanted)
        if delta.is_delta(entry):
            return delta.partitions_of(entry, keys, wanted)
        with self.store.transaction() as rows:
            return [partition for partition in Details(rows, path).partitions() if wanted.items() <= partition.spec.items()]

    def create_partitions(
        self, path: ObjectPath, partitions: Sequence[CatalogPartition], *, ignore_if_exists: bool = False
    ) -> None:
        with self.store.transaction() as rows:
            table, details = described(rows, path)
            in_order = [replace(partition, spec=full_spec(rows.catalog, path, table, partition.spec)) for partition in partitions]
            taken = details.add_partitions(in_order)
            if taken and not ignore_if_exists:
                raise partition_taken(rows.catalog, path, taken[0].spec)  # rolls back

    def _alter_partition(self, path: ObjectPath, partition: CatalogPartition) -> None:
        with self._changed(path, partition.spec) as (details, current):
            details.replace_partition(replace(partition, spec=current.spec))

    def _drop_partition(self, path: ObjectPath, spec: PartitionSpec) -> None:
        with self._changed(path, spec) as (details, current):
            details.remove_partition(current.spec)

    @contextmanager
    def _changed(self, path: ObjectPath, spec: PartitionSpec) -> Iterator[tuple[Details, CatalogPartition]]:
        with self.store.transaction() as rows:
            details = Details(rows, path)
            try:
                table, _ = described(rows, path)
                current = details.partition(full_spec(rows.catalog, path, table, spec))
            except (TableNotFoundError, InvalidPartitionError):
                current = None
            if current is None:
                raise no_partition(rows.catalog, path, spec)
            yield details, current
