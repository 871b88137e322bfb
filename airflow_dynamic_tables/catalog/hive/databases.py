"""The databases of a Hive metastore."""

from __future__ import annotations

import getpass
import json
from dataclasses import dataclass

from hive_metastore.ttypes import Database

from airflow_dynamic_tables.catalog.errors import database_taken, no_database, not_empty
from airflow_dynamic_tables.catalog.hive.session import MAX_DATABASE_NAME, Session, is_legal
from airflow_dynamic_tables.catalog.values import CatalogDatabase
from airflow_dynamic_tables.clients.metastore.tables import PREFIX
from airflow_dynamic_tables.exceptions import AlreadyExistsError, DatabaseNotFoundError, NotEmptyError, NotFoundError

_COMMENT = f"{PREFIX}comment"


@dataclass(frozen=True, slots=True)
class HiveDatabases:
    """Databases; ``warehouse`` is the folder that new ones are placed in, ``None`` for the metastore's own."""

    session: Session
    warehouse: str | None

    def names(self) -> list[str]:
        """Names of all databases, sorted."""
        return sorted(self.session.call("get_all_databases"))

    def get(self, database: str) -> CatalogDatabase:
        """One database."""
        stored = self.load(database)
        parameters = dict(stored.parameters or {})
        comment = parameters.pop(_COMMENT, None)
        return CatalogDatabase(stored.description or None if comment is None else json.loads(comment), parameters)

    def create(self, database: str, value: CatalogDatabase, *, ignore_if_exists: bool = False) -> None:
        """Make a database."""
        self.session.check_name("database", database, MAX_DATABASE_NAME)
        place = None if self.warehouse is None or database == "default" else f"{self.warehouse}/{database}.db"
        created = Database(database, value.comment, place, dict(value.properties), ownerName=getpass.getuser())
        try:
            self.session.call("create_database", created)
        except AlreadyExistsError as error:
            if not ignore_if_exists:
                raise database_taken(self.session.catalog, database) from error

    def alter(self, database: str, value: CatalogDatabase, *, ignore_if_not_exists: bool = False) -> None:
        """Replace comment and properties."""
        try:
            stored = self.load(database)
        except DatabaseNotFoundError:
            if ignore_if_not_exists:
                return
            raise
        # Hive 2 and 3 never change the description of a database.
        comment = {} if (stored.description or None) == value.comment else {_COMMENT: json.dumps(value.comment)}
        stored.parameters = {**value.properties, **comment}
        self.session.call("alter_database", database, stored)

    def drop(self, database: str, *, ignore_if_not_exists: bool = False, cascade: bool = False) -> None:
        """Drop a database."""
        try:
            self.load(database)  # the metastore's own answer would be a NullPointerException
            self.session.call("drop_database", database, False, cascade)
        except NotEmptyError as error:
            raise not_empty(self.session.catalog, database) from error
        except DatabaseNotFoundError:
            if not ignore_if_not_exists:
                raise

    def load(self, database: str) -> Database:
        """A database as the metastore has it.

        :raises DatabaseNotFoundError: when it is missing.
        """
        if not is_legal(database):
            raise no_database(self.session.catalog, database)
        try:
            return self.session.call("get_database", database)
        except NotFoundError as error:
            raise no_database(self.session.catalog, database) from error
