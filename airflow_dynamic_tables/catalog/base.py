"""Catalogs: what they hold and what they can do (FLIP-30).

Names are case-sensitive and may hold any character, except that functions are the same in any case of letters. What may be the
name of something new is decided above, by :func:`~airflow_dynamic_tables.core.identifiers.check_name`.
``ignore_if_exists`` / ``ignore_if_not_exists`` turn exactly that error into "nothing happened"; a missing database is always
an error on create. Reading what a catalog cannot hold finds nothing; writing it raises
:class:`~airflow_dynamic_tables.exceptions.UnsupportedError`, which is what the methods here do until a catalog overrides
them. Every method may raise :class:`~airflow_dynamic_tables.exceptions.CatalogUnavailableError`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from airflow_dynamic_tables.catalog.errors import no_function
from airflow_dynamic_tables.catalog.specs import one_partition, partition_keys
from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDatabase,
    CatalogDynamicTable,
    CatalogFunction,
    CatalogPartition,
    ColumnStatistics,
    TableStatistics,
)
from airflow_dynamic_tables.clients.connections import Connections, environment_connections
from airflow_dynamic_tables.clients.stores import Store
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.partitions import PartitionSpec
from airflow_dynamic_tables.exceptions import (
    ConfigurationError,
    FunctionNotFoundError,
    PartitionNotFoundError,
    TableNotFoundError,
)
from airflow_dynamic_tables.redaction import has_password

DEFAULT_DATABASE = "default"


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a ``sql`` catalog uses that names no ``url`` or ``warehouse`` itself; its warehouse is a folder of this one.

    ``connections`` finds the Airflow connections that catalogs name by ``conn-id``. ``private_files`` says that new files of
    SQLite are for their owner only.
    """

    database_url: str
    warehouse: str
    connections: Connections = field(default_factory=lambda: environment_connections(os.environ))
    private_files: bool = True


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One catalog as it was declared; relative paths in ``params`` start from ``base``.

    ``place`` is where: path, line and column; none for an embedded catalog.
    """

    name: str
    type: str = "sql"
    is_default: bool = False
    default_database: str | None = None
    conn_id: str | None = None
    params: Mapping[str, str] = field(default_factory=dict, repr=False)
    base: Path = Path()
    place: str | None = None

    def required(self, param: str) -> str:
        """A connection parameter that the catalog cannot do without.

        :raises ConfigurationError: when neither the entry nor its connection has it.
        """
        if param not in self.params:
            raise ConfigurationError(f"needs connection parameter {param!r}, or a 'conn-id' whose connection has a host.")
        return self.params[param]

    def folder(self, param: str) -> str | None:
        """The URI of the folder that a parameter names by a path or a URI; ``None`` when it is left out."""
        return absolute_uri(self.params[param], self.base) if param in self.params else None


def absolute_uri(folder: str, base: Path) -> str:
    """The URI of a folder: a URI stays, a path starts from ``base``.

    :raises ConfigurationError: when it holds a password.
    """
    if has_password(folder):
        raise ConfigurationError("A warehouse may not hold a password in its URI: all locations begin with it.")
    return folder if "://" in folder else f"file://{(base / folder).resolve()}"


class ReadableCatalog(ABC):
    """What every catalog can do."""

    def __init__(self, name: str, default_database: str = "default") -> None:
        self.name = name
        self.default_database = default_database

    @classmethod
    @abstractmethod
    def from_entry(cls, entry: CatalogEntry, defaults: Defaults) -> Self:
        """Make a catalog as it was declared, with secrets in its parameters; connects to nothing.

        :raises ConfigurationError: when a parameter is missing or wrong.
        """

    def open(self) -> None:
        """Connect; idempotent. Every other method may be called only between ``open`` and ``close``."""

    def close(self) -> None:
        """Let go of connections; idempotent."""

    def upgrade(self) -> None:
        """Bring the schema of its own state to this release, before ``open``; idempotent. Most catalogs have none."""

    def stores(self) -> tuple[Store, ...]:
        """Where its tables can lie, for the formats that work there; none when it keeps nothing but their metadata."""
        return ()

    def reading_many(self) -> AbstractContextManager[None]:
        """Around a look at many tables: a catalog that knows where all of them are asks for that once, and not again within."""
        return nullcontext()

    @abstractmethod
    def list_databases(self) -> list[str]:
        """Names of all databases, sorted."""

    @abstractmethod
    def get_database(self, database: str) -> CatalogDatabase:
        """One database.

        :raises DatabaseNotFoundError: when there is none of that name.
        """

    def database_exists(self, database: str) -> bool:
        """Whether there is a database of that name."""
        return database in self.list_databases()

    @abstractmethod
    def list_tables(self, database: str) -> list[str]:
        """Names of tables, dynamic tables and views of a database, sorted.

        :raises DatabaseNotFoundError: when the database is missing.
        """

    def list_dynamic_tables(self, database: str) -> list[str]:
        """Names of the dynamic tables of a database, sorted; none in a catalog that cannot hold any.

        :raises DatabaseNotFoundError: when the database is missing.
        """
        self.get_database(database)
        return []

    def get_dynamic_tables(self, database: str) -> dict[str, CatalogDynamicTable]:
        """The dynamic tables of a database by their names, sorted, as they were registered: for a look at many at once.

        What commits write (columns, partition keys, location, snapshot) may be missing or older than in :meth:`get_table`. A
        catalog that many tables are in asks for them together; one that is dropped meanwhile is left out.

        :raises DatabaseNotFoundError: when the database is missing.
        """
        tables: dict[str, CatalogDynamicTable] = {}
        for name in self.list_dynamic_tables(database):
            with suppress(TableNotFoundError):
                table = self.get_table(ObjectPath(database, name))
                if isinstance(table, CatalogDynamicTable):
                    tables[name] = table
        return tables

    def list_views(self, database: str) -> list[str]:
        """Names of the views of a database, sorted; none in a catalog that cannot hold any.

        :raises DatabaseNotFoundError: when the database is missing.
        """
        self.get_database(database)
        return []

    @abstractmethod
    def get_table(self, path: ObjectPath, version: str | None = None) -> AnyTable:
        """One table, dynamic table or view; with ``version``, its metadata as of that snapshot.

        :raises TableNotFoundError: when it, its database or that version is missing.
        """

    @abstractmethod
    def table_exists(self, path: ObjectPath) -> bool:
        """Whether there is a table, dynamic table or view of that name."""

    def get_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[CatalogPartition]:
        """The partitions that agree with ``spec``, in order of their values; one look, however many there are.

        :raises TableNotFoundError: when the table is missing.
        :raises InvalidPartitionError: when it is not partitioned or ``spec`` has an unknown key.
        """
        partition_keys(self.name, path, self.get_table(path), spec or {})
        return []

    def list_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[dict[str, str]]:
        """Specs of :meth:`get_partitions`, which see."""
        return [dict(partition.spec) for partition in self.get_partitions(path, spec)]

    def get_partition(self, path: ObjectPath, spec: PartitionSpec) -> CatalogPartition:
        """One partition.

        :raises PartitionNotFoundError: for every problem, as FLIP-30 has it.
        """
        return one_partition(self.name, path, spec, self.get_partitions)

    def partition_exists(self, path: ObjectPath, spec: PartitionSpec) -> bool:
        """Whether there is such a partition; not when its table is missing."""
        try:
            self.get_partition(path, spec)
        except PartitionNotFoundError:
            return False
        return True

    def list_functions(self, database: str) -> list[str]:
        """Names of the functions of a database in lower case, sorted; none in a catalog that cannot hold any.

        :raises DatabaseNotFoundError: when the database is missing.
        """
        self.get_database(database)
        return []

    def get_function(self, path: ObjectPath) -> CatalogFunction:
        """One function.

        :raises FunctionNotFoundError: when it or its database is missing.
        """
        raise no_function(self.name, path)

    def function_exists(self, path: ObjectPath) -> bool:
        """Whether there is a function of that name."""
        try:
            self.get_function(path)
        except FunctionNotFoundError:
            return False
        return True

    def get_table_statistics(self, path: ObjectPath, spec: PartitionSpec | None = None) -> TableStatistics:
        """Statistics of a table or of one of its partitions.

        :raises TableNotFoundError: when the table is missing.
        :raises PartitionNotFoundError: when the partition is missing.
        """
        self.get_table(path)
        return TableStatistics() if spec is None else self.get_partition(path, spec).statistics

    def get_column_statistics(self, path: ObjectPath) -> dict[str, ColumnStatistics]:
        """Statistics by column name; columns without any are left out.

        :raises TableNotFoundError: when the table is missing.
        """
        self.get_table(path)
        return {}
