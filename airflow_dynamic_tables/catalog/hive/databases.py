"""The databases and functions of a Hive metastore, and how its errors become this package's."""

from __future__ import annotations

import getpass
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hive_metastore.ttypes import (
    AlreadyExistsException,
    Database,
    Function,
    FunctionType,
    InvalidInputException,
    InvalidObjectException,
    InvalidOperationException,
    MetaException,
    NoSuchObjectException,
    ResourceType,
    ResourceUri,
    UnknownDBException,
    UnknownTableException,
)

from airflow_dynamic_tables.catalog.base import ReadableWritableCatalog
from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogFunction
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.metastore.tables import PREFIX
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.exceptions import (
    AlreadyExistsError,
    CatalogError,
    DatabaseNotFoundError,
    NotEmptyError,
    NotFoundError,
    UnsupportedError,
)

MAX_DATABASE_NAME, MAX_NAME = 128, 256
_LEGAL = re.compile(r"[a-z0-9_]+", re.ASCII)
_COMMENT = f"{PREFIX}comment"
_FUNCTION = PREFIX.replace(".", ":")


class HiveDatabases(ReadableWritableCatalog):
    """Databases and functions.

    The metastore folds names to lower case and takes letters, digits and underscores only. A name that it would change is
    refused, and is never found.
    """

    def __init__(self, name: str, metastore: Metastore, warehouse: str | None = None, default_database: str = "default") -> None:
        super().__init__(name, default_database)
        self.metastore = metastore
        self._warehouse = warehouse.rstrip("/") if warehouse is not None else None

    def open(self) -> None:
        """Connect, and make sure that the default database exists."""
        self.create_database(self.default_database, CatalogDatabase(), ignore_if_exists=True)

    def close(self) -> None:
        """Let go of connections."""
        self.metastore.close()

    def list_databases(self) -> list[str]:
        """See :meth:`ReadableCatalog.list_databases`."""
        return sorted(self._call("get_all_databases"))

    def get_database(self, database: str) -> CatalogDatabase:
        """See :meth:`ReadableCatalog.get_database`."""
        found = self._database(database)
        parameters = dict(found.parameters or {})
        comment = parameters.pop(_COMMENT, None)
        return CatalogDatabase(found.description or None if comment is None else json.loads(comment), parameters)

    def create_database(self, database: str, value: CatalogDatabase, *, ignore_if_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.create_database`."""
        self._check_name("database", database, MAX_DATABASE_NAME)
        place = None if self._warehouse is None or database == "default" else f"{self._warehouse}/{database}.db"
        made = Database(database, value.comment, place, dict(value.properties), ownerName=getpass.getuser())
        try:
            self._call("create_database", made)
        except AlreadyExistsError as error:
            if not ignore_if_exists:
                raise self._database_exists_already(database) from error

    def alter_database(self, database: str, value: CatalogDatabase, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.alter_database`."""
        try:
            found = self._database(database)
        except DatabaseNotFoundError:
            if ignore_if_not_exists:
                return
            raise
        # Hive 2 and 3 never change the description of a database.
        changed = {} if (found.description or None) == value.comment else {_COMMENT: json.dumps(value.comment)}
        found.parameters = {**value.properties, **changed}
        self._call("alter_database", database, found)

    def drop_database(self, database: str, *, ignore_if_not_exists: bool = False, cascade: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_database`."""
        try:
            self._database(database)  # the metastore's own answer would be a NullPointerException
            self._call("drop_database", database, False, cascade)
        except NotEmptyError as error:
            raise self._not_empty(database) from error
        except DatabaseNotFoundError:
            if not ignore_if_not_exists:
                raise

    def list_functions(self, database: str) -> list[str]:
        """See :meth:`ReadableCatalog.list_functions`."""
        self._database(database)
        return sorted(self._call("get_functions", database, "*"))

    def get_function(self, path: ObjectPath) -> CatalogFunction:
        """See :meth:`ReadableCatalog.get_function`."""
        return _from_hive(self._function(path))

    def create_function(self, path: ObjectPath, function: CatalogFunction, *, ignore_if_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.create_function`."""
        self._database(path.database)
        self._check_name("function", path.name.lower(), MAX_NAME)
        try:
            self._call("create_function", _to_hive(path, function))
        except AlreadyExistsError as error:
            if not ignore_if_exists:
                raise self._function_exists_already(path) from error

    def alter_function(self, path: ObjectPath, function: CatalogFunction, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.alter_function`; for a moment there is none."""
        if ignore_if_not_exists and not self.function_exists(path):
            return
        self._function(path)
        # The metastore's own alter_function leaves the jars as they were.
        self._call("drop_function", path.database, path.name.lower())
        self._call("create_function", _to_hive(path, function))

    def rename_function(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.rename_function`."""
        if ignore_if_not_exists and not self.function_exists(path):
            return
        found, renamed = self._function(path), ObjectPath(path.database, new_name)
        self._check_name("function", new_name.lower(), MAX_NAME)
        if self.function_exists(renamed):
            raise self._function_exists_already(renamed)
        found.functionName = new_name.lower()
        self._call("alter_function", path.database, path.name.lower(), found)

    def drop_function(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """See :meth:`ReadableWritableCatalog.drop_function`."""
        if self.function_exists(path):
            self._call("drop_function", path.database, path.name.lower())
        elif not ignore_if_not_exists:
            raise self._no_function(path)

    def _call(self, method: str, *arguments: Any) -> Any:
        with self._errors():
            return self.metastore.call(method, *arguments)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Here, and nowhere else, what the metastore complains of becomes an error of ours."""
        try:
            yield
        except (NoSuchObjectException, UnknownDBException, UnknownTableException) as error:
            raise NotFoundError(f"Catalog {self.name}: {error.message}") from error
        except AlreadyExistsException as error:
            raise AlreadyExistsError(f"Catalog {self.name}: {error.message}") from error
        except (InvalidOperationException, InvalidObjectException, InvalidInputException, MetaException) as error:
            message = str(error.message)
            kind = NotEmptyError if "is not empty" in message else AlreadyExistsError if "already exists" in message else None
            raise (kind or CatalogError)(f"Catalog {self.name}: {message}") from error

    def _database(self, database: str) -> Database:
        if not self._is_legal(database):
            raise self._no_database(database)
        try:
            return self._call("get_database", database)
        except NotFoundError as error:
            raise self._no_database(database) from error

    def _function(self, path: ObjectPath) -> Function:
        if not self._is_legal(path.database, path.name.lower()):
            raise self._no_function(path)
        try:
            return self._call("get_function", path.database, path.name.lower())
        except NotFoundError as error:
            raise self._no_function(path) from error

    @staticmethod
    def _is_legal(*names: str) -> bool:
        return all(map(_LEGAL.fullmatch, names))

    def _check_name(self, what: str, name: str, longest: int) -> None:
        if not self._is_legal(name) or len(name) > longest:
            raise UnsupportedError(
                f"Catalog {self.name} is a Hive metastore, where the name of a {what} has at most {longest} lower-case letters, "
                f"digits and underscores; choose another name than {name!r}."
            )


def _to_hive(path: ObjectPath, function: CatalogFunction) -> Function:
    """A Java class with its jars as Hive and Spark know it; whatever else there is stands in a resource of our own."""
    properties = dict(function.properties)
    resources = [ResourceUri(ResourceType.JAR, jar) for jar in properties.pop("jars", "").split(",") if jar]
    if properties or function.language != "java":
        ours = json.dumps({"language": function.language, "properties": properties}, sort_keys=True)
        resources.append(ResourceUri(ResourceType.FILE, _FUNCTION + ours))
    return Function(
        functionName=path.name.lower(),
        dbName=path.database,
        className=function.name,
        ownerName=getpass.getuser(),
        ownerType=1,
        createTime=0,
        functionType=FunctionType.JAVA,
        resourceUris=resources,
    )


def _from_hive(found: Function) -> CatalogFunction:
    uris = [resource.uri for resource in found.resourceUris or ()]
    ours: dict[str, Any] = next((json.loads(uri.removeprefix(_FUNCTION)) for uri in uris if uri.startswith(_FUNCTION)), {})
    jars = ",".join(uri for uri in uris if not uri.startswith(_FUNCTION))
    properties = {**ours.get("properties", {}), **({"jars": jars} if jars else {})}
    return CatalogFunction(found.className, ours.get("language", "java"), properties)
