"""The types of catalogs: their connection parameters, and how one is made of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from airflow_dynamic_tables.catalog.base import ReadableCatalog
from airflow_dynamic_tables.catalog.memory import MemoryCatalog
from airflow_dynamic_tables.clients.connections import Connections, environment_connections
from airflow_dynamic_tables.exceptions import ConfigurationError

DEFAULT_DATABASE = "default"
_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a ``sql`` catalog uses that names no ``url`` or ``warehouse`` itself; its warehouse is a folder of this one.

    ``connections`` finds the Airflow connections that catalogs name by ``conn-id``.
    """

    database_url: str
    warehouse: str
    connections: Connections = field(default_factory=lambda: environment_connections(os.environ))


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One catalog as it was declared; relative paths in ``params`` start from ``base``."""

    name: str
    type: str = "sql"
    is_default: bool = False
    default_database: str | None = None
    conn_id: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    base: Path = Path()


def make_catalog(entry: CatalogEntry, defaults: Defaults) -> ReadableCatalog:
    """A catalog with its secrets; connects to nothing.

    :raises ConfigurationError: when a connection or a variable is missing, or a parameter is wrong.
    """
    kind = CATALOG_TYPES[entry.type]
    try:
        params = {key: _substitute(value) for key, value in entry.params.items()}
        if entry.conn_id is not None:
            connection = defaults.connections(entry.conn_id)
            of_connection = {key: connection.extra[key] for key in kind.params if key in connection.extra}
            if connection.host and kind.scheme:
                of_connection.setdefault(kind.params[0], connection.url(kind.scheme))
            params = {**of_connection, **params}
        return kind.make(replace(entry, params=params), defaults)
    except ConfigurationError as error:
        raise ConfigurationError(f"catalog {entry.name}: {error}") from error


def _substitute(value: str) -> str:
    def lookup(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise ConfigurationError(f"environment variable {match[1]} is not set.")
        return os.environ[match[1]]

    return _VARIABLE.sub(lookup, value)


# PyIceberg, SQLAlchemy and Thrift take long to import, and Airflow imports this module whenever it parses a DAG file.


def _memory(entry: CatalogEntry, _: Defaults) -> ReadableCatalog:
    return MemoryCatalog(entry.name, entry.default_database or DEFAULT_DATABASE)


def _sql(entry: CatalogEntry, defaults: Defaults) -> ReadableCatalog:
    from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
    from airflow_dynamic_tables.clients.database.engine import Database

    database = Database(_absolute_url(entry.params.get("url", defaults.database_url), entry.base))
    warehouse = _absolute(entry.params.get("warehouse", f"{defaults.warehouse}/{entry.name}"), entry.base)
    return SqlCatalog(entry.name, database, warehouse, entry.default_database or DEFAULT_DATABASE)


def _jdbc(entry: CatalogEntry, _: Defaults) -> ReadableCatalog:
    from airflow_dynamic_tables.catalog.jdbc.catalog import JdbcCatalog

    if "url" not in entry.params:
        raise ConfigurationError("needs connection parameter 'url', or a 'conn-id' whose connection has a host.")
    return JdbcCatalog(entry.name, entry.params["url"], entry.default_database)


def _hive(entry: CatalogEntry, _: Defaults) -> ReadableCatalog:
    from airflow_dynamic_tables.clients.metastore.client import Metastore

    if "uri" not in entry.params:
        raise ConfigurationError("needs connection parameter 'uri', or a 'conn-id' whose connection has a host.")
    metastore = Metastore(entry.params["uri"])  # first: it says which extra is missing

    from airflow_dynamic_tables.catalog.hive.catalog import HiveCatalog

    warehouse = _absolute(entry.params["warehouse"], entry.base) if "warehouse" in entry.params else None
    return HiveCatalog(entry.name, metastore, warehouse, entry.default_database or DEFAULT_DATABASE)


def _absolute(folder: str, base: Path) -> str:
    return folder if "://" in folder else f"file://{(base / folder).resolve()}"


def _absolute_url(url: str, base: Path) -> str:
    scheme, separator, path = url.partition(":///")
    is_file = scheme.startswith("sqlite") and path not in ("", ":memory:")
    return f"{scheme}{separator}{(base / path).resolve()}" if is_file else url


@dataclass(frozen=True, slots=True)
class CatalogType:
    """One type of catalog: its connection parameters, of which a connection with a host gives the first, as a URL."""

    make: Callable[[CatalogEntry, Defaults], ReadableCatalog]
    params: tuple[str, ...] = ()
    scheme: str | None = None


CATALOG_TYPES: Mapping[str, CatalogType] = {
    "sql": CatalogType(_sql, ("url", "warehouse"), "postgresql"),
    "memory": CatalogType(_memory),
    "hive": CatalogType(_hive, ("uri", "warehouse"), "thrift"),
    "jdbc": CatalogType(_jdbc, ("url",), "postgresql"),
}
