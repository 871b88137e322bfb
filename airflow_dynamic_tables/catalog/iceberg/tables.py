"""Tables and dynamic tables of an external Iceberg catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchPropertyException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from airflow_dynamic_tables.catalog.base import no_table, no_version, other_kind, table_taken
from airflow_dynamic_tables.catalog.iceberg.encoding import (
    adopted,
    check_kept,
    check_kind,
    from_iceberg,
    is_dynamic,
    properties_of,
    removed,
)
from airflow_dynamic_tables.catalog.iceberg.session import IcebergSession
from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDynamicTable, CatalogTable
from airflow_dynamic_tables.clients.iceberg import revisions
from airflow_dynamic_tables.clients.iceberg.catalog import NEW_TABLE, damage_named, new_location
from airflow_dynamic_tables.clients.iceberg.schemas import key_fields, schema_of
from airflow_dynamic_tables.clients.retrying import CONFLICTS, after_conflicts
from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.exceptions import (
    AlreadyExistsError,
    ConflictError,
    DatabaseNotFoundError,
    TableNotFoundError,
    UnsupportedError,
)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class IcebergTables:
    """Tables and dynamic tables; every change of their properties is a compare-and-swap."""

    session: IcebergSession

    def names(self, database: str) -> list[str]:
        """Return the names of tables and dynamic tables, sorted."""
        with self.session.asking(database) as tables:
            tables.load_namespace_properties((database,))  # some catalogs return no tables for a missing database
            return sorted(name[-1] for name in tables.list_tables((database,)))

    def dynamic_names(self, database: str) -> list[str]:
        """Return the names of the dynamic tables, sorted."""
        return [*self.dynamic(database)]

    def dynamic(self, database: str) -> dict[str, CatalogDynamicTable]:
        """Return the dynamic tables; every table is loaded, because no Iceberg catalog can filter them."""
        values = {name: from_iceberg(table) for name, table in self._all(database) if is_dynamic(table.metadata)}
        return {name: value for name, value in values.items() if isinstance(value, CatalogDynamicTable)}

    def _all(self, database: str) -> Iterator[tuple[str, Table]]:
        for name in self.names(database):
            with suppress(TableNotFoundError):  # dropped concurrently
                yield name, self.load(ObjectPath(database, name))

    def get(self, path: ObjectPath, version: str | None = None) -> AnyTable:
        """Return a table as of a version."""
        physical = self.load(path)
        try:
            value = from_iceberg(physical, version)
        except UnsupportedError as error:
            raise UnsupportedError(f"{path} in catalog {self.session.catalog}: {error}") from error
        if value is None:
            raise no_version(self.session.catalog, path, str(version))
        return value

    def exists(self, path: ObjectPath) -> bool:
        """Return whether a table exists."""
        try:
            self.load(path)
        except TableNotFoundError:
            return False
        return True

    def create(self, path: ObjectPath, table: AnyTable) -> None:
        """Create an Iceberg table; that of a dynamic table has no columns and no version before the first commit."""
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
                    partition_spec=_spec(schema, value.partition_keys) if schema.fields else PartitionSpec(),
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

    def change(self, path: ObjectPath, change: Callable[[AnyTable], AnyTable]) -> AnyTable:
        """Replace the metadata of this package; columns and rows are owned by commits."""

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

    def adopt(self, path: ObjectPath, table: CatalogDynamicTable) -> bool:
        """Convert a table to a dynamic table; return whether it was not one before."""

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

    def rename(self, path: ObjectPath, new_name: str) -> None:
        """Rename a table; the files are not moved."""
        self.load(path)
        renamed = ObjectPath(path.database, new_name)
        self.session.check_name("table", new_name)
        try:
            with self.session.asking(path.database) as tables:
                if not self.session.server.traits.checks_new_names and self.exists(renamed):
                    raise TableAlreadyExistsError(renamed)
                tables.rename_table((path.database, path.name), (path.database, new_name))
        except (TableAlreadyExistsError, AlreadyExistsError) as error:
            raise table_taken(self.session.catalog, renamed) from error
        except CommitFailedException as error:
            raise ConflictError(f"{path} was changed by others meanwhile; rename it again. {error}") from error
        except NoSuchTableError as error:
            raise no_table(self.session.catalog, path) from error

    def drop(self, path: ObjectPath) -> None:
        """Drop a table, even if its metadata is missing; the files are kept."""
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
        """Read and change a table; retry after a concurrent write.

        :raises ConflictError: when every attempt conflicts.
        """

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


def _spec(schema: Schema, keys: tuple[str, ...]) -> PartitionSpec:
    fields = [
        PartitionField(key.source.field_id, PARTITION_FIELD_ID_START + number, key.transform, key.name)
        for number, key in enumerate(key_fields(schema, keys))
    ]
    return PartitionSpec(*fields)
