"""What is declared, kept in memory between requests: a thousand definitions take half a second to read even from their cache."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.services.project import Project

_LONGEST_SECONDS = 30.0
"""How long nobody looks at files that definitions name (queries), when the files of definitions stay as they are."""


class AllDeclared(NamedTuple):
    """All tables without a mistake, and whether that is every table."""

    definitions: Definitions
    is_complete: bool


_NOTHING = AllDeclared(Definitions(), is_complete=False)
"""Where there is no folder of definitions, nobody knows what is declared."""


class _Loaded(NamedTuple):
    signature: object
    at: float
    declared: AllDeclared


class Declared:
    """The definitions of a project, read again when one of its files changed.

    :param opener: finds the project; ``None``: there is no folder of definitions here.
    """

    def __init__(self, opener: Callable[[], Project | None]) -> None:
        self._opener = opener
        self._loaded: _Loaded | None = None
        self._lock = Lock()

    def all(self) -> AllDeclared:
        """Everything, at most half a minute old where a definition reads its query from another file."""
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
        """One table as its files say now."""
        project = self._opener()
        return project.load_table(identifier).tables.get(identifier) if project is not None else None
