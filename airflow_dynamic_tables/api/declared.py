"""In-memory cache of definitions: loading a thousand of them takes half a second even from the file cache."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.services.project import Project

_LONGEST_SECONDS = 30.0
"""Maximum age of the cache; files that definitions reference (queries) are not checked if the definition files are unchanged."""


class AllDeclared(NamedTuple):
    """All tables without mistakes, and whether these are all tables."""

    definitions: Definitions
    is_complete: bool


_NOTHING = AllDeclared(Definitions(), is_complete=False)
"""Without a folder of definitions it is unknown which tables are declared."""


class _Loaded(NamedTuple):
    signature: object
    at: float
    declared: AllDeclared


class Declared:
    """The definitions of a project, reloaded when one of its files changes.

    :param opener: finds the project; returns ``None`` if there is no folder of definitions.
    """

    def __init__(self, opener: Callable[[], Project | None]) -> None:
        self._opener = opener
        self._loaded: _Loaded | None = None
        self._lock = Lock()

    def all(self) -> AllDeclared:
        """Return all tables; at most half a minute old where a definition reads its query from another file."""
        project = self._opener()
        if project is None:
            return _NOTHING
        with self._lock:
            signature = (project, project.signature())
            known = self._loaded
            if known is None or known.signature != signature or time.monotonic() - known.at > _LONGEST_SECONDS:
                definitions, mistakes = project.load()
                known = _Loaded(signature, time.monotonic(), AllDeclared(definitions, not mistakes))
                self._loaded = known
            return known.declared

    def table(self, identifier: TableIdentifier) -> DynamicTable | None:
        """Return one table as its files currently define it."""
        project = self._opener()
        return project.load_table(identifier).tables.get(identifier) if project is not None else None
