"""Comparing a definition with its table: what an ordinary refresh would refuse, as far as the text of a query tells."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.tables.schema import Column, TableLayout
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.queries.text import analyse
from airflow_dynamic_tables.exceptions import NotFoundError, SchemaEvolutionError
from airflow_dynamic_tables.services.tables.lifecycle import check_format
from airflow_dynamic_tables.services.workspace import Workspace


def misfit(workspace: Workspace, table: DynamicTable) -> str | None:
    """Why an ordinary refresh of a table would surely be refused; ``None`` when nothing is known that speaks against it.

    Looked at are the format, the partition keys, and the names of the columns where the query tells all of them.

    :raises CatalogUnavailableError: when the catalog cannot be reached.
    """
    identifier = table.identifier
    try:
        entry = workspace.catalog(identifier.catalog).get_table(identifier.path)
    except NotFoundError:
        return None
    if not isinstance(entry, CatalogDynamicTable):
        return None
    try:
        check_format(workspace, identifier, entry.format, table.format)
        layout = workspace.table(identifier, entry.format).layout()
        if layout is not None:
            layout.check_keys(identifier, table.partition_keys)
            _check_names(layout, table)
    except SchemaEvolutionError as error:
        return str(error)
    return None


def _check_names(layout: TableLayout, table: DynamicTable) -> None:
    """Check that all columns are where they were, whatever their types.

    :raises SchemaEvolutionError: when one is not.
    """
    names = analyse(table.expanded_query).outputs
    if names is None:
        return
    known = [name for name in names if name is not None]
    if len(known) == len(names) == len({name.lower() for name in known}):
        layout.evolved(_columns(layout, known))


def _columns(layout: TableLayout, names: Sequence[str]) -> list[Column]:
    """Columns of these names; those that the table has, in whatever case, as it has them."""
    present = {column.name.lower(): column for column in layout.columns}
    return [present.get(name.lower(), Column(name, "of a type that Spark decides")) for name in names]
