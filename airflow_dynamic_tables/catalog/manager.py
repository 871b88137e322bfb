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
_KEYS = {"name", "type", "is-default", "default-database", "connection-params"}


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
        """
        if name not in self._catalogs:
            if self._missing is None:
                raise CatalogNotFoundError(f"There is no catalog {name}; known are {', '.join(self.names()) or 'none'}.")
            self.register(self._missing(name))
        if name not in self._opened:
            self._catalogs[name].open()
            self._opened.add(name)
        return self._catalogs[name]

    def resolve(self, text: str) -> TableIdentifier:
        """The full name of a name of one, two or three parts.

        :raises ConfigurationError: when it is no name.
        :raises CatalogNotFoundError: when its catalog is unknown and needed for the default database.
        """
        try:
            return TableIdentifier.parse(text, catalog=self.default_catalog)
        except ValueError:
            database = self.get(self.default_catalog).default_database
        try:
            return TableIdentifier.parse(text, catalog=self.default_catalog, database=database)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error

    def close(self) -> None:
        """Close every catalog that was opened."""
        for name in sorted(self._opened):
            self._catalogs[name].close()
        self._opened.clear()


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

    :raises ConfigurationError: when the file is missing or wrong.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror}).") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    try:
        return parse_catalogs(content, path.parent, defaults, os.environ)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def parse_catalogs(content: Any, base: Path, defaults: Defaults, environ: Mapping[str, str]) -> CatalogManager:
    """Catalogs from the mapping of a ``catalogs.yaml``.

    Each has ``name``, ``type`` (``sql`` or ``memory``), ``is-default``, ``default-database`` and ``connection-params``; the
    last ones may stand below ``catalog``, too. ``${NAME}`` is taken from the environment, so that secrets stay out of the file.

    :param base: folder that relative paths start from.
    :raises ConfigurationError: names the catalog and the key.
    """
    entries = content.get("catalogs") if isinstance(content, Mapping) else None
    if not isinstance(entries, list) or not entries:
        raise ConfigurationError("must hold a list 'catalogs' with at least one catalog.")
    parsed = [_flatten(entry) for entry in entries]
    names = [entry["name"] for entry in parsed]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigurationError(f"catalog {repeated[0]} is declared twice.")
    chosen = [entry["name"] for entry in parsed if entry.get("is-default")]
    if len(chosen) > 1:
        raise ConfigurationError(f"catalogs {' and '.join(chosen)} cannot all be the default.")
    manager = CatalogManager(chosen[0] if chosen else names[0])
    for entry in parsed:
        manager.register(_catalog(entry, base, defaults, environ))
    return manager


def _flatten(entry: Any) -> dict[str, Any]:
    """One entry in its flat form, its keys checked."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise ConfigurationError("every catalog needs a name.")
    flat = {**{key: value for key, value in entry.items() if key != "catalog"}, **(entry.get("catalog") or {})}
    flat = {"default-database" if key == "default-db" else key: value for key, value in flat.items()}
    if unknown := sorted(set(flat) - _KEYS):
        raise ConfigurationError(f"catalog {flat['name']}: unknown key {unknown[0]!r}; known are {', '.join(sorted(_KEYS))}.")
    return flat


def _catalog(entry: Mapping[str, Any], base: Path, defaults: Defaults, environ: Mapping[str, str]) -> ReadableCatalog:
    name, kind = entry["name"], entry.get("type", "sql")
    default_database = entry.get("default-database", "default")
    params = {key: _substitute(str(value), name, environ) for key, value in (entry.get("connection-params") or {}).items()}
    if unknown := sorted(set(params) - {"url", "warehouse"}):
        raise ConfigurationError(f"catalog {name}: unknown connection parameter {unknown[0]!r}; known are url, warehouse.")
    if kind == "memory":
        return MemoryCatalog(name, default_database)
    if kind != "sql":
        raise ConfigurationError(f"catalog {name}: type {kind!r} is not supported; use sql or memory.")
    url = _absolute_url(params.get("url", defaults.database_url), base)
    warehouse = params.get("warehouse", f"{defaults.warehouse}/{name}")
    return _sql_catalog(name, url, warehouse if ":" in warehouse else f"file://{(base / warehouse).resolve()}", default_database)


def _sql_catalog(name: str, url: str, warehouse: str, default_database: str = "default") -> ReadableCatalog:
    # PyIceberg takes seconds to import, and Airflow imports this module whenever it parses a DAG file.
    from airflow_dynamic_tables.catalog.sql import SqlCatalog

    return SqlCatalog(name, Database(url), warehouse, default_database)


def _absolute_url(url: str, base: Path) -> str:
    scheme, _, path = url.partition(":///")
    return f"{scheme}:///{(base / path).resolve()}" if scheme == "sqlite" else url


def _substitute(value: str, catalog: str, environ: Mapping[str, str]) -> str:
    def lookup(match: re.Match[str]) -> str:
        if match[1] not in environ:
            raise ConfigurationError(f"catalog {catalog}: environment variable {match[1]} is not set.")
        return environ[match[1]]

    return _VARIABLE.sub(lookup, value)
