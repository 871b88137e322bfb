"""The functions of a Hive metastore."""

from __future__ import annotations

import getpass
import json
from dataclasses import dataclass
from typing import Any

from hive_metastore.ttypes import Function, FunctionType, ResourceType, ResourceUri

from airflow_dynamic_tables.catalog.errors import function_taken, no_function
from airflow_dynamic_tables.catalog.hive.databases import HiveDatabases
from airflow_dynamic_tables.catalog.hive.session import MAX_NAME, Session, is_legal
from airflow_dynamic_tables.catalog.values import CatalogFunction
from airflow_dynamic_tables.clients.metastore.tables import PREFIX
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.exceptions import AlreadyExistsError, FunctionNotFoundError, NotFoundError

_OURS = PREFIX.replace(".", ":")
"""How the URI begins of the resource that holds what Hive has no place for."""


@dataclass(frozen=True, slots=True)
class HiveFunctions:
    """Functions by their names in lower case."""

    session: Session
    databases: HiveDatabases

    def names(self, database: str) -> list[str]:
        """Names of the functions of a database, sorted."""
        self.databases.load(database)
        return sorted(self.session.call("get_functions", database, "*"))

    def get(self, path: ObjectPath) -> CatalogFunction:
        """One function."""
        return _from_hive(self._load(path))

    def exists(self, path: ObjectPath) -> bool:
        """Whether there is a function of that name."""
        try:
            self._load(path)
        except FunctionNotFoundError:
            return False
        return True

    def create(self, path: ObjectPath, function: CatalogFunction, *, ignore_if_exists: bool = False) -> None:
        """Make a function."""
        self.databases.load(path.database)
        self.session.check_name("function", path.name.lower(), MAX_NAME)
        try:
            self.session.call("create_function", _to_hive(path, function))
        except AlreadyExistsError as error:
            if not ignore_if_exists:
                raise function_taken(self.session.catalog, path) from error

    def alter(self, path: ObjectPath, function: CatalogFunction, *, ignore_if_not_exists: bool = False) -> None:
        """Put another in its place; for a moment there is none."""
        if ignore_if_not_exists and not self.exists(path):
            return
        self._load(path)
        # The metastore's own alter_function leaves the jars as they were.
        self.session.call("drop_function", path.database, path.name.lower())
        self.session.call("create_function", _to_hive(path, function))

    def rename(self, path: ObjectPath, new_name: str, *, ignore_if_not_exists: bool = False) -> None:
        """Change the name."""
        if ignore_if_not_exists and not self.exists(path):
            return
        function = self._load(path)
        renamed = ObjectPath(path.database, new_name)
        self.session.check_name("function", new_name.lower(), MAX_NAME)
        if self.exists(renamed):
            raise function_taken(self.session.catalog, renamed)
        function.functionName = new_name.lower()
        self.session.call("alter_function", path.database, path.name.lower(), function)

    def drop(self, path: ObjectPath, *, ignore_if_not_exists: bool = False) -> None:
        """Drop a function."""
        if self.exists(path):
            self.session.call("drop_function", path.database, path.name.lower())
        elif not ignore_if_not_exists:
            raise no_function(self.session.catalog, path)

    def _load(self, path: ObjectPath) -> Function:
        if not is_legal(path.database, path.name.lower()):
            raise no_function(self.session.catalog, path)
        try:
            return self.session.call("get_function", path.database, path.name.lower())
        except NotFoundError as error:
            raise no_function(self.session.catalog, path) from error


def _to_hive(path: ObjectPath, function: CatalogFunction) -> Function:
    """A Java class with its jars as Hive and Spark know it; whatever else there is stands in a resource of our own."""
    properties = dict(function.properties)
    resources = [ResourceUri(ResourceType.JAR, jar) for jar in properties.pop("jars", "").split(",") if jar]
    if properties or function.language != "java":
        ours = json.dumps({"language": function.language, "properties": properties}, sort_keys=True)
        resources.append(ResourceUri(ResourceType.FILE, _OURS + ours))
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


def _from_hive(stored: Function) -> CatalogFunction:
    uris = [resource.uri for resource in stored.resourceUris or ()]
    ours: dict[str, Any] = next((json.loads(uri.removeprefix(_OURS)) for uri in uris if uri.startswith(_OURS)), {})
    jars = ",".join(uri for uri in uris if not uri.startswith(_OURS))
    properties = {**ours.get("properties", {}), **({"jars": jars} if jars else {})}
    return CatalogFunction(stored.className, ours.get("language", "java"), properties)
