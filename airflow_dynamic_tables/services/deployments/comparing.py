"""Comparison of declared with deployed tables, reading deployed tables with one call per database."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from difflib import unified_diff
from typing import Any

from airflow_dynamic_tables.catalog.base import ReadableWritableCatalog
from airflow_dynamic_tables.catalog.values import CatalogDynamicTable, CatalogTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.refresh.expectations import Action
from airflow_dynamic_tables.core.refresh.spark_settings import row_settings
from airflow_dynamic_tables.core.schema import Column, Rebuild, TableLayout, spark_ddl
from airflow_dynamic_tables.definitions.model import KEYS, Decides, Definitions, DynamicTable
from airflow_dynamic_tables.definitions.queries.text import analyse, same_query
from airflow_dynamic_tables.definitions.returned_columns import ReturnedColumns, stored_type
from airflow_dynamic_tables.exceptions import (
    CatalogError,
    CatalogUnavailableError,
    ConfigurationError,
    DatabaseNotFoundError,
    DynamicTableError,
    SchemaEvolutionError,
    TableNotFoundError,
)
from airflow_dynamic_tables.services.deployments.values import Change, ColumnChange, Difference, FieldChange
from airflow_dynamic_tables.services.tables.entries import altered, declared_part
from airflow_dynamic_tables.services.workspace import Workspace


class Deployed:
    """The dynamic tables of catalogs as registered; each database is read once, on first use."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._databases: dict[tuple[str, str], Mapping[str, CatalogDynamicTable]] = {}
        self._failures: dict[str, CatalogError | ConfigurationError] = {}
        self._damaged: dict[TableIdentifier, CatalogError] = {}

    def entry(self, identifier: TableIdentifier) -> CatalogDynamicTable | None:
        """Return the entry of a dynamic table; ``None`` if there is none with that name.

        :raises CatalogError: if its catalog is unavailable, which is checked once, or its entry cannot be read.
        :raises ConfigurationError: if its catalog is misconfigured.
        """
        found = self._tables(identifier.catalog, identifier.database).get(identifier.table)
        if identifier in self._damaged:
            raise self._damaged[identifier]
        return found

    def everything(self, catalogs: Iterable[str]) -> Iterator[tuple[TableIdentifier, CatalogDynamicTable]]:
        """Yield all dynamic tables of catalogs, sorted; unavailable catalogs are omitted."""
        for name in sorted(catalogs):
            with suppress(CatalogError, ConfigurationError):
                catalog = self._workspace.readable(name)
                for database in catalog.list_databases() if isinstance(catalog, ReadableWritableCatalog) else ():
                    for table, entry in self._tables(name, database).items():
                        yield TableIdentifier(name, database, table), entry

    def _tables(self, catalog: str, database: str) -> Mapping[str, CatalogDynamicTable]:
        if catalog in self._failures:
            raise self._failures[catalog]
        key = (catalog, database)
        if key not in self._databases:
            try:
                self._databases[key] = self._read(catalog, database)
            except DatabaseNotFoundError:
                self._databases[key] = {}
            except (CatalogError, ConfigurationError) as error:
                self._failures[catalog] = error
                raise
        return self._databases[key]

    def _read(self, catalog: str, database: str) -> Mapping[str, CatalogDynamicTable]:
        """Read the dynamic tables of a database; one by one if an entry is unreadable, so that it does not hide others."""
        readable = self._workspace.readable(catalog)
        try:
            return readable.get_dynamic_tables(database)
        except (CatalogUnavailableError, DatabaseNotFoundError):
            raise
        except CatalogError:
            found: dict[str, CatalogDynamicTable] = {}
            for name in readable.list_dynamic_tables(database):
                identifier = TableIdentifier(catalog, database, name)
                try:
                    entry = readable.get_table(identifier.path)
                except CatalogError as error:
                    self._damaged[identifier] = error
                else:
                    if isinstance(entry, CatalogDynamicTable):
                        found[name] = entry
            return found


class DeployedColumns:
    """Columns recorded in catalogs. An unavailable catalog is queried once, and treated as empty.

    :param workspace: ``None``: no catalog is queried.
    """

    def __init__(self, workspace: Workspace | None) -> None:
        self._workspace = workspace
        self._deployed = Deployed(workspace) if workspace is not None else None
        self.failures: dict[str, str] = {}

    def changed(self, definitions: Definitions) -> Collection[TableIdentifier]:
        """Return the tables whose rows change, and their readers, which may refer to removed columns."""
        changed: set[TableIdentifier] = set()
        for table in definitions.topological():  # upstream tables come first
            if self._is_changed(table) or not changed.isdisjoint(table.upstream):
                changed.add(table.identifier)
        return changed

    def known(self, identifier: TableIdentifier) -> str | None:
        """Return the columns of a table as Spark DDL; ``None`` if its catalog does not have them."""
        if self._workspace is None or identifier.catalog in self.failures:
            return None
        columns: Iterable[Column] = ()
        try:
            entry = self._workspace.readable(identifier.catalog).get_table(identifier.path)
            columns = entry.columns if isinstance(entry, CatalogTable | CatalogDynamicTable) else ()
            if not columns and isinstance(entry, CatalogDynamicTable):
                layout = self._workspace.table(identifier, entry.format).layout()
                columns = layout.columns if layout is not None else ()
        except DynamicTableError:
            return None
        return spark_ddl(tuple(columns)) or None

    def misfits(self, tables: Mapping[TableIdentifier, DynamicTable], returned: ReturnedColumns) -> Iterator[Mistake]:
        """Yield a warning for each changed table whose next refresh would be refused because of its columns."""
        for identifier, found in returned.returned.items():
            entry = self._entry(identifier)
            if entry is None or self._workspace is None:
                continue
            table = tables[identifier]
            with suppress(DynamicTableError):
                layout = self._workspace.table(identifier, entry.format).layout()
                if layout is not None and (why := misfit(layout, found.columns)) is not None:
                    yield Mistake(table.path, table.line, 1, f"warning: {identifier}: {why}")

    def _is_changed(self, table: DynamicTable) -> bool:
        entry = self._entry(table.identifier)
        return entry is None or bool(other_rows(entry, table, changed_fields(entry, table)))

    def _entry(self, identifier: TableIdentifier) -> CatalogDynamicTable | None:
        try:
            return self._deployed.entry(identifier) if self._deployed is not None else None
        except DynamicTableError as error:
            self.failures[identifier.catalog] = str(error)
            return None


def refined(workspace: Workspace, found: Difference, table: DynamicTable, returned: ReturnedColumns) -> Difference:
    """Add Spark's analysis to a difference: whether the query is invalid, or its rows do not fit the table."""
    mistake = returned.refused.get(table.identifier)
    if mistake is not None:
        return replace(found, is_possible=False, reason=str(mistake))
    answer = returned.returned.get(table.identifier)
    if answer is None or found.change not in (Change.DATA, Change.COLUMNS):
        return found
    try:
        entry = workspace.readable(table.identifier.catalog).get_table(table.identifier.path)
    except TableNotFoundError:  # the table is renamed, and its refresh checks this
        return found
    layout = workspace.table(table.identifier, entry.format).layout() if isinstance(entry, CatalogDynamicTable) else None
    why = misfit(layout, answer.columns) if layout is not None else None
    if layout is None or why is None or not isinstance(entry, CatalogDynamicTable):
        return found
    return replace(found, change=Change.REBUILD, reason=why, is_possible=can_be_rebuilt(layout, entry, table))


def misfit(layout: TableLayout, columns: Iterable[Column]) -> str | None:
    """Return the error with which a refresh would refuse the rows of a query; ``None`` if it would not.

    :param columns: the columns that the query returns. Nulls are not checked, because they depend on the rows.
    """
    try:
        layout.evolved([Column(column.name, stored_type(column.type), nullable=False) for column in columns])
    except SchemaEvolutionError as error:
        return str(error)
    return None


_UNKNOWN = "of a type that Spark decides"
"""Type of a column that is unknown without Spark."""

THE_QUERY = "the query"
"""Display name of a changed query."""

_DECIDING = {
    "timezone": "the time zone",
    "partitioned_by": "the partition keys",
    "partition_keys": "the partition keys",
    "format": "the format",
}
_DECIDING |= {each.name: repr(each.name) for each in KEYS if each.key.decides is Decides.ROWS and each.name not in _DECIDING}
"""Keys of a definition, and fields of the catalog's entry, that determine the rows; with display names."""

_AS_IN_TABLES = {"tinyint": "int", "smallint": "int"}
"""Types that tables store for types that not every format has."""


def changed_fields(entry: CatalogDynamicTable, table: DynamicTable) -> tuple[FieldChange, ...]:
    """Return the changed fields of a definition, or if there are none, external changes of the catalog's entry."""
    wanted = altered(entry, table)
    if wanted == entry:
        return ()
    deployed, declared = _flat(declared_part(entry)), _flat(declared_part(wanted))
    names = sorted(deployed.keys() | declared.keys())
    changed = tuple(
        FieldChange(name, deployed.get(name), declared.get(name)) for name in names if deployed.get(name) != declared.get(name)
    )
    return changed or tuple(_changed_by_others(entry, wanted))


def _flat(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition with the resolved fields, which depend on other definitions, at the top level."""
    own = {name: value for name, value in definition.items() if name != "resolved"}
    return {**own, **{f"resolved.{name}": value for name, value in definition.get("resolved", {}).items()}}


def _changed_by_others(entry: CatalogDynamicTable, wanted: CatalogDynamicTable) -> Iterator[FieldChange]:
    for name in (field.name for field in fields(entry)):
        is_, shall = getattr(entry, name), getattr(wanted, name)
        if is_ != shall:
            yield FieldChange(name, is_, shall)


def other_rows(entry: CatalogDynamicTable, table: DynamicTable, changed: tuple[FieldChange, ...]) -> tuple[str, ...]:
    """Return display names of the changes that change the rows."""
    by_name = {change.name: change for change in changed}
    told: list[str] = []
    if not same_query(entry.expanded_query, table.expanded_query):
        told.append(THE_QUERY)
    told += [words for name, words in _DECIDING.items() if name in by_name]
    if "spark" in by_name and _deciding(by_name["spark"].deployed) != _deciding(by_name["spark"].declared):
        told.append("settings of Spark that decide what the query means")
    if "expectations" in by_name and _dropping(by_name["expectations"].deployed) != _dropping(by_name["expectations"].declared):
        told.append("expectations that drop rows")
    return tuple(told)


def _deciding(spark: Mapping[str, Any] | None) -> dict[str, Any]:
    return row_settings((spark or {}).get("conf", {}))


def _dropping(expectations: list[Mapping[str, Any]] | None) -> list[Mapping[str, Any]]:
    return [one for one in expectations or [] if one.get("action") == Action.DROP.value]


def query_difference(entry: CatalogDynamicTable, table: DynamicTable) -> str:
    """Return a line diff of the query; of its expanded form if only a view that it reads has changed."""
    before, now = entry.original_query, table.query
    if before == now:
        before, now = entry.expanded_query, table.expanded_query
    lines = unified_diff(before.splitlines(), now.splitlines(), "deployed", "declared", lineterm="")
    return "\n".join(lines)


def fitted(layout: TableLayout, entry: CatalogDynamicTable, table: DynamicTable) -> tuple[Change, str | None]:
    """Return whether the rows of a query fit a table, and why not, as far as known without Spark."""
    try:
        layout.check_keys(table.identifier, table.partition_keys)
        if (returned := _returned(layout, entry, table)) is not None:
            layout.evolved(returned)
    except SchemaEvolutionError as error:
        return Change.REBUILD, str(error)
    if returned is None:
        return Change.DATA, "the rows change, and only Spark can tell in which columns"
    return (Change.COLUMNS if len(returned) > len(layout.columns) else Change.DATA), None


def column_changes(layout: TableLayout, entry: CatalogDynamicTable, table: DynamicTable) -> tuple[ColumnChange, ...]:
    """Return the columns that are added, removed, or change their type."""
    returned = _returned(layout, entry, table)
    if returned is None:
        return ()
    before = {column.name: column.type for column in layout.columns}
    now = {column.name: column.type for column in returned}
    return tuple(
        ColumnChange(name, before.get(name), now.get(name)) for name in (before | now) if before.get(name) != now.get(name)
    )


def can_be_rebuilt(layout: TableLayout, entry: CatalogDynamicTable, table: DynamicTable) -> bool:
    """Return whether a full refresh can rebuild the table atomically, as far as known without Spark."""
    if entry.format != table.format or layout.rebuild is Rebuild.NOTHING:
        return False
    return layout.rebuild is Rebuild.EVERYTHING or layout.partition_keys == table.partition_keys


def _returned(layout: TableLayout, entry: CatalogDynamicTable, table: DynamicTable) -> list[Column] | None:
    """Return the columns of a query, with the table's types for existing ones; ``None`` if not all names are known."""
    analysis = analyse(table.expanded_query)
    names = [name for name in analysis.outputs or () if name is not None]
    if not names or len(names) != len(analysis.outputs or ()) or len(names) != len({name.lower() for name in names}):
        return None
    present = {column.name.lower(): column for column in layout.columns}
    earlier = _types(entry.expanded_query)
    types = analysis.types or (None,) * len(names)
    return [
        _column(name, kind, present.get(name.lower()), earlier.get(name.lower())) for name, kind in zip(names, types, strict=True)
    ]


def _types(query: str) -> dict[str, str]:
    """Return the column types that can be inferred from a query's text, by lower-case column name."""
    analysis = analyse(query)
    pairs = zip(analysis.outputs or (), analysis.types or (), strict=False)
    return {name.lower(): kind for name, kind in pairs if name is not None and kind is not None}


def _column(name: str, kind: str | None, present: Column | None, earlier: str | None) -> Column:
    if present is None:
        return Column(name, kind or _UNKNOWN)
    if kind in (None, earlier) or _AS_IN_TABLES.get(kind, kind) == _AS_IN_TABLES.get(present.type, present.type):
        return present
    return Column(present.name, kind, comment=present.comment)
