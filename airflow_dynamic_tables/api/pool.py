"""Workspaces for requests: each is lent to one request at a time, and kept open for the next one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import NamedTuple

from airflow_dynamic_tables.exceptions import CatalogUnavailableError, DynamicTableError
from airflow_dynamic_tables.services.workspace import Workspace

_FRESH_SECONDS = 60.0
"""How long a workspace is lent out again: a catalogs file or a connection that somebody changed holds after that."""


class _Open(NamedTuple):
    workspace: Workspace
    since: float


class Workspaces:
    """Opens workspaces when there is none to lend. Clients of catalogs are made for one thread at a time, so nobody shares one.

    :param opener: opens a workspace; it connects to nothing yet.
    """

    def __init__(self, opener: Callable[[], Workspace]) -> None:
        self._opener = opener
        self._idle: list[_Open] = []
        self._lock = Lock()

    @contextmanager
    def lent(self) -> Iterator[Workspace]:
        """A workspace for the body; one in which something broke is not lent again."""
        lent = self._take()
        try:
            yield lent.workspace
        except CatalogUnavailableError:
            lent.workspace.close()
            raise
        except DynamicTableError:
            self._give_back(lent)
            raise
        except BaseException:
            lent.workspace.close()
            raise
        else:
            self._give_back(lent)

    def close(self) -> None:
        """Close those that nobody has."""
        with self._lock:
            idle = list(self._idle)
            self._idle.clear()
        for one in idle:
            one.workspace.close()

    def _take(self) -> _Open:
        while True:
            with self._lock:
                lent = self._idle.pop() if self._idle else None
            if lent is None:
                return _Open(self._opener(), time.monotonic())
            if time.monotonic() - lent.since < _FRESH_SECONDS:
                return lent
            lent.workspace.close()

    def _give_back(self, lent: _Open) -> None:
        with self._lock:
            self._idle.append(lent)
