"""``catalogs.yaml``: which catalogs there are, of which type, and how to reach them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from airflow_dynamic_tables.catalog.base import ReadableCatalog
from airflow_dynamic_tables.catalog.connections import Connections, environment_connections
from airflow_dynamic_tables.catalog.manager import CatalogManager
from airflow_dynamic_tables.catalog.memory import MemoryCatalog
from airflow_dynamic_tables.exceptions import ConfigurationError

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_KEYS: Mapping[str, tuple[type, str]] = {
    "name": (str, "text"),
    "type": (str, "text"),
    "is-default": (bool, "true or false"),
    "default-database": (str, "text"),
    "conn-id": (str, "text"),
    "connection-params": (dict, "a mapping"),
}
_DEFAULT_DATABASE = "default"


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a ``sql`` catalog uses that names no ``url`` or ``warehouse`` itself; its warehouse is a folder of this one.

    ``connections`` finds the Airflow connections that catalogs name by ``conn-id``.
    """

    database_url: str
    warehouse: str
    connections: Connections = field(default_factory=lambda: environment_connections(os.environ))


@dataclass(frozen=True, slots=True)
class _Entry:
    """One catalog of the file; relative paths in ``params`` start from ``base``."""

    name: str
    default_database: str | None
    params: Mapping[str, str]
    base: Path
    defaults: Defaults


def embedded_catalogs(defaults: Defaults) -> CatalogManager:
    """Catalogs without a file: every name is a ``sql`` catalog in the one database."""
    return CatalogManager(missing=lambda name: _sql(_Entry(name, None, {}, Path(), defaults)))


def load_catalogs(path: Path, defaults: Defaults) -> CatalogManager:
    """Read ``catalogs.yaml``; a catalog is made, and its secrets looked up, when it is first asked for.

    :raises ConfigurationError: when the file is missing or wrong; one line a mistake, each with the path.
    """
    with _mistakes_of(path):
        return parse_catalogs(_read(path), path.parent, defaults)


def default_names(path: Path | None) -> tuple[str, str]:
    """The catalog and the database of names that leave them out, as the file says; it is all that is read of it.

    :raises ConfigurationError: see :func:`load_catalogs`.
    """
    if path is None:
        return "default", _DEFAULT_DATABASE
    with _mistakes_of(path):
        chosen = _chosen(_read(path))
    return chosen["name"], chosen.get("default-database", _DEFAULT_DATABASE)


def parse_catalogs(content: Any, base: Path, defaults: Defaults) -> CatalogManager:
    """Catalogs from the mapping of a ``catalogs.yaml``.

    Each has ``name``, ``type``, ``is-default``, ``default-database``, ``conn-id`` (an Airflow connection) and
    ``connection-params``, which win over the connection; all but the name may stand below ``catalog``, too. ``${NAME}`` is
    taken from the environment, so that secrets stay out of the file.

    :param base: folder that relative paths start from.
    :raises ConfigurationError: one line a mistake; names the catalog and the key.
    """
    entries = _entries(content)
    chosen = _chosen(content)
    manager = CatalogManager(chosen["name"], chosen.get("default-database", _DEFAULT_DATABASE))
    for entry in entries:
        manager.declare(entry["name"], partial(_make, entry, base, defaults))
    return manager


def _read(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError("must be UTF-8 text.") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(" ".join(str(error).split())) from error


@contextmanager
def _mistakes_of(path: Path) -> Iterator[None]:
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError("\n".join(f"{path}: {mistake}" for mistake in str(error).splitlines())) from error


def _entries(content: Any) -> list[dict[str, Any]]:
    """All entries in their flat form, checked."""
    entries = content.get("catalogs") if isinstance(content, Mapping) else None
    if not isinstance(entries, list) or not entries:
        raise ConfigurationError("must hold a list 'catalogs' with at least one catalog.")
    found: list[dict[str, Any]] = []
    mistakes: list[str] = []
    for entry in entries:
        try:
            found.append(_flatten(entry))
        except ConfigurationError as error:
            mistakes.append(str(error))
    names = [entry["name"] for entry in found]
    mistakes.extend(f"catalog {name} is declared twice." for name in sorted(set(names)) if names.count(name) > 1)
    chosen = [entry["name"] for entry in found if entry.get("is-default")]
    if len(chosen) > 1:
        mistakes.append(f"catalogs {' and '.join(chosen)} cannot all be the default.")
    if mistakes:
        raise ConfigurationError("\n".join(mistakes))
    return found


def _chosen(content: Any) -> dict[str, Any]:
    """The default catalog: the one that says so, or the first."""
    entries = _entries(content)
    return next((entry for entry in entries if entry.get("is-default")), entries[0])


def _flatten(entry: Any) -> dict[str, Any]:
    """One entry in its flat form: its keys, the types of their values and the names of its parameters checked."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str) or not entry["name"]:
        raise ConfigurationError("every catalog needs a name.")
    name, below = entry["name"], entry.get("catalog") or {}
    if not isinstance(below, Mapping):
        raise ConfigurationError(f"catalog {name}: 'catalog' must be a mapping.")
    flat = {**{key: value for key, value in entry.items() if key != "catalog"}, **below}
    flat = {"default-database" if key == "default-db" else key: value for key, value in flat.items() if value is not None}
    if unknown := sorted(set(map(str, flat)) - set(_KEYS)):
        raise ConfigurationError(f"catalog {name}: unknown key {unknown[0]!r}; known are {', '.join(sorted(_KEYS))}.")
    for key, value in flat.items():
        kind, wanted = _KEYS[key]
        if not isinstance(value, kind):
            raise ConfigurationError(f"catalog {name}: {key!r} must be {wanted}.")
    if (kind := flat.get("type", "sql")) not in _TYPES:
        raise ConfigurationError(f"catalog {name}: type {kind!r} is not supported; use one of {', '.join(_TYPES)}.")
    known = _TYPES[kind].params
    if unknown := sorted(set(map(str, flat.get("connection-params", {}))) - set(known)):
        legal = f"known are {', '.join(known)}" if known else f"type {kind} has none"
        raise ConfigurationError(f"catalog {name}: unknown connection parameter {unknown[0]!r}; {legal}.")
    return flat


def _make(entry: Mapping[str, Any], base: Path, defaults: Defaults) -> ReadableCatalog:
    name, kind = entry["name"], _TYPES[entry.get("type", "sql")]
    try:
        params = {key: _substitute(str(value)) for key, value in entry.get("connection-params", {}).items()}
        if conn_id := entry.get("conn-id"):
            connection = defaults.connections(conn_id)
            of_connection = {key: connection.extra[key] for key in kind.params if key in connection.extra}
            if connection.host and kind.scheme:
                of_connection.setdefault(kind.params[0], connection.url(kind.scheme))
            params = {**of_connection, **params}
        return kind.make(_Entry(name, entry.get("default-database"), params, base, defaults))
    except ConfigurationError as error:
        raise ConfigurationError(f"catalog {name}: {error}") from error


def _substitute(value: str) -> str:
    def lookup(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise ConfigurationError(f"environment variable {match[1]} is not set.")
        return os.environ[match[1]]

    return _VARIABLE.sub(lookup, value)


# PyIceberg, SQLAlchemy and Thrift take long to import, and Airflow imports this module whenever it parses a DAG file.


def _memory(entry: _Entry) -> ReadableCatalog:
    return MemoryCatalog(entry.name, entry.default_database or _DEFAULT_DATABASE)


def _sql(entry: _Entry) -> ReadableCatalog:
    from airflow_dynamic_tables.catalog.sql import SqlCatalog
    from airflow_dynamic_tables.database.engine import Database

    database = Database(_absolute_url(entry.params.get("url", entry.defaults.database_url), entry.base))
    warehouse = _absolute(entry.params.get("warehouse", f"{entry.defaults.warehouse}/{entry.name}"), entry.base)
    return SqlCatalog(entry.name, database, warehouse, entry.default_database or _DEFAULT_DATABASE)


def _jdbc(entry: _Entry) -> ReadableCatalog:
    from airflow_dynamic_tables.catalog.jdbc import JdbcCatalog

    if "url" not in entry.params:
        raise ConfigurationError("needs connection parameter 'url', or a 'conn-id' whose connection has a host.")
    return JdbcCatalog(entry.name, entry.params["url"], entry.default_database)


def _hive(entry: _Entry) -> ReadableCatalog:
    from airflow_dynamic_tables.metastore import Metastore

    if "uri" not in entry.params:
        raise ConfigurationError("needs connection parameter 'uri', or a 'conn-id' whose connection has a host.")
    metastore = Metastore(entry.params["uri"])  # first: it says which extra is missing

    from airflow_dynamic_tables.catalog.hive import HiveCatalog

    warehouse = _absolute(entry.params["warehouse"], entry.base) if "warehouse" in entry.params else None
    return HiveCatalog(entry.name, metastore, warehouse, entry.default_database or _DEFAULT_DATABASE)


def _absolute(folder: str, base: Path) -> str:
    return folder if "://" in folder else f"file://{(base / folder).resolve()}"


def _absolute_url(url: str, base: Path) -> str:
    scheme, separator, path = url.partition(":///")
    is_file = scheme.startswith("sqlite") and path not in ("", ":memory:")
    return f"{scheme}{separator}{(base / path).resolve()}" if is_file else url


@dataclass(frozen=True, slots=True)
class _Type:
    """One type of catalog: its connection parameters, of which a connection with a host gives the first, as a URL."""

    make: Callable[[_Entry], ReadableCatalog]
    params: tuple[str, ...] = ()
    scheme: str | None = None


_TYPES: Mapping[str, _Type] = {
    "sql": _Type(_sql, ("url", "warehouse"), "postgresql"),
    "memory": _Type(_memory),
    "hive": _Type(_hive, ("uri", "warehouse"), "thrift"),
    "jdbc": _Type(_jdbc, ("url",), "postgresql"),
}
