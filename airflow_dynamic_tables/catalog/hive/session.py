"""Calls to a Hive metastore on behalf of one catalog: legal names, error conversion, databases."""

from __future__ import annotations

import getpass
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hive_metastore.ttypes import (
    AlreadyExistsException,
    Database,
    EnvironmentContext,
    InvalidInputException,
    InvalidObjectException,
    InvalidOperationException,
    MetaException,
    NoSuchObjectException,
    UnknownDBException,
    UnknownTableException,
)

from airflow_dynamic_tables.catalog.base import database_taken, no_database, not_empty
from airflow_dynamic_tables.catalog.operations import CatalogOfPartitionsAndFunctions
from airflow_dynamic_tables.catalog.values import CatalogDatabase
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.metastore.tables import PREFIX
from airflow_dynamic_tables.exceptions import (
    AlreadyExistsError,
    CatalogError,
    NotEmptyError,
    NotFoundError,
    UnsupportedError,
)

MAX_DATABASE_NAME = 128
"""Maximum length of the name of a database in the metastore's own database."""

MAX_NAME = 256
"""Maximum length of the name of a table or function."""

KEEP_STATISTICS = EnvironmentContext({"DO_NOT_UPDATE_STATS": "true"})
"""Without it, the metastore lists every folder that an alteration refers to."""

_LEGAL = re.compile(r"[a-z0-9_]+", re.ASCII)

_ERRORS_BY_WORDS = {"is not empty": NotEmptyError, "already exists": AlreadyExistsError}
"""Messages of errors without a Thrift type, the same in every version from 2.3 on."""


def is_legal(*names: str) -> bool:
    """Return whether the metastore keeps these names unchanged: it folds them to lower case and accepts few characters."""
    return all(map(_LEGAL.fullmatch, names))


@dataclass(frozen=True, slots=True)
class HiveSession:
    """A metastore, and the name of the catalog for error messages."""

    catalog: str
    metastore: Metastore

    def call(self, method: str, *arguments: Any) -> Any:
        """Make one Thrift call, e.g. ``call("get_table", "sales", "revenue")``.

        :raises NotFoundError: when the named object does not exist.
        :raises AlreadyExistsError: when it already exists.
        :raises NotEmptyError: when a database to be dropped is not empty.
        :raises CatalogError: when the metastore refuses for another reason.
        :raises CatalogUnavailableError: when it cannot be reached.
        """
        with self.errors():
            return self.metastore.call(method, *arguments)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Convert the metastore's errors to those of this package."""
        try:
            yield
        except (NoSuchObjectException, UnknownDBException, UnknownTableException) as error:
            raise NotFoundError(f"Catalog {self.catalog}: {error.message}") from error
        except AlreadyExistsException as error:
            raise AlreadyExistsError(f"Catalog {self.catalog}: {error.message}") from error
        except (InvalidOperationException, InvalidObjectException, InvalidInputException, MetaException) as error:
            message = str(error.message)
            kind = next((kind for words, kind in _ERRORS_BY_WORDS.items() if words in message), CatalogError)
            raise kind(f"Catalog {self.catalog}: {message}") from error

    def check_name(self, what: str, name: str, longest: int) -> None:
        """Check the name of a new object.

        :raises UnsupportedError: when the metastore would change the name or cannot hold it.
        """
        if not is_legal(name) or len(name) > longest:
            raise UnsupportedError(
                f"Catalog {self.catalog} is a Hive metastore, where the name of a {what} has at most {longest} lower-case "
                f"letters, digits and underscores; choose another name than {name!r}."
            )


_COMMENT = f"{PREFIX}comment"


class HiveDatabases(CatalogOfPartitionsAndFunctions):
    """Databases; ``warehouse`` is the folder for new ones, ``None`` for the metastore's own."""

    def __init__(self, name: str, metastore: Metastore, warehouse: str | None = None, default_database: str = "default") -> None:
        super().__init__(name, default_database)
        self.metastore = metastore
        self.warehouse = warehouse.rstrip("/") if warehouse is not None else None
        self.session = HiveSession(name, metastore)

    def list_databases(self) -> list[str]:
        return sorted(self.session.call("get_all_databases"))

    def get_database(self, database: str) -> CatalogDatabase:
        stored = self.load_database(database)
        parameters = dict(stored.parameters or {})
        comment = parameters.pop(_COMMENT, None)
        return CatalogDatabase(stored.description or None if comment is None else json.loads(comment), parameters)

    def _create_database(self, database: str, value: CatalogDatabase) -> None:
        self.session.check_name("database", database, MAX_DATABASE_NAME)
        place = None if self.warehouse is None or database == "default" else f"{self.warehouse}/{database}.db"
        created = Database(database, value.comment, place, dict(value.properties), ownerName=getpass.getuser())
        try:
            self.session.call("create_database", created)
        except AlreadyExistsError as error:
            raise database_taken(self.name, database) from error

    def _alter_database(self, database: str, value: CatalogDatabase) -> None:
        stored = self.load_database(database)
        # Hive 2 and 3 never change the description of a database.
        comment = {} if (stored.description or None) == value.comment else {_COMMENT: json.dumps(value.comment)}
        stored.parameters = {**value.properties, **comment}
        self.session.call("alter_database", database, stored)

    def _drop_database(self, database: str, *, cascade: bool) -> None:
        self.load_database(database)  # a missing database would be reported as a NullPointerException
        try:
            self.session.call("drop_database", database, False, cascade)
        except NotEmptyError as error:
            raise not_empty(self.name, database) from error

    def load_database(self, database: str) -> Database:
        """Return a database as stored in the metastore.

        :raises DatabaseNotFoundError: when it is missing.
        """
        if not is_legal(database):
            raise no_database(self.name, database)
        try:
            return self.session.call("get_database", database)
        except NotFoundError as error:
            raise no_database(self.name, database) from error
