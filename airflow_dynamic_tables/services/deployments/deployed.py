"""What catalogs have of dynamic tables: a call for each database, whatever many tables are in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.catalog.writable import ReadableWritableCatalog
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import CatalogError, ConfigurationError, DatabaseNotFoundError
from airflow_dynamic_tables.services.workspace import Workspace


class Deployed:
    """The dynamic tables of catalogs as they were registered, each database as it was when it was first asked for."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._databases: dict[tuple[str, str], Mapping[str, CatalogDynamicTable]] = {}
        self._failures: dict[str, CatalogError | ConfigurationError] = {}

    def entry(self, identifier: TableIdentifier) -> CatalogDynamicTable | None:
        """A dynamic table; ``None`` when there is none of that name.

        :raises CatalogError: when its catalog cannot be asked; it is asked once.
        :raises ConfigurationError: when its catalog is set up wrong.
        """
        return self._tables(identifier.catalog, identifier.database).get(identifier.table)

    def everything(self, catalogs: Iterable[str]) -> Iterator[tuple[TableIdentifier, CatalogDynamicTable]]:
        """All dynamic tables of catalogs, sorted; of those that can be asked."""
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
                self._databases[key] = self._workspace.readable(catalog).get_dynamic_tables(database)
            except DatabaseNotFoundError:
                self._databases[key] = {}
            except (CatalogError, ConfigurationError) as error:
                self._failures[catalog] = error
                raise
        return self._databases[key]
