"""What catalogs have of dynamic tables: a call for each database, whatever many tables are in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.catalog.writable import ReadableWritableCatalog
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import CatalogError, CatalogUnavailableError, ConfigurationError, DatabaseNotFoundError
from airflow_dynamic_tables.services.workspace import Workspace


class Deployed:
    """The dynamic tables of catalogs as they were registered, each database as it was when it was first asked for."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._databases: dict[tuple[str, str], Mapping[str, CatalogDynamicTable]] = {}
        self._failures: dict[str, CatalogError | ConfigurationError] = {}
        self._damaged: dict[TableIdentifier, CatalogError] = {}

    def entry(self, identifier: TableIdentifier) -> CatalogDynamicTable | None:
        """A dynamic table; ``None`` when there is none of that name.

        :raises CatalogError: when its catalog cannot be asked; it is asked once. Or when its entry cannot be read.
        :raises ConfigurationError: when its catalog is set up wrong.
        """
        found = self._tables(identifier.catalog, identifier.database).get(identifier.table)
        if identifier in self._damaged:
            raise self._damaged[identifier]
        return found

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
                self._databases[key] = self._read(catalog, database)
            except DatabaseNotFoundError:
                self._databases[key] = {}
            except (CatalogError, ConfigurationError) as error:
                self._failures[catalog] = error
                raise
        return self._databases[key]

    def _read(self, catalog: str, database: str) -> Mapping[str, CatalogDynamicTable]:
        """The dynamic tables of a database; one by one where an entry cannot be read, which hides no other."""
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
