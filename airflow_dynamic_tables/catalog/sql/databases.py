"""The databases of the ``sql`` catalog."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from sqlalchemy import delete, select, update

from airflow_dynamic_tables.catalog.errors import database_taken, no_database, not_empty
from airflow_dynamic_tables.catalog.sql.rows import DETAILS, FUNCTIONS, NAMESPACES, TABLES, Store
from airflow_dynamic_tables.catalog.values import CatalogDatabase
from airflow_dynamic_tables.clients.database.tables import databases


@dataclass(frozen=True, slots=True)
class SqlDatabases:
    """Databases as rows; what they hold moves and goes with them."""

    store: Store

    def names(self) -> list[str]:
        """Names of all databases, sorted."""
        with self.store.transaction() as rows:
            return sorted(rows.connection.scalars(select(databases.c.name).where(databases.c.catalog == rows.catalog)))

    def get(self, database: str) -> CatalogDatabase:
        """One database."""
        with self.store.transaction() as rows:
            return rows.get_database(database)

    def create(self, database: str, value: CatalogDatabase, *, ignore_if_exists: bool = False) -> None:
        """Insert a row."""
        with self.store.transaction() as rows:
            is_new = rows.insert(databases, {"name": database, "value": asdict(value)})
            if not is_new and not ignore_if_exists:
                raise database_taken(rows.catalog, database)

    def alter(self, database: str, value: CatalogDatabase, *, ignore_if_not_exists: bool = False) -> None:
        """Replace the value."""
        with self.store.transaction() as rows:
            change = update(databases).where(*rows.of_database(database)).values(value=asdict(value))
            if rows.connection.execute(change).rowcount == 0 and not ignore_if_not_exists:
                raise no_database(rows.catalog, database)

    def rename(self, database: str, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """Give it and all that it holds the new name; the files of its tables stay where they are."""
        with self.store.transaction() as rows:
            if not rows.lock_database(database):
                if ignore_if_not_exists:
                    return
                raise no_database(rows.catalog, database)
            value = asdict(rows.get_database(database))
            if not rows.insert(databases, {"name": new_name, "value": value}):
                raise database_taken(rows.catalog, new_name)

            for register in (*TABLES, *DETAILS, FUNCTIONS, NAMESPACES):
                move = update(register.table).where(*rows.within(register, database)).values({register.database: new_name})
                rows.connection.execute(move)
            rows.connection.execute(delete(databases).where(*rows.of_database(database)))

    def drop(self, database: str, *, ignore_if_not_exists: bool = False, cascade: bool = False) -> None:
        """Delete it and, with ``cascade``, all that it holds."""
        with self.store.transaction() as rows:
            if not rows.lock_database(database):
                if ignore_if_not_exists:
                    return
                raise no_database(rows.catalog, database)
            dropped = sum([rows.delete(register, database) for register in (*TABLES, FUNCTIONS)])
            if dropped and not cascade:
                raise not_empty(rows.catalog, database)  # which rolls back

            for register in (*DETAILS, NAMESPACES):
                rows.delete(register, database)
            rows.connection.execute(delete(databases).where(*rows.of_database(database)))
