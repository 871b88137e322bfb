"""Columns of queries against what is deployed: which queries changed, what they read, and whether the rows fit the tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable, CatalogTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.tables.schema import Column, TableLayout, spark_ddl
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.definitions.returned_columns import ReturnedColumns, stored_type
from airflow_dynamic_tables.exceptions import DynamicTableError, SchemaEvolutionError, TableNotFoundError
from airflow_dynamic_tables.services.deployments.comparing import can_be_made_anew, changed_fields, other_rows
from airflow_dynamic_tables.services.deployments.deployed import Deployed
from airflow_dynamic_tables.services.deployments.values import Change, Difference
from airflow_dynamic_tables.services.workspace import Workspace


class DeployedColumns:
    """What catalogs know of columns. A catalog that cannot be asked is asked once, and knows none.

    :param workspace: ``None``: no catalog is asked.
    """

    def __init__(self, workspace: Workspace | None) -> None:
        self._workspace = workspace
        self._deployed = Deployed(workspace) if workspace is not None else None
        self.failures: dict[str, str] = {}

    def changed(self, definitions: Definitions) -> Collection[TableIdentifier]:
        """The tables that mean other rows than the deployed ones, and those that read them: they may name columns that go."""
        changed: set[TableIdentifier] = set()
        for table in definitions.topological():  # what a table reads comes before it
            if self._is_changed(table) or not changed.isdisjoint(table.upstream):
                changed.add(table.identifier)
        return changed

    def known(self, identifier: TableIdentifier) -> str | None:
        """The columns of a table as Spark DDL; ``None`` when its catalog does not know them."""
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
        """A warning for each changed table whose next refresh would be refused for the columns of its rows."""
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
    """A difference with what Spark says of the query: it is refused, or its rows do not fit the table."""
    mistake = returned.refused.get(table.identifier)
    if mistake is not None:
        return replace(found, is_possible=False, reason=str(mistake))
    answer = returned.returned.get(table.identifier)
    if answer is None or found.change not in (Change.DATA, Change.COLUMNS):
        return found
    try:
        entry = workspace.readable(table.identifier.catalog).get_table(table.identifier.path)
    except TableNotFoundError:  # it is renamed, and its refresh tells
        return found
    layout = workspace.table(table.identifier, entry.format).layout() if isinstance(entry, CatalogDynamicTable) else None
    why = misfit(layout, answer.columns) if layout is not None else None
    if layout is None or why is None or not isinstance(entry, CatalogDynamicTable):
        return found
    return replace(found, change=Change.REBUILD, reason=why, is_possible=can_be_made_anew(layout, entry, table))


def misfit(layout: TableLayout, columns: Iterable[Column]) -> str | None:
    """Why a refresh would refuse the rows of a query, if it would, as it would say it.

    :param columns: those that the query returns. Whether there are nulls in them only the rows tell.
    """
    try:
        layout.evolved([Column(column.name, stored_type(column.type), nullable=False) for column in columns])
    except SchemaEvolutionError as error:
        return str(error)
    return None
