"""The types of catalogs: a new one is one folder, and one line here."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module

from airflow_dynamic_tables.catalog.base import CatalogEntry, Defaults, ReadableCatalog
from airflow_dynamic_tables.clients.connections import Connection
from airflow_dynamic_tables.core.identifiers import check_name
from airflow_dynamic_tables.core.tables.formats import CatalogFormats
from airflow_dynamic_tables.exceptions import ConfigurationError, MissingExtraError

_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class CatalogType:
    """One type of catalog.

    ``path`` is ``module:class`` within ``airflow_dynamic_tables.catalog``, which is imported on use: PyIceberg, SQLAlchemy and
    Thrift take long to import, and Airflow imports this module whenever it parses a DAG file. ``params`` are its connection
    parameters, of which a connection with a host gives the first, as a URL of ``scheme``; ``aliases`` are other names of them.
    ``extra`` is the extra of this package that it needs. With ``is_open`` it takes any other parameter, too; ``of_connection``
    gives those that a connection says, which must not contradict those of the entry. Dynamic tables have one of ``formats``
    there, or with ``atomicity: none`` one of ``stepwise``; without any, nothing is known of that.
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

        :raises MissingExtraError: when what it needs is not installed.
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
    """What a connection of type ``iceberg`` says, as Airflow's own provider reads it.

    :raises ConfigurationError: when half of a credential is missing, without which that provider goes on without any.
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
    "jdbc": CatalogType("jdbc.catalog:JdbcCatalog", ("url", "warehouse", "lock-timeout"), "postgresql", formats=("jdbc",)),
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
"""What somebody calls a type who knows what is behind it."""


def formats_in(kind: str) -> CatalogFormats | None:
    """The formats that dynamic tables may have in catalogs of a type; ``None`` when nothing is known of that."""
    traits = CATALOG_TYPES[kind]
    return CatalogFormats(kind, traits.formats, traits.stepwise) if traits.formats else None


def make_catalog(entry: CatalogEntry, defaults: Defaults) -> ReadableCatalog:
    """A catalog with its secrets; connects to nothing.

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


def _of_connection(entry: CatalogEntry, kind: CatalogType, defaults: Defaults) -> dict[str, str]:
    """The parameters that the catalog's Airflow connection gives."""
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
