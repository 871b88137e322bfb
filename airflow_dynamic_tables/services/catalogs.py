"""Catalog objects: create, drop, list and describe databases, views and functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_dynamic_tables.catalog.base import ReadableWritableCatalog
from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDatabase,
    CatalogDynamicTable,
    CatalogFunction,
    CatalogPartition,
    CatalogView,
)
from airflow_dynamic_tables.core.identifiers import TableIdentifier, is_draft, join_name, split_name
from airflow_dynamic_tables.core.partitions import PartitionSpec
from airflow_dynamic_tables.definitions.queries.editing import expand, unclear_names
from airflow_dynamic_tables.definitions.queries.text import QueryProblem, Target, analyse
from airflow_dynamic_tables.exceptions import (
    ConfigurationError,
    DatabaseNotFoundError,
    DefinitionError,
    FunctionNotFoundError,
    NotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from airflow_dynamic_tables.services.names import check_names
from airflow_dynamic_tables.services.queries import check_no_circle, name_functions, tables_named
from airflow_dynamic_tables.services.workspace import Workspace
from airflow_dynamic_tables.yaml_files.documents import line_and_column


def create_database(workspace: Workspace, name: str, value: CatalogDatabase, *, ignore_if_exists: bool = False) -> str:
    """Create a database; return its full name.

    :raises ConfigurationError: if the name is invalid.
    :raises DatabaseAlreadyExistsError: if the name is taken.
    """
    catalog, database = database_named(workspace, name)
    check_names(catalog, database)
    workspace.catalog(catalog).create_database(database, value, ignore_if_exists=ignore_if_exists)
    return join_name(catalog, database)


def drop_database(workspace: Workspace, name: str, *, ignore_if_not_exists: bool = False, cascade: bool = False) -> str:
    """Drop a database; return its full name.

    :raises DatabaseNotFoundError: if it does not exist.
    :raises NotEmptyError: if it is not empty and ``cascade`` is false.
    """
    catalog, database = database_named(workspace, name)
    workspace.catalog(catalog).drop_database(database, ignore_if_not_exists=ignore_if_not_exists, cascade=cascade)
    return join_name(catalog, database)


def create_function(workspace: Workspace, name: str, function: CatalogFunction, *, replace: bool = False) -> str:
    """Create a function; return its full name.

    :raises ConfigurationError: if the name is invalid, or a Python function is not given as ``module:callable``.
    :raises DatabaseNotFoundError: if its database does not exist.
    :raises FunctionAlreadyExistsError: if the name is taken.
    """
    module, colon, called = function.name.partition(":")
    if function.language == "python" and not (module and colon and called):
        raise ConfigurationError(f"{function.name!r} names no Python function; write module:callable.")
    if (declared := function.properties.get("deterministic", "false")) not in ("true", "false"):
        raise ConfigurationError(f"The property 'deterministic' of a function is 'true' or 'false', not {declared!r}.")
    identifier = workspace.catalogs.resolve(name)
    check_names(identifier.catalog, identifier.database, identifier.table)
    catalog = workspace.catalog(identifier.catalog)
    if replace and catalog.function_exists(identifier.path):
        catalog.alter_function(identifier.path, function)
    else:
        catalog.create_function(identifier.path, function)
    return str(identifier)


def drop_function(workspace: Workspace, name: str, *, ignore_if_not_exists: bool = False) -> str:
    """Drop a function; return its full name.

    :raises FunctionNotFoundError: if it does not exist.
    """
    identifier = workspace.catalogs.resolve(name)
    workspace.catalog(identifier.catalog).drop_function(identifier.path, ignore_if_not_exists=ignore_if_not_exists)
    return str(identifier)


@dataclass(frozen=True, slots=True)
class CatalogSummary:
    """A summary of one catalog, without connecting to it; ``problem`` is an error of its configuration."""

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
    """One object of a catalog in full; ``statistics`` are those of a table and of its columns."""

    identifier: str
    kind: str
    value: CatalogDatabase | AnyTable | CatalogFunction
    statistics: Mapping[str, Any] | None = None


def catalogs(workspace: Workspace, mentioned: Iterable[str] = ()) -> list[CatalogSummary]:
    """Return all catalogs, sorted.

    :param mentioned: catalog names used by definitions; without a catalogs file each is an embedded catalog.
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
    """Return the databases of a catalog."""
    name = catalog or workspace.catalogs.default_catalog
    names = workspace.readable(name).list_databases()
    return [ObjectSummary(join_name(name, database), "database") for database in names]


def tables(workspace: Workspace, database: str | None = None) -> list[ObjectSummary]:
    """Return the tables, dynamic tables and views of a database.

    :raises DatabaseNotFoundError: if it does not exist.
    """
    catalog_name, name = database_named(workspace, database)
    catalog = workspace.readable(catalog_name)
    kinds = dict.fromkeys(catalog.list_views(name), "view") | dict.fromkeys(catalog.list_dynamic_tables(name), "dynamic table")
    names = [table for table in catalog.list_tables(name) if not is_draft(table)]
    return [ObjectSummary(join_name(catalog_name, name, table), kinds.get(table, "table")) for table in names]


def views(workspace: Workspace, database: str | None = None) -> list[ObjectSummary]:
    """Return the views of a database.

    :raises DatabaseNotFoundError: if it does not exist.
    """
    catalog, name = database_named(workspace, database)
    return [ObjectSummary(join_name(catalog, name, view), "view") for view in workspace.readable(catalog).list_views(name)]


def functions(workspace: Workspace, database: str | None = None) -> list[ObjectSummary]:
    """Return the functions of a database.

    :raises DatabaseNotFoundError: if it does not exist.
    """
    catalog, name = database_named(workspace, database)
    names = workspace.readable(catalog).list_functions(name)
    return [ObjectSummary(join_name(catalog, name, function), "function") for function in names]


def partitions(workspace: Workspace, table: str, spec: PartitionSpec | None = None) -> list[CatalogPartition]:
    """Return the partitions of a table that match a spec.

    :raises TableNotFoundError: if the table does not exist.
    :raises InvalidPartitionError: if it is not partitioned or has no such key.
    """
    name = workspace.catalogs.resolve(table)
    return workspace.readable(name.catalog).get_partitions(name.path, spec)


def describe(workspace: Workspace, name: str) -> ObjectDetails:
    """Return the table, dynamic table, view, function or database with that name, in this order.

    :raises NotFoundError: if there is none.
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
    """Return the catalog and database of a name with at most two parts, with defaults for missing parts.

    :raises ConfigurationError: if it is not such a name.
    """
    try:
        parts = split_name(name) if name else ()
    except ValueError as error:
        raise ConfigurationError(f"{error}.") from error
    if len(parts) > 2:
        raise ConfigurationError(f"{name!r} has {len(parts)} parts; a database has at most two: catalog.database.")
    catalog, database = (workspace.catalogs.default_catalog, workspace.catalogs.default_database)[: 2 - len(parts)] + parts
    return catalog, database


def create_view(
    workspace: Workspace, view: TableIdentifier, query: str, comment: str | None = None, *, replace: bool = False
) -> CatalogView:
    """Create a view. Short names in its query refer to tables and functions of its catalog and database.

    :raises ConfigurationError: if the name is invalid.
    :raises DefinitionError: if the query is not a SELECT; each mistake begins with its line and column.
    :raises CatalogError: if the view would read itself.
    :raises DatabaseNotFoundError: if its database does not exist.
    :raises TableAlreadyExistsError: if the name is taken.
    """
    check_names(view.catalog, view.database, view.table)
    written = analyse(query)
    if written.problems:
        raise _mistakes(query, written.problems)
    if unclear := unclear_names(written, [Target(name, name.sql) for name in tables_named(written, view)]):
        raise _mistakes(query, unclear)

    analysis = analyse(name_functions(workspace, query, view))
    reads = tables_named(analysis, view)
    check_no_circle(workspace, view, reads)
    created = CatalogView(
        original_query=query.strip(),
        expanded_query=expand(analysis, [Target(name, name.sql) for name in reads]).strip(),
        comment=comment,
    )

    catalog = workspace.catalog(view.catalog)
    try:
        catalog.create_table(view.path, created)
    except TableAlreadyExistsError:
        if not replace:
            raise
        catalog.alter_table(view.path, created)
    return created


def _mistakes(query: str, problems: tuple[QueryProblem, ...]) -> DefinitionError:
    places = [":".join(map(str, line_and_column(query, problem.offset))) for problem in problems]
    return DefinitionError(tuple(f"{place}: {problem.message}" for place, problem in zip(places, problems, strict=True)))


def drop_view(workspace: Workspace, name: str, *, ignore_if_not_exists: bool = False) -> str:
    """Drop a view, but no other object; return its full name.

    :raises TableNotFoundError: if there is no view with that name.
    """
    view = workspace.catalogs.resolve(name)
    catalog = workspace.catalog(view.catalog)
    if catalog.table_exists(view.path) and not isinstance(catalog.get_table(view.path), CatalogView):
        raise TableNotFoundError(f"{view} is a table, not a view.")
    catalog.drop_table(view.path, ignore_if_not_exists=ignore_if_not_exists)
    return str(view)
