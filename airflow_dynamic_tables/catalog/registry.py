"""Registry of catalog types; implementations are imported lazily."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module

from airflow_dynamic_tables.catalog.base import CatalogDefaults, CatalogEntry, ReadableCatalog
from airflow_dynamic_tables.clients.connections import Connection
from airflow_dynamic_tables.core.formats import CatalogFormats
from airflow_dynamic_tables.core.identifiers import check_name
from airflow_dynamic_tables.exceptions import ConfigurationError, MissingExtraError

_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class CatalogType:
    """A type of catalog.

    ``path`` is ``module:class`` within ``airflow_dynamic_tables.catalog``, which is imported on use: PyIceberg, SQLAlchemy and
    Thrift take long to import, and Airflow imports this module whenever it parses a DAG file. ``params`` are its connection
    parameters; a connection with a host sets the first one to a URL of ``scheme``. ``aliases`` are other names of parameters.
    ``extra`` is the required extra of this package. With ``is_open``, any other parameter is accepted too; ``of_connection``
    returns the parameters from a connection, which must not contradict those of the entry. ``formats`` are the supported
    formats of dynamic tables, ``stepwise`` those supported with ``atomicity: none``; if both are empty, the formats are
    unknown.
    """

    path: str
    params: tuple[str, ...] = ()
    scheme: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    extra: str | None = None
    is_open: bool = False
    of_connection: Callable[[Connection], dict[str, str]] | None = None
    formats: tuple[str, ...] = ()
    stepwise: tuple[str, ...] = ()

    def load(self) -> type[ReadableCatalog]:
        """Import the class.

        :raises MissingExtraError: when its extra is not installed.
        """
        module, _, name = self.path.partition(":")
        try:
            catalog: type[ReadableCatalog] = getattr(import_module(f"airflow_dynamic_tables.catalog.{module}"), name)
        except ModuleNotFoundError as error:
            if self.extra is None:
                raise
            raise MissingExtraError(self.extra) from error
        return catalog


def _iceberg_properties(connection: Connection) -> dict[str, str]:
    """Return the parameters from a connection of type ``iceberg``, read as Airflow's own provider does.

    :raises ConfigurationError: when half of a credential is missing; that provider would ignore the credential.
    """
    properties = dict(connection.extra)
    if connection.host:
        properties["uri"] = connection.host.rstrip("/")
    if properties.setdefault("type", "rest") == "rest" and (connection.login or connection.password):
        if not (connection.login and connection.password):
            missing = "password (client secret)" if connection.login else "login (client id)"
            raise ConfigurationError(f"the connection has no {missing}, and a REST catalog needs both login and password.")
        properties["credential"] = f"{connection.login}:{connection.password}"
    return properties


CATALOG_TYPES: Mapping[str, CatalogType] = {
    "sql": CatalogType(
        "sql.catalog:SqlCatalog",
        ("url", "warehouse"),
        "postgresql",
        formats=("iceberg", "delta"),
        stepwise=("parquet", "orc"),
    ),
    "memory": CatalogType("sql.catalog:MemoryCatalog"),
    "hive": CatalogType(
        "hive.catalog:HiveCatalog",
        ("uri", "warehouse"),
        "thrift",
        {"hive.metastore.uris": "uri"},
        "hive",
        formats=("parquet", "orc", "delta"),
    ),
    "jdbc": CatalogType("postgres.catalog:JdbcCatalog", ("url", "warehouse", "lock-timeout"), "postgresql", formats=("jdbc",)),
    "iceberg": CatalogType(
        "iceberg.catalog:IcebergCatalog",
        ("type", "uri", "warehouse"),
        is_open=True,
        of_connection=_iceberg_properties,
        formats=("iceberg",),
    ),
}


CALLED_OTHERWISE: Mapping[str, str] = {
    **dict.fromkeys(("postgres", "postgresql"), "jdbc"),
    **dict.fromkeys(("rest", "glue", "polaris", "nessie", "lakekeeper", "unity"), "iceberg"),
    "delta": "sql' or 'type: hive",
    "metastore": "hive",
}
"""Other common names of a type, such as the name of the software behind it."""


def formats_in(kind: str) -> CatalogFormats | None:
    """Return the formats that dynamic tables may have in catalogs of a type; ``None`` when they are unknown."""
    traits = CATALOG_TYPES[kind]
    return CatalogFormats(kind, traits.formats, traits.stepwise) if traits.formats else None


def make_catalog(entry: CatalogEntry, defaults: CatalogDefaults) -> ReadableCatalog:
    """Create a catalog with its secrets; connects to nothing.

    :raises ConfigurationError: when a connection or a variable is missing, or a parameter is wrong.
    """
    try:
        check_name(entry.name)
    except ValueError as error:
        raise ConfigurationError(f"The name of a catalog is wrong: {error}.") from error
    try:
        kind = CATALOG_TYPES[entry.type]
        params = {**_of_connection(entry, kind, defaults), **{key: _substitute(value) for key, value in entry.params.items()}}
        return kind.load().from_entry(replace(entry, params=params), defaults)
    except ConfigurationError as error:
        place = f"{entry.place}: " if entry.place else ""
        raise ConfigurationError(f"{place}catalog {entry.name}: {error}") from error


def _of_connection(entry: CatalogEntry, kind: CatalogType, defaults: CatalogDefaults) -> dict[str, str]:
    """Return the parameters from the catalog's Airflow connection."""
    if entry.conn_id is None:
        return {}
    connection = defaults.connections(entry.conn_id)
    if kind.of_connection is not None:
        said = kind.of_connection(connection)
        for key in ("type", "uri"):
            if said.get(key, entry.params.get(key)) != entry.params.get(key, said.get(key)):
                raise ConfigurationError(
                    f"{key!r} of 'connection-params' contradicts connection {entry.conn_id!r}, whose secrets would go to another "
                    "server; leave one of them out."
                )
        return said
    params = {key: connection.extra[key] for key in kind.params if key in connection.extra}
    if connection.host and kind.scheme:
        params.setdefault(kind.params[0], connection.url(kind.scheme))
    return params


def _substitute(value: str) -> str:
    def lookup(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise ConfigurationError(f"environment variable {match[1]} is not set.")
        return os.environ[match[1]]

    return _VARIABLE.sub(lookup, value)
