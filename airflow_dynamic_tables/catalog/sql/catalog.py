"""A catalog in a SQL database; the physical tables are Iceberg, through PyIceberg's SqlCatalog on the same database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pyiceberg.catalog.sql import SqlCatalog as IcebergCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table as IcebergTable
from sqlalchemy import ColumnElement, Connection, select, update

from airflow_dynamic_tables.catalog.encoding import decode, encode
from airflow_dynamic_tables.catalog.sql.databases import SqlDatabases
from airflow_dynamic_tables.catalog.sql.details import Details
from airflow_dynamic_tables.catalog.sql.iceberg import (
    as_stored,
    column_statistics_of,
    open_iceberg,
    partitions_of,
    statistics_of,
    table_of,
)
from airflow_dynamic_tables.catalog.sql.rows import DETAILS, ENTRIES, PHYSICAL, TABLES, Register, insert
from airflow_dynamic_tables.catalog.values import AnyTable, CatalogPartition, CatalogView, ColumnStatistics, TableStatistics
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.files import as_os_errors
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.partitions import PartitionSpec
from airflow_dynamic_tables.exceptions import CatalogError, InvalidPartitionError, TableNotFoundError, UnsupportedError


class SqlCatalog(SqlDatabases):
    """Databases, tables, dynamic tables, views and functions in ``dt_`` tables.

    A table that somebody else made through PyIceberg in the same catalog is listed and read too. Partitions and statistics
    of Iceberg tables are those of their own metadata and cannot be changed here, others are kept as rows.

    :param warehouse: URI of the folder new Iceberg tables are placed in.
    """

    def __init__(self, name: str, database: Database, warehouse: str, default_database: str = "default") -> None:
        super().__init__(name, database, default_database)
        self.warehouse = warehouse
        self._iceberg: IcebergCatalog | None = None

    def open(self) -> None:
        """Connect, and make sure that the default database and PyIceberg's own tables exist."""
        super().open()
        self._iceberg = self.iceberg

    def close(self) -> None:
        """Let go of connections."""
        self._iceberg = None
        super().close()

    @property
    def iceberg(self) -> IcebergCatalog:
        """PyIceberg's catalog of the physical tables; its namespaces are the databases."""
        if self._iceberg is None:
            self._iceberg = open_iceberg(self.name, self._database, self.warehouse)
        return self._iceberg

    def list_tables(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_tables`."""
        with self._database.transaction() as connection:
            self._found_database(connection, database)
            names = (
                connection.scalars(select(register.table.c[register.name]).where(*register.within(self.name, database)))
                for register in TABLES
            )
            return sorted(set().union(*names))

    def list_dynamic_tables(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_dynamic_tables`."""
        return self._list_kind(database, "dynamic_table")

    def list_views(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_views`."""
        return self._list_kind(database, "view")

    def get_table(self, path: ObjectPath, version: str | None = None) -> AnyTable:
        """See :meth:`ReadableCatalog.get_table`."""
        entry, physical = self._found(path)
        if physical is None:
            if entry is None or version is not None:
                raise self._no_table(path)
            return entry
        try:
            stored = as_stored(entry, physical, version)
        except UnsupportedError as error:
            raise UnsupportedError(f"{path} in catalog {self.name}: {error}") from error
        if stored is None:
            raise TableNotFoundError(f"Table {path} in catalog {self.name} has no version {version}.")
        return stored

    def table_exists(self, path: ObjectPath) -> bool:
        """See :meth:`ReadableCatalog.table_exists`."""
        with self._database.transaction() as connection:
            return any(self._exists(connection, register, path) for register in TABLES)

    def create_table(self, path: ObjectPath, table: AnyTable, *, ignore_if_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.create_table`."""
        row = {"catalog": self.name, "database": path.database, "name": path.name, **encode(table)}
        with self._database.transaction() as connection:
            if not self._lock_database(connection, path.database):
                raise self._no_database(path.database)
            if not self._exists(connection, PHYSICAL, path) and insert(self._database, connection, ENTRIES.table, row):
                return
        if not ignore_if_exists:
            raise self._table_exists_already(path)

    def alter_table(self, path: ObjectPath, table: AnyTable, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.alter_table`.

        :raises UnsupportedError: when only PyIceberg knows the table.
        """
        with self._database.transaction() as connection:
            self._lock_database(connection, path.database)
            found = self._entry(connection, path)
            if found is None:
                if self._exists(connection, PHYSICAL, path):
                    raise UnsupportedError(
                        f"{path} was made through Iceberg and not through catalog {self.name}; alter it there."
                    )
                if ignore_if_not_exists:
                    return
                raise self._no_table(path)
            if type(found) is not type(table):
                raise self._other_kind(path, found, table)
            connection.execute(update(ENTRIES.table).where(*self._at(ENTRIES, path)).values(encode(table)))

    def rename_table(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.rename_table`."""
        renamed = ObjectPath(path.database, new_name)
        with self._database.transaction() as connection:
            self._lock_database(connection, path.database)
            if not any(self._exists(connection, register, path) for register in TABLES):
                if ignore_if_not_exists:
                    return
                raise self._no_table(path)
            if any(self._exists(connection, register, renamed) for register in TABLES):
                raise self._table_exists_already(renamed)
            for register in (*TABLES, *DETAILS):
                content = self._at(register, path)
                connection.execute(update(register.table).where(*content).values({register.name: new_name}))

    def drop_table(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_table`."""
        with self._database.transaction() as connection:
            dropped = sum([self._delete(connection, register, path.database, path.name) for register in TABLES])
            for register in DETAILS:
                self._delete(connection, register, path.database, path.name)
        if not dropped and not ignore_if_not_exists:
            raise self._no_table(path)

    def get_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[CatalogPartition]:
        """See :meth:`ReadableCatalog.get_partitions`."""
        entry, physical = self._found(path)
        wanted = spec or {}
        if physical is not None:
            return partitions_of(physical, self._partition_keys(path, entry or table_of(physical), wanted), wanted)
        if entry is not None:
            self._partition_keys(path, entry, wanted)
        with self._database.transaction() as connection:
            found = self._details(connection, path).partitions()
        return [partition for partition in found if wanted.items() <= partition.spec.items()]

    def create_partitions(
        self, path: ObjectPath, partitions: Sequence[CatalogPartition], *, ignore_if_exists: bool = False
    ) -> None:
        """See :meth:`ReadableWritableCatalog.create_partitions`."""
        with self._database.transaction() as connection:
            table, details = self._described(connection, path, "partitions")
            named = [replace(partition, spec=self._full_spec(path, table, partition.spec)) for partition in partitions]
            if (taken := details.add_partitions(named)) and not ignore_if_exists:
                raise self._partition_exists_already(path, taken[0].spec)  # which rolls back

    def alter_partition(self, path: ObjectPath, partition: CatalogPartition, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.alter_partition`."""
        with self._changed_partition(path, partition.spec, ignore_if_not_exists) as (details, found):
            if found is not None:
                details.replace_partition(replace(partition, spec=found.spec))

    def drop_partition(self, path: ObjectPath, spec: PartitionSpec, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_partition`."""
        with self._changed_partition(path, spec, ignore_if_not_exists) as (details, found):
            if found is not None:
                details.remove_partition(found.spec)

    def get_table_statistics(self, path: ObjectPath, spec: PartitionSpec | None = None) -> TableStatistics:
        """See :meth:`ReadableCatalog.get_table_statistics`."""
        _, physical = self._found(path)
        if spec is not None:
            return self.get_partition(path, spec).statistics
        if physical is not None:
            return statistics_of(physical)
        with self._database.transaction() as connection:
            return self._details(connection, path).statistics()[0]

    def get_column_statistics(self, path: ObjectPath) -> dict[str, ColumnStatistics]:
        """See :meth:`ReadableCatalog.get_column_statistics`."""
        _, physical = self._found(path)
        if physical is not None:
            return column_statistics_of(physical)
        with self._database.transaction() as connection:
            return self._details(connection, path).statistics()[1]

    def alter_table_statistics(self, path: ObjectPath, statistics: TableStatistics, spec: PartitionSpec | None = None) -> None:
        """See :meth:`ReadableWritableCatalog.alter_table_statistics`."""
        with self._database.transaction() as connection:
            _, details = self._described(connection, path, "statistics")
            if spec is None:
                details.write_statistics(statistics, details.statistics()[1])
        if spec is not None:
            self.alter_partition(path, replace(self.get_partition(path, spec), statistics=statistics))

    def alter_column_statistics(self, path: ObjectPath, statistics: Mapping[str, ColumnStatistics]) -> None:
        """See :meth:`ReadableWritableCatalog.alter_column_statistics`."""
        with self._database.transaction() as connection:
            _, details = self._described(connection, path, "statistics")
            details.write_statistics(details.statistics()[0], statistics)

    def _list_kind(self, database: str, kind: str) -> list[str]:
        query = select(ENTRIES.table.c.name).where(*ENTRIES.within(self.name, database), ENTRIES.table.c.kind == kind)
        with self._database.transaction() as connection:
            self._found_database(connection, database)
            return sorted(connection.scalars(query))

    def _found(self, path: ObjectPath) -> tuple[AnyTable | None, IcebergTable | None]:
        """The row and the Iceberg table of a path, of which one at least is there.

        :raises TableNotFoundError: when neither is.
        """
        with self._database.transaction() as connection:
            entry = self._entry(connection, path)
        physical = self._load(path) if entry is None or _is_iceberg(entry) else None
        if entry is None and physical is None:
            raise self._no_table(path)
        return entry, physical

    def _entry(self, connection: Connection, path: ObjectPath) -> AnyTable | None:
        row = connection.execute(select(ENTRIES.table).where(*self._at(ENTRIES, path))).first()
        return decode(row.kind, row.value) if row is not None else None

    def _load(self, path: ObjectPath) -> IcebergTable | None:
        try:
            with self._database.errors(), as_os_errors():
                return self.iceberg.load_table((path.database, path.name))
        except NoSuchTableError:
            return None
        except (OSError, ValueError) as error:
            raise CatalogError(f"The Iceberg metadata of {path} in catalog {self.name} cannot be read: {error}") from error

    def _described(self, connection: Connection, path: ObjectPath, what: str) -> tuple[AnyTable, Details]:
        """A table whose partitions and statistics are rows, locked until the end of the transaction."""
        self._lock_database(connection, path.database)
        entry = self._entry(connection, path)
        if entry is None and not self._exists(connection, PHYSICAL, path):
            raise self._no_table(path)
        if entry is None or _is_iceberg(entry):
            raise UnsupportedError(f"The {what} of {path} in catalog {self.name} are those of its Iceberg metadata.")
        return entry, self._details(connection, path)

    @contextmanager
    def _changed_partition(
        self, path: ObjectPath, spec: PartitionSpec, ignore_if_not_exists: bool = False
    ) -> Iterator[tuple[Details, CatalogPartition | None]]:
        """A transaction around a partition as it is; ``None`` when it is missing and that is ignored."""
        with self._database.transaction() as connection:
            try:
                table, details = self._described(connection, path, "partitions")
                found = details.partition(self._full_spec(path, table, spec))
            except (TableNotFoundError, InvalidPartitionError):
                details, found = self._details(connection, path), None
            if found is None and not ignore_if_not_exists:
                raise self._no_partition(path, spec)
            yield details, found

    def _details(self, connection: Connection, path: ObjectPath) -> Details:
        return Details(self._database, connection, self.name, path)

    def _at(self, register: Register, path: ObjectPath) -> tuple[ColumnElement[bool], ...]:
        return register.within(self.name, path.database, path.name)


def _is_iceberg(entry: AnyTable) -> bool:
    return not isinstance(entry, CatalogView) and entry.format == "iceberg"
