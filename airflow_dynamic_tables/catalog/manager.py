"""Named catalogs, the default ones, and the YAML file that declares them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from airflow_dynamic_tables.catalog.base import ReadableCatalog
from airflow_dynamic_tables.catalog.memory import MemoryCatalog
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.database.engine import Database
from airflow_dynamic_tables.exceptions import CatalogNotFoundError, ConfigurationError

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_KEYS: Mapping[str, tuple[type, str]] = {
    "name": (str, "text"),
    "type": (str, "text"),
    "is-default": (bool, "true or false"),
    "default-database": (str, "text"),
    "connection-params": (dict, "a mapping"),
}


class CatalogManager:
    """Catalogs by name. Each is opened when it is first asked for, so one that is down fails only those that need it.

    :param missing: makes a catalog of a name that nobody registered; without it that is an error.
    """

    def __init__(self, default_catalog: str = "default", missing: Callable[[str], ReadableCatalog] | None = None) -> None:
        self.default_catalog = default_catalog
        self._missing = missing
        self._catalogs: dict[str, ReadableCatalog] = {}
        self._opened: set[str] = set()

    def register(self, catalog: ReadableCatalog) -> None:
        """Add a catalog, or put it in the place of the one of that name."""
        self._catalogs[catalog.name] = catalog
        self._opened.discard(catalog.name)

    def names(self) -> list[str]:
        """Names of the registered catalogs, sorted."""
        return sorted(self._catalogs)

    def get(self, name: str) -> ReadableCatalog:
        """A catalog, opened.

        :raises CatalogNotFoundError: when there is none of that name.
        :raises CatalogUnavailableError: when it cannot be reached; asking again tries again.
        """
        catalog = self._registered(name)
        if name not in self._opened:
            catalog.open()
            self._opened.add(name)
        return catalog

    def resolve(self, text: str) -> TableIdentifier:
        """The full name of a name of one, two or three parts; connects to nothing.

        :raises ConfigurationError: when it is no name.
        :raises CatalogNotFoundError: when there is no default catalog of the name it should have.
        """
        database = self._registered(self.default_catalog).default_database
        try:
            return TableIdentifier.parse(text, catalog=self.default_catalog, database=database)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error

    def upgrade(self) -> None:
        """Bring the state of every registered catalog to this release's schema; idempotent.

        :raises CatalogUnavailableError: when one cannot be reached.
        """
        for name in self.names():
            self._catalogs[name].upgrade()

    def close(self) -> None:
        """Close every catalog that was opened."""
        for name in sorted(self._opened):
            self._catalogs[name].close()
        self._opened.clear()

    def _registered(self, name: str) -> ReadableCatalog:
        if name not in self._catalogs:
            if self._missing is None:
                raise CatalogNotFoundError(f"There is no catalog {name}; known are {', '.join(self.names()) or 'none'}.")
            self.register(self._missing(name))
        return self._catalogs[name]


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a ``sql`` catalog uses that names no ``url`` or ``warehouse`` itself; its warehouse is a folder of this one."""

    database_url: str
    warehouse: str


def embedded_catalogs(defaults: Defaults) -> CatalogManager:
    """Catalogs without a file: every name is a ``sql`` catalog in the one database."""
    return CatalogManager(missing=lambda name: _sql_catalog(name, defaults.database_url, f"{defaults.warehouse}/{name}"))


def load_catalogs(path: Path, defaults: Defaults) -> CatalogManager:
    """Read ``catalogs.yaml``.

    :raises ConfigurationError: when the file is missing or wrong; one line a mistake, each with the path.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: must be UTF-8 text.") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    try:
        return parse_catalogs(content, path.parent, defaults, os.environ)
    except ConfigurationError as error:
        raise ConfigurationError("\n".join(f"{path}: {mistake}" for mistake in str(error).splitlines())) from error


def parse_catalogs(content: Any, base: Path, defaults: Defaults, environ: Mapping[str, str]) -> CatalogManager:
    """Catalogs from the mapping of a ``catalogs.yaml``.

    Each has ``name``, ``type`` (``sql`` or ``memory``), ``is-default``, ``default-database`` and ``connection-params``; the
    last ones may stand below ``catalog``, too. ``${NAME}`` is taken from the environment, so that secrets stay out of the file.

    :param base: folder that relative paths start from.
    :raises ConfigurationError: one line a mistake; names the catalog and the key.
    """
    entries = content.get("catalogs") if isinstance(content, Mapping) else None
    if not isinstance(entries, list) or not entries:
        raise ConfigurationError("must hold a list 'catalogs' with at least one catalog.")
    catalogs: list[ReadableCatalog] = []
    chosen: list[str] = []
    mistakes: list[str] = []
    for entry in entries:
        try:
            flat = _flatten(entry)
            catalogs.append(_catalog(flat, base, defaults, environ))
            chosen.extend([flat["name"]] if flat.get("is-default") else [])
        except ConfigurationError as error:
            mistakes.append(str(error))
    names = [catalog.name for catalog in catalogs]
    mistakes.extend(f"catalog {name} is declared twice." for name in sorted(set(names)) if names.count(name) > 1)
    if len(chosen) > 1:
        mistakes.append(f"catalogs {' and '.join(chosen)} cannot all be the default.")
    if mistakes:
        raise ConfigurationError("\n".join(mistakes))
    manager = CatalogManager((chosen or names)[0])
    for catalog in catalogs:
        manager.register(catalog)
    return manager


def _flatten(entry: Any) -> dict[str, Any]:
    """One entry in its flat form, its keys and the types of their values checked."""
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
    return flat


def _catalog(entry: Mapping[str, Any], base: Path, defaults: Defaults, environ: Mapping[str, str]) -> ReadableCatalog:
    name, kind = entry["name"], entry.get("type", "sql")
    default_database = entry.get("default-database", "default")
    params = {key: _substitute(str(value), name, environ) for key, value in entry.get("connection-params", {}).items()}
    if unknown := sorted(set(map(str, params)) - {"url", "warehouse"}):
        raise ConfigurationError(f"catalog {name}: unknown connection parameter {unknown[0]!r}; known are url, warehouse.")
    if kind == "memory":
        return MemoryCatalog(name, default_database)
    if kind != "sql":
        raise ConfigurationError(f"catalog {name}: type {kind!r} is not supported; use sql or memory.")
    url = _absolute_url(params.get("url", defaults.database_url), base)
    warehouse = params.get("warehouse", f"{defaults.warehouse}/{name}")
    if "://" not in warehouse:
        warehouse = f"file://{(base / warehouse).resolve()}"
    try:
        return _sql_catalog(name, url, warehouse, default_database)
    except ConfigurationError as error:
        raise ConfigurationError(f"catalog {name}: {error}") from error


def _sql_catalog(name: str, url: str, warehouse: str, default_database: str = "default") -> ReadableCatalog:
    # PyIceberg takes seconds to import, and Airflow imports this module whenever it parses a DAG file.
    from airflow_dynamic_tables.catalog.sql import SqlCatalog

    return SqlCatalog(name, Database(url), warehouse, default_database)


def _absolute_url(url: str, base: Path) -> str:
    scheme, separator, path = url.partition(":///")
    is_file = scheme.startswith("sqlite") and path not in ("", ":memory:")
    return f"{scheme}{separator}{(base / path).resolve()}" if is_file else url


def _substitute(value: str, catalog: str, environ: Mapping[str, str]) -> str:
    def lookup(match: re.Match[str]) -> str:
        if match[1] not in environ:
            raise ConfigurationError(f"catalog {catalog}: environment variable {match[1]} is not set.")
        return environ[match[1]]

    return _VARIABLE.sub(lookup, value)
