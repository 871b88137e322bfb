"""What catalogs hold, by name: listed, described, made and dropped. For the command line and the hook alike.

Names are text of one, two or three parts; what is missing is the default catalog and the default database.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDatabase,
    CatalogDynamicTable,
    CatalogFunction,
    CatalogPartition,
    CatalogView,
)
from airflow_dynamic_tables.catalog.writable import ReadableWritableCatalog
from airflow_dynamic_tables.core.drafts import is_draft
from airflow_dynamic_tables.core.identifiers import TableIdentifier, join_name, split_name
from airflow_dynamic_tables.core.tables.partitions import PartitionSpec
from airflow_dynamic_tables.exceptions import (
    ConfigurationError,
    DatabaseNotFoundError,
    FunctionNotFoundError,
    NotFoundError,
    TableNotFoundError,
)
from airflow_dynamic_tables.services.workspace import Workspace


@dataclass(frozen=True, slots=True)
class CatalogSummary:
    """One catalog at a glance, without connecting to it; ``problem`` is what is wrong with its set-up."""

    name: str
    type: str | None
    is_default: bool
    writable: bool | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ObjectSummary:
    """One object of a catalog: ``kind`` is ``database``, ``table``, ``dynamic table``, ``view`` or ``function``."""

    identifier: str
    kind: str


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """The result of creating, registering or dropping one object of a catalog."""

    identifier: str
    outcome: str
    """Such as ``created``, ``altered``, ``unchanged``, ``exists`` or ``dropped``."""


@dataclass(frozen=True, slots=True)
class ObjectDetails:
    """One object of a catalog in full; ``statistics`` are of a table and of its columns."""

    identifier: str
    kind: str
    value: CatalogDatabase | AnyTable | CatalogFunction
    statistics: Mapping[str, Any] | None = None


def catalogs(workspace: Workspace, mentioned: Iterable[str] = ()) -> list[CatalogSummary]:
    """All catalogs, sorted.

    :param mentioned: names that definitions use: without a catalogs file each is an embedded catalog.
    """
    return [_summary(workspace, name) for name in sorted({*workspace.catalogs.names(), *mentioned})]


def _summary(workspace: Workspace, name: str) -> CatalogSummary:
    is_default = name == workspace.catalogs.default_catalog
    try:
        catalog = workspace.catalogs.unopened(name)
    except (ConfigurationError, NotFoundError) as error:
        return CatalogSummary(name, None, is_default, None, str(error))
    kind = type(catalog).__name__.removesuffix("Catalog").lower()
    return CatalogSummary(name, kind, is_default, isinstance(catalog, ReadableWritableCatalog))


def databases(workspace: Workspace, catalog: str | None = None) -> list[ObjectSummary]:
    """The databases of a catalog."""
    name = catalog or workspace.catalogs.default_catalog
    names = workspace.readable(name).list_databases()
    return [ObjectSummary(join_name(name, database), "database") for database in names]


def tables(workspace: Workspace, database: str | None = None) -> list[ObjectSummary]:
    """The tables, dynamic tables and views of a database.

    :raises DatabaseNotFoundError: when it is missing.
    """
    catalog_name, name = database_named(workspace, database)
    catalog = workspace.readable(catalog_name)
    kinds = dict.fromkeys(catalog.list_views(name), "view") | dict.fromkeys(catalog.list_dynamic_tables(name), "dynamic table")
    names = [table for table in catalog.list_tables(name) if not is_draft(table)]
    return [ObjectSummary(join_name(catalog_name, name, table), kinds.get(table, "table")) for table in names]


def views(workspace: Workspace, database: str | None = None) -> list[ObjectSummary]:
    """The views of a database.

    :raises DatabaseNotFoundError: when it is missing.
    """
    catalog, name = database_named(workspace, database)
    return [ObjectSummary(join_name(catalog, name, view), "view") for view in workspace.readable(catalog).list_views(name)]


def functions(workspace: Workspace, database: str | None = None) -> list[ObjectSummary]:
    """The functions of a database.

    :raises DatabaseNotFoundError: when it is missing.
    """
    catalog, name = database_named(workspace, database)
    names = workspace.readable(catalog).list_functions(name)
    return [ObjectSummary(join_name(catalog, name, function), "function") for function in names]


def partitions(workspace: Workspace, table: str, spec: PartitionSpec | None = None) -> list[CatalogPartition]:
    """The partitions of a table that agree with a spec.

    :raises TableNotFoundError: when the table is missing.
    :raises InvalidPartitionError: when it is not partitioned or has no such key.
    """
    name = workspace.catalogs.resolve(table)
    return workspace.readable(name.catalog).get_partitions(name.path, spec)


def describe(workspace: Workspace, name: str) -> ObjectDetails:
    """The table, dynamic table, view, function or database of that name, the first that there is.

    :raises NotFoundError: when there is none of them.
    """
    identifier = workspace.catalogs.resolve(name)
    catalog = workspace.readable(identifier.catalog)
    try:
        return _described(workspace, identifier)
    except TableNotFoundError:
        pass
    try:
        return ObjectDetails(str(identifier), "function", catalog.get_function(identifier.path))
    except FunctionNotFoundError:
        pass
    if len(split_name(name)) < 3:
        owner, database = database_named(workspace, name)
        try:
            return ObjectDetails(join_name(owner, database), "database", workspace.readable(owner).get_database(database))
        except DatabaseNotFoundError:
            pass
    raise NotFoundError(f"There is no table, view, function or database {name}; in full a table would be {identifier}.")


def _described(workspace: Workspace, identifier: TableIdentifier) -> ObjectDetails:
    catalog = workspace.readable(identifier.catalog)
    table = catalog.get_table(identifier.path)
    if isinstance(table, CatalogView):
        return ObjectDetails(str(identifier), "view", table)
    columns = {name: asdict(column) for name, column in catalog.get_column_statistics(identifier.path).items()}
    statistics = {**asdict(catalog.get_table_statistics(identifier.path)), "columns": columns}
    kind = "dynamic table" if isinstance(table, CatalogDynamicTable) else "table"
    return ObjectDetails(str(identifier), kind, table, statistics)


def database_named(workspace: Workspace, name: str | None) -> tuple[str, str]:
    """Catalog and database of a name of two parts, one or none.

    :raises ConfigurationError: when it is no such name.
    """
    try:
        parts = split_name(name) if name else ()
    except ValueError as error:
        raise ConfigurationError(f"{error}.") from error
    if len(parts) > 2:
        raise ConfigurationError(f"{name!r} has {len(parts)} parts; a database has at most two: catalog.database.")
    catalog, database = (workspace.catalogs.default_catalog, workspace.catalogs.default_database)[: 2 - len(parts)] + parts
    return catalog, database
