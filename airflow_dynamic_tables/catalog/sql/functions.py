"""The functions of the ``sql`` catalog."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from sqlalchemy import select, update

from airflow_dynamic_tables.catalog.errors import function_taken, no_database, no_function
from airflow_dynamic_tables.catalog.sql.rows import FUNCTIONS, Store
from airflow_dynamic_tables.catalog.values import CatalogFunction
from airflow_dynamic_tables.core.identifiers import ObjectPath


@dataclass(frozen=True, slots=True)
class SqlFunctions:
    """Functions as rows, by their names in lower case."""

    store: Store

    def names(self, database: str) -> list[str]:
        """Names of the functions of a database, sorted."""
        with self.store.transaction() as rows:
            rows.get_database(database)
            return sorted(rows.connection.scalars(select(FUNCTIONS.table.c.name).where(*rows.within(FUNCTIONS, database))))

    def get(self, path: ObjectPath) -> CatalogFunction:
        """One function."""
        with self.store.transaction() as rows:
            value = rows.connection.scalar(select(FUNCTIONS.table.c.value).where(*rows.at(FUNCTIONS, _folded(path))))
            if value is None:
                raise no_function(rows.catalog, path)
            return CatalogFunction(**value)

    def create(self, path: ObjectPath, function: CatalogFunction, *, ignore_if_exists: bool = False) -> None:
        """Insert a row."""
        with self.store.transaction() as rows:
            if not rows.lock_database(path.database):
                raise no_database(rows.catalog, path.database)
            row = {"database": path.database, "name": _folded(path).name, "value": asdict(function)}
            if not rows.insert(FUNCTIONS.table, row) and not ignore_if_exists:
                raise function_taken(rows.catalog, path)

    def alter(self, path: ObjectPath, function: CatalogFunction, *, ignore_if_not_exists: bool = False) -> None:
        """Replace the value."""
        with self.store.transaction() as rows:
            change = update(FUNCTIONS.table).where(*rows.at(FUNCTIONS, _folded(path))).values(value=asdict(function))
            if rows.connection.execute(change).rowcount == 0 and not ignore_if_not_exists:
                raise no_function(rows.catalog, path)

    def rename(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """Change the name."""
        renamed = _folded(ObjectPath(path.database, new_name))
        with self.store.transaction() as rows:
            rows.lock_database(path.database)
            if not rows.exists(FUNCTIONS, _folded(path)):
                if ignore_if_not_exists:
                    return
                raise no_function(rows.catalog, path)
            if rows.exists(FUNCTIONS, renamed):
                raise function_taken(rows.catalog, renamed)
            change = update(FUNCTIONS.table).where(*rows.at(FUNCTIONS, _folded(path))).values(name=renamed.name)
            rows.connection.execute(change)

    def drop(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """Delete the row."""
        with self.store.transaction() as rows:
            dropped = rows.delete(FUNCTIONS, path.database, _folded(path).name)
            if not dropped and not ignore_if_not_exists:
                raise no_function(rows.catalog, path)


def _folded(path: ObjectPath) -> ObjectPath:
    """Functions are the same in any case of letters."""
    return ObjectPath(path.database, path.name.lower())
