"""External Iceberg catalogs: their namespaces as databases, their tables and dynamic tables."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Self, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField
from pyiceberg.partitioning import PartitionSpec as IcebergSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from airflow_dynamic_tables.catalog.base import (
    DEFAULT_DATABASE,
    CatalogDefaults,
    CatalogEntry,
    database_taken,
    is_found,
    no_database,
    no_table,
    no_version,
    not_empty,
    other_kind,
    partition_keys,
    table_taken,
)
from airflow_dynamic_tables.catalog.iceberg.encoding import (
    adopted,
    check_kept,
    check_kind,
    column_statistics_of,
    from_iceberg,
    is_dynamic,
    partitions_of,
    properties_of,
    removed,
    server_of,
    statistics_of,
)
from airflow_dynamic_tables.catalog.operations import CatalogOfOperations
from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDatabase,
    CatalogDynamicTable,
    CatalogPartition,
    CatalogTable,
    ColumnStatistics,
    TableStatistics,
)
from airflow_dynamic_tables.clients.iceberg import revisions
from airflow_dynamic_tables.clients.iceberg.catalog import NEW_TABLE, damage_named, new_location
from airflow_dynamic_tables.clients.iceberg.schemas import key_fields, schema_of
from airflow_dynamic_tables.clients.iceberg.servers import IcebergServer
from airflow_dynamic_tables.clients.retrying import CONFLICTS, after_conflicts
from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.lineage import DatasetName
from airflow_dynamic_tables.core.partitions import PartitionSpec
from airflow_dynamic_tables.exceptions import (
    AlreadyExistsError,
    ConflictError,
    DatabaseNotFoundError,
    TableNotFoundError,
    UnsupportedError,
)

log = logging.getLogger(__name__)

_FOLDED = re.compile(r"[a-z0-9_]{1,128}", re.ASCII)
_NOT_IN_PATHS = re.compile(r"[/\x00-\x1f\x7f]")


class IcebergSession:
    """Connects on first use."""

    def __init__(self, server: IcebergServer) -> None:
        self.server = server
        self._tables: Catalog | None = None

    @property
    def catalog(self) -> str:
        """The catalog name for error messages."""
        return self.server.name

    @property
    def tables(self) -> Catalog:
        """PyIceberg's client.

        :raises CatalogUnavailableError: when the catalog cannot be reached.
        """
        if self._tables is None:
            self._tables = self.server.connect()
        return self._tables

    def close(self) -> None:
        """Close connections; idempotent."""
        if self._tables is not None:
            self._tables.close()
            self._tables = None

    @contextmanager
    def asking(self, database: str) -> Iterator[Catalog]:
        """Context for every request about a database or its content.

        :raises DatabaseNotFoundError: when there is no such database.
        :raises CatalogUnavailableError: when the catalog cannot be reached.
        """
        if not self.is_legal(database):
            raise no_database(self.catalog, database)
        try:
            with self.server.errors():
                yield self.tables
        except NoSuchNamespaceError as error:
            raise no_database(self.catalog, database) from error

    def is_legal(self, *names: str) -> bool:
        """Return whether the catalog keeps these names unchanged."""
        return all(self._why_not(name) is None for name in names)

    def check_name(self, what: str, name: str) -> None:
        """Check the name of a new object.

        :raises UnsupportedError: when the catalog would change the name, cannot hold it, or would split it into several names.
        """
        if why := self._why_not(name):
            raise UnsupportedError(
                f"Catalog {self.catalog} is an Iceberg catalog, where the name of a {what} {why}; choose another name than "
                f"{name!r}."
            )

    def _why_not(self, name: str) -> str | None:
        if "." in name:
            return "has no dots, for namespaces of several levels are not supported"
        if self.server.traits.folds_names and not _FOLDED.fullmatch(name):
            return "has at most 128 lower-case letters, digits and underscores"
        return "has no slashes and control characters" if not name or _NOT_IN_PATHS.search(name) else None


_OWN_COMMENT = "dynamic-tables.comment"
"""Property for the comment of an altered database in a metastore, because Hive never changes its own field."""

_TECHNICAL = {"location", "exists", "owner-type", "ownerType"}
"""Properties of a namespace that the catalog sets itself."""


class IcebergDatabases(CatalogOfOperations):
    """Namespaces; nested ones are neither listed nor found."""

    def __init__(self, name: str, server: IcebergServer, default_database: str = "default") -> None:
        super().__init__(name, default_database)
        self.session = IcebergSession(server)

    def list_databases(self) -> list[str]:
        with self.session.server.errors():
            listed = self.session.tables.list_namespaces()
        return sorted(names[0] for names in listed if len(names) == 1 and self.session.is_legal(names[0]))

    def get_database(self, database: str) -> CatalogDatabase:
        properties = self._properties(database)
        comment = properties.pop(self._comment, None)
        comment = properties.pop(_OWN_COMMENT, comment)
        return CatalogDatabase(comment or None, {key: text for key, text in properties.items() if key not in _TECHNICAL})

    def database_exists(self, database: str) -> bool:
        return is_found(DatabaseNotFoundError, self._properties, database)

    def _create_database(self, database: str, value: CatalogDatabase) -> None:
        self.session.check_name("database", database)
        comment = {self._comment: value.comment} if value.comment is not None else {}
        try:
            with self.session.asking(database) as tables:
                if tables.namespace_exists((database,)):
                    raise NamespaceAlreadyExistsError(database)
                tables.create_namespace((database,), {**value.properties, **comment})
        except NamespaceAlreadyExistsError as error:
            raise database_taken(self.session.catalog, database) from error

    def _alter_database(self, database: str, value: CatalogDatabase) -> None:
        before = self._properties(database)
        after = dict(value.properties)
        if value.comment is not None:
            after[_OWN_COMMENT if self._keeps_comment else self._comment] = value.comment
        elif self._keeps_comment:
            after[_OWN_COMMENT] = ""
        stay = _TECHNICAL | ({self._comment} if self._keeps_comment else set())
        with self.session.asking(database) as tables:
            tables.update_namespace_properties((database,), before.keys() - after.keys() - stay, after)

    def _drop_database(self, database: str, *, cascade: bool) -> None:
        try:
            with self.session.asking(database) as tables:
                tables.load_namespace_properties((database,))
                names = tables.list_tables((database,))
                if names and not cascade:
                    raise not_empty(self.session.catalog, database)
                for name in names:
                    self._forget_table(name)
                tables.drop_namespace((database,))
        except NamespaceNotEmptyError as error:
            raise not_empty(self.session.catalog, database) from error

    def _forget_table(self, name: tuple[str, ...]) -> None:
        try:
            self.session.tables.drop_table(name)
        except NoSuchTableError:
            return  # dropped concurrently

    def _properties(self, database: str) -> dict[str, str]:
        with self.session.asking(database) as tables:
            return {key: str(text) for key, text in tables.load_namespace_properties((database,)).items()}

    @property
    def _comment(self) -> str:
        return self.session.server.traits.comment

    @property
    def _keeps_comment(self) -> bool:
        return self.session.server.traits.keeps_comments


_T = TypeVar("_T")


class IcebergTables(IcebergDatabases):
    """Tables and dynamic tables; every change of their properties is a compare-and-swap."""

    def list_tables(self, database: str) -> list[str]:
        with self.session.asking(database) as tables:
            tables.load_namespace_properties((database,))  # some catalogs return no tables for a missing database
            return sorted(name[-1] for name in tables.list_tables((database,)))

    def list_dynamic_tables(self, database: str) -> list[str]:
        return [name for name, table in self._all(database) if is_dynamic(table.metadata)]

    def get_dynamic_tables(self, database: str) -> dict[str, CatalogDynamicTable]:
        values = {name: from_iceberg(table) for name, table in self._all(database) if is_dynamic(table.metadata)}
        return {name: value for name, value in values.items() if isinstance(value, CatalogDynamicTable)}

    def _all(self, database: str) -> Iterator[tuple[str, Table]]:
        """Yield the tables of a database; those that only other engines can read are logged and omitted."""
        for name in self.list_tables(database):
            try:
                table = self.load(ObjectPath(database, name))
            except TableNotFoundError:
                continue  # dropped concurrently
            except UnsupportedError as error:
                log.warning("%s", error)
                continue
            yield name, table

    def get_table(self, path: ObjectPath, version: str | None = None) -> AnyTable:
        physical = self.load(path)
        try:
            value = from_iceberg(physical, version)
        except UnsupportedError as error:
            raise UnsupportedError(f"{path} in catalog {self.session.catalog}: {error}") from error
        if value is None:
            raise no_version(self.session.catalog, path, str(version))
        return value

    def table_exists(self, path: ObjectPath) -> bool:
        return is_found(TableNotFoundError, self.load, path)

    def _create_table(self, path: ObjectPath, table: AnyTable) -> None:
        value = check_kind(self.session.catalog, path, table)
        self.session.check_name("table", path.name)
        is_table = isinstance(value, CatalogTable)
        try:
            with self.session.asking(path.database) as tables:
                tables.load_namespace_properties((path.database,))
                if tables.table_exists((path.database, path.name)):
                    raise TableAlreadyExistsError(path)
                schema = schema_of(value.columns) if is_table else Schema()
                made = tables.create_table(
                    (path.database, path.name),
                    schema,
                    location=value.location or new_location(tables, path),
                    partition_spec=_spec(schema, value.partition_keys) if schema.fields else IcebergSpec(),
                    properties={
                        **NEW_TABLE,
                        **properties_of(value),
                        revisions.REVISION: revisions.first_revision(),
                    },
                )
                self._settle(path, made, is_table=is_table)
        except (TableAlreadyExistsError, AlreadyExistsError) as error:
            raise table_taken(self.session.catalog, path) from error

    def _settle(self, path: ObjectPath, made: Table, *, is_table: bool) -> None:
        """Ensure that a new table can be changed later.

        :raises UnsupportedError: when the catalog does not preserve the required properties; then the table is removed.
        """
        try:
            check_kept(self.session.catalog, made.metadata)
            if not is_table:
                # Only the first change needs it, but adding it then could conflict with a refresh.
                with suppress(CommitFailedException, CommitStateUnknownException):
                    revisions.anchor(made)
        except UnsupportedError:
            self.session.tables.drop_table((path.database, path.name))
            raise

    def change_table(self, path: ObjectPath, change: Callable[[AnyTable], AnyTable]) -> AnyTable:

        def attempt(physical: Table) -> AnyTable:
            before = from_iceberg(physical)
            if before is None:
                raise no_table(self.session.catalog, path)
            after = check_kind(self.session.catalog, path, change(before))
            if type(before) is not type(after):
                raise other_kind(self.session.catalog, path, before, after)
            properties = properties_of(after)
            revisions.alter(physical, properties, removed(physical.properties, before, properties))
            return before

        return self._swapped(path, attempt)

    def adopt_table(self, path: ObjectPath, table: CatalogDynamicTable) -> bool:

        def attempt(physical: Table) -> bool:
            if is_dynamic(physical.metadata):
                return False
            revisions.alter(physical, properties_of(adopted(self.session.catalog, path, physical, table)), ())
            return True

        physical = self.load(path)
        if is_dynamic(physical.metadata):
            return False
        adopted(self.session.catalog, path, physical, table)  # fails before the tag is created
        return self._swapped(path, attempt)

    def _rename_table(self, path: ObjectPath, new_name: str) -> None:
        self.load(path)
        renamed = ObjectPath(path.database, new_name)
        self.session.check_name("table", new_name)
        try:
            with self.session.asking(path.database) as tables:
                if not self.session.server.traits.checks_new_names and self.table_exists(renamed):
                    raise TableAlreadyExistsError(renamed)
                tables.rename_table((path.database, path.name), (path.database, new_name))
        except (TableAlreadyExistsError, AlreadyExistsError) as error:
            raise table_taken(self.session.catalog, renamed) from error
        except CommitFailedException as error:
            raise ConflictError(f"{path} was changed by others meanwhile; rename it again. {error}") from error
        except NoSuchTableError as error:
            raise no_table(self.session.catalog, path) from error

    def _drop_table(self, path: ObjectPath) -> None:
        try:
            with self.session.asking(path.database) as tables:
                if not self.session.is_legal(path.name):
                    raise NoSuchTableError(path)
                tables.drop_table((path.database, path.name))
        except (DatabaseNotFoundError, NoSuchTableError) as error:
            raise no_table(self.session.catalog, path) from error

    def load(self, path: ObjectPath) -> Table:
        """Return a table as stored in the Iceberg catalog.

        :raises CatalogError: when it is not an Iceberg table, or its metadata cannot be read.
        :raises TableNotFoundError: when it or its database is missing.
        """
        if not self.session.is_legal(path.database, path.name):
            raise no_table(self.session.catalog, path)
        try:
            with self.session.server.errors(), damage_named(path, self.session.catalog):
                return self.session.tables.load_table((path.database, path.name))
        except NoSuchPropertyException as error:
            raise UnsupportedError(f"{path} in catalog {self.session.catalog} is no Iceberg table.") from error
        except NoSuchTableError as error:
            raise no_table(self.session.catalog, path) from error

    def store(self) -> IcebergStore:
        """The store of the tables, for their format."""
        return IcebergStore(self.session.catalog, self.session.tables, self.session.server.errors)

    def _swapped(self, path: ObjectPath, attempt: Callable[[Table], _T]) -> _T:
        """Read and change a table; retry after a concurrent write."""

        def once() -> _T:
            physical = self.load(path)
            with self.session.asking(path.database):
                if not revisions.is_anchored(physical.metadata):
                    revisions.anchor(physical)
                    physical = self.load(path)
                return attempt(physical)

        try:
            return after_conflicts(CommitFailedException)(once)
        except CommitFailedException as error:
            raise ConflictError(f"{path} was changed by others {CONFLICTS} times meanwhile; try again.") from error


def _spec(schema: Schema, keys: tuple[str, ...]) -> IcebergSpec:
    fields = [
        PartitionField(key.source.field_id, PARTITION_FIELD_ID_START + number, key.transform, key.name)
        for number, key in enumerate(key_fields(schema, keys))
    ]
    return IcebergSpec(*fields)


class IcebergCatalog(IcebergTables):
    """Namespaces and Iceberg tables of a REST catalog, a Hive metastore, Glue or a database.

    Partitions and statistics come from the tables' own metadata and cannot be changed here; views and functions are
    unsupported.
    """

    publishes_drafts = True

    @classmethod
    def from_entry(cls, entry: CatalogEntry, defaults: CatalogDefaults) -> Self:  # noqa: ARG003 - it needs none
        return cls(entry.name, server_of(entry), entry.default_database or DEFAULT_DATABASE)

    def open(self) -> None:
        """Connect, and create the default database if it is missing."""
        self.create_database(self.default_database, CatalogDatabase(), ignore_if_exists=True)

    def close(self) -> None:
        """Close connections."""
        self.session.close()

    def stores(self) -> tuple[IcebergStore]:
        return (self.store(),)

    def dataset_names(self, path: ObjectPath, location: str | None) -> tuple[DatasetName, ...]:
        symlink = self.session.server.symlink(path)
        return *super().dataset_names(path, location), *([symlink] if symlink is not None else [])

    def check_path(self, path: ObjectPath) -> None:
        self.session.check_name("database", path.database)
        self.session.check_name("table", path.name)

    def get_partitions(self, path: ObjectPath, spec: PartitionSpec | None = None) -> list[CatalogPartition]:
        wanted: Mapping[str, str] = spec or {}
        keys = partition_keys(self.name, path, self.get_table(path), wanted)
        return partitions_of(self.load(path), keys, wanted)

    def get_table_statistics(self, path: ObjectPath, spec: PartitionSpec | None = None) -> TableStatistics:
        return statistics_of(self.load(path)) if spec is None else self.get_partition(path, spec).statistics

    def get_column_statistics(self, path: ObjectPath) -> dict[str, ColumnStatistics]:
        return column_statistics_of(self.load(path))
