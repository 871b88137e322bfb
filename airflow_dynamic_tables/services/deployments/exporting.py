"""What catalogs keep of dynamic tables, as the definitions that they were registered with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.catalog.writable import ReadableWritableCatalog
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.normalised import restored
from airflow_dynamic_tables.exceptions import TableNotFoundError, UnsupportedError
from airflow_dynamic_tables.services.workspace import Workspace


def deployed_tables(workspace: Workspace, catalogs: Iterable[str]) -> Iterator[tuple[TableIdentifier, CatalogDynamicTable]]:
    """All dynamic tables of catalogs, sorted.

    :raises CatalogError: when a catalog cannot be asked: whoever asks for all wants no part.
    """
    for name in sorted(catalogs):
        catalog = workspace.readable(name)
        for database in catalog.list_databases() if isinstance(catalog, ReadableWritableCatalog) else ():
            for table, entry in catalog.get_dynamic_tables(database).items():
                yield TableIdentifier(name, database, table), entry


def deployed_table(workspace: Workspace, identifier: TableIdentifier) -> DynamicTable:
    """The definition that a table is deployed with.

    :raises TableNotFoundError: when its catalog has no dynamic table of that name.
    :raises UnsupportedError: when its catalog does not hold the definition.
    """
    try:
        entry = workspace.readable(identifier.catalog).get_table(identifier.path)
    except TableNotFoundError:
        raise TableNotFoundError(f"There is no dynamic table {identifier}.") from None
    if not isinstance(entry, CatalogDynamicTable):
        raise TableNotFoundError(f"{identifier} is no dynamic table.")
    return definition_of(identifier, entry)


def definition_of(identifier: TableIdentifier, entry: CatalogDynamicTable) -> DynamicTable:
    """The definition in the entry of a table, by the name that the table has now.

    :raises UnsupportedError: when there is none, or a later release wrote it.
    """
    if entry.definition is None:
        raise UnsupportedError(
            f"The catalog does not hold the definition of {identifier}: an early release registered it. Its next refresh, or "
            "dynamic-tables create, adds it."
        )
    return restored({**entry.definition, "name": str(identifier)})
