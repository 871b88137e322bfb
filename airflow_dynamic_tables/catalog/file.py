"""Catalog types, and the catalogs that a ``catalogs.yaml`` declares. Implementations are imported lazily."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from airflow_dynamic_tables.catalog.base import DEFAULT_DATABASE, CatalogDefaults, CatalogEntry, ReadableCatalog
from airflow_dynamic_tables.catalog.manager import CatalogManager
from airflow_dynamic_tables.clients.connections import Connection
from airflow_dynamic_tables.core.formats import CatalogFormats
from airflow_dynamic_tables.core.identifiers import check_name
from airflow_dynamic_tables.core.mistakes import Mistake, Mistakes, understood
from airflow_dynamic_tables.exceptions import ConfigurationError, DefinitionError, MissingExtraError
from airflow_dynamic_tables.yaml_files.documents import Document, Flag, Location, read_text
from airflow_dynamic_tables.yaml_files.parsing import parse_document

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
    "jdbc": CatalogType("postgres:JdbcCatalog", ("url", "warehouse", "lock-timeout"), "postgresql", formats=("jdbc",)),
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


_KEYS: Mapping[str, tuple[type, str]] = {
    "name": (str, "text"),
    "type": (str, "text"),
    "is-default": (Flag, "true or false"),
    "default-database": (str, "text"),
    "conn-id": (str, "text"),
    "connection-params": (dict, "a mapping"),
}
_ALIASES = {"default-db": "default-database"}
"""Keys of FLIP-30's example that have another name here."""


def embedded_catalogs(defaults: CatalogDefaults) -> CatalogManager:
    """Return the catalogs used without a file: every name is a ``sql`` catalog in the same database."""
    return CatalogManager(missing=lambda name: make_catalog(CatalogEntry(name), defaults))


def load_catalogs(path: Path, defaults: CatalogDefaults) -> CatalogManager:
    """Return the catalogs of a ``catalogs.yaml``; each is created, and its secrets looked up, on first use.

    A catalog has ``name``, ``type``, ``is-default``, ``default-database``, ``conn-id`` (an Airflow connection) and
    ``connection-params``, which override the connection; all keys but the name may also be below ``catalog``. ``${NAME}`` is
    an environment variable, so that the file contains no secrets.

    :raises DefinitionError: with all mistakes of the file.
    """
    entries = read_entries(path)
    chosen = _chosen(entries)
    manager = CatalogManager(chosen.name, chosen.default_database or DEFAULT_DATABASE)
    for entry in entries:
        manager.declare(entry.name, partial(make_catalog, entry, defaults))
    return manager


def default_names(path: Path | None) -> tuple[str, str]:
    """Return the default catalog and default database of the file; connects to nothing.

    :raises DefinitionError: with all mistakes of the file.
    """
    return names_and_formats(path)[0]


def names_and_formats(path: Path | None) -> tuple[tuple[str, str], dict[str, CatalogFormats]]:
    """Return what definitions need from the file, read once; connects to nothing.

    :return: as :func:`default_names`, and by catalog the formats that dynamic tables may have, as far as the file determines
        them.
    :raises DefinitionError: with all mistakes of the file.
    """
    if path is None:
        return ("default", DEFAULT_DATABASE), {}
    entries = read_entries(path)
    chosen = _chosen(entries)
    known = ((entry.name, formats_in(entry.type)) for entry in entries)
    formats = {name: formats for name, formats in known if formats is not None}
    return (chosen.name, chosen.default_database or DEFAULT_DATABASE), formats


def read_entries(path: Path) -> list[CatalogEntry]:
    """Return the entries of the file.

    :raises DefinitionError: with all mistakes of the file.
    """
    mistakes = Mistakes()
    entries: list[CatalogEntry] = []
    with understood(mistakes, partial(Mistake, path, 1, 1)):
        text, unreadable = read_text(path)
        mistakes.add(unreadable)
        if text is not None:
            document, malformed = parse_document(path, text, "'catalogs'")
            mistakes.add(malformed)
            if document is not None:
                entries = _Reader(document, mistakes).read()
    if every := mistakes.in_order():
        raise DefinitionError(every)
    return entries


def _chosen(entries: list[CatalogEntry]) -> CatalogEntry:
    """Return the default catalog: the one with ``is-default``, or the first."""
    return next((entry for entry in entries if entry.is_default), entries[0])


class _Reader:
    """Reads one document; collects its mistakes."""

    def __init__(self, document: Document, mistakes: Mistakes) -> None:
        self._mistakes = mistakes
        self._document = document

    def read(self) -> list[CatalogEntry]:
        data = self._document.data
        declared = data.get("catalogs") if isinstance(data, Mapping) else None
        if not isinstance(declared, list) or not declared:
            self._wrong((), "a catalogs file holds a list 'catalogs' with at least one catalog")
            return []
        entries = [
            (number, entry) for number, value in enumerate(declared) if (entry := self._entry(value, ("catalogs", number)))
        ]
        seen: set[str] = set()
        for number, entry in entries:
            if entry.name in seen:
                self._wrong(("catalogs", number, "name"), f"catalog {entry.name} is declared twice")
            seen.add(entry.name)
        defaults = [(number, entry) for number, entry in entries if entry.is_default]
        for number, entry in defaults[1:]:
            self._wrong(("catalogs", number), f"catalog {entry.name} cannot be the default, too: there is one already")
        return [entry for _, entry in entries]

    def _entry(self, value: Any, location: Location) -> CatalogEntry | None:
        if not isinstance(value, Mapping) or not isinstance(value.get("name"), str) or not value["name"]:
            self._wrong(location, "every catalog needs a name")
            return None
        places = dict(self._places(value, location))
        values = {key: place[0] for key, place in places.items()}
        if [key for key, place in places.items() if self._is_wrong(key, *place)]:
            return None
        kind = values.get("type", "sql")
        if [key for key in ("name", "default-database") if key in places and self._is_no_name(*places[key])]:
            return None
        if kind not in CATALOG_TYPES:
            meant = CALLED_OTHERWISE.get(kind.lower())
            hint = f"write 'type: {meant}'" if meant else f"use one of {', '.join(CATALOG_TYPES)}"
            self._wrong(places["type"][1], f"catalog type {kind!r} is not supported; {hint}")
            return None
        return CatalogEntry(
            name=values["name"],
            type=kind,
            is_default="is-default" in values and values["is-default"].value,
            default_database=values.get("default-database"),
            conn_id=values.get("conn-id"),
            params=self._params(kind, *places["connection-params"]) if "connection-params" in places else {},
            base=self._document.path.parent,
            place=self._document.place(location),
        )

    def _places(self, value: Mapping[str, Any], location: Location) -> Iterator[tuple[str, tuple[Any, Location]]]:
        """Yield every key with its value and location, whether at the top level or below ``catalog``."""
        for key, inner in value.items():
            if key == "catalog" and isinstance(inner, Mapping):
                yield from self._places(inner, (*location, key))
            elif inner is not None:
                yield _ALIASES.get(key, key), (inner, (*location, key))

    def _is_wrong(self, key: str, value: Any, location: Location) -> bool:
        if key not in _KEYS:
            message = f"unknown key {key!r}; known are {', '.join(sorted(_KEYS))}"
            self._mistakes.add([self._document.key_mistake(location, message)])
            return True
        kind, wanted = _KEYS[key]
        if not isinstance(value, kind):
            self._wrong(location, f"{key!r} must be {wanted}")
        return not isinstance(value, kind)

    def _is_no_name(self, name: str, location: Location) -> bool:
        try:
            check_name(name)
        except ValueError as error:
            self._wrong(location, str(error))
            return True
        return False

    def _params(self, kind: str, values: Mapping[str, Any], location: Location) -> dict[str, str]:
        known = CATALOG_TYPES[kind].params
        is_open = CATALOG_TYPES[kind].is_open
        params: dict[str, str] = {}
        for key, value in values.items():
            name = CATALOG_TYPES[kind].aliases.get(key, key)
            if name in known or is_open:
                if not isinstance(value, str):
                    self._wrong((*location, key), f"{key!r} must be text; put it in quotes")
                else:
                    params[name] = value
                continue
            legal = f"known are {', '.join(known)}" if known else f"type {kind} has none"
            message = f"unknown connection parameter {key!r}; {legal}"
            self._mistakes.add([self._document.key_mistake((*location, key), message)])
        return params

    def _wrong(self, location: Location, message: str) -> None:
        self._mistakes.add([self._document.mistake(location, message)])
