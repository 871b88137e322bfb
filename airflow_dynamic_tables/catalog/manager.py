"""Registry of named catalogs, and the default names."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from airflow_dynamic_tables.catalog.base import ReadableCatalog
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import CatalogNotFoundError, CatalogUnavailableError, ConfigurationError

_LONGEST_PAUSE = 10.0
"""Maximum time, in seconds, for which a catalog that did not answer is not retried."""


class CatalogManager:
    """Catalogs by name. Each is created and opened on first use, so that one that is down affects only its own users.

    :param default_catalog: catalog of names with fewer than three parts.
    :param default_database: database of names with one part.
    :param missing: creates a catalog for an unregistered name; by default that is an error.
    :param clock: returns monotonic seconds.
    """

    def __init__(
        self,
        default_catalog: str = "default",
        default_database: str = "default",
        missing: Callable[[str], ReadableCatalog] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.default_catalog = default_catalog
        self.default_database = default_database
        self._missing = missing
        self._declared: dict[str, Callable[[], ReadableCatalog]] = {}
        self._catalogs: dict[str, ReadableCatalog] = {}
        self._opened: set[str] = set()
        self._holders = 0
        self._clock = clock
        self._unanswered: dict[str, tuple[float, CatalogUnavailableError]] = {}

    def declare(self, name: str, make: Callable[[], ReadableCatalog]) -> None:
        """Add a catalog that is created on first use."""
        self._declared[name] = make

    def register(self, catalog: ReadableCatalog) -> None:
        """Add a catalog, or replace the one of that name."""
        self._catalogs[catalog.name] = catalog
        self._opened.discard(catalog.name)
        self._unanswered.pop(catalog.name, None)

    def names(self) -> list[str]:
        """Return the names of the registered catalogs, sorted."""
        return sorted({*self._declared, *self._catalogs})

    def get(self, name: str) -> ReadableCatalog:
        """Return a catalog, opened.

        :raises CatalogNotFoundError: when there is none of that name.
        :raises ConfigurationError: when its connection is unknown or wrong.
        :raises CatalogUnavailableError: when it cannot be reached; a later call tries again. A catalog that timed out is not
            retried for as long as the timeout took, at most ten seconds, so that a loop over many tables does not wait for
            each of them.
        """
        catalog = self._made(name)
        if name not in self._opened:
            self._open(catalog)
            self._opened.add(name)
        return catalog

    def _open(self, catalog: ReadableCatalog) -> None:
        began = self._clock()
        again_at, unanswered = self._unanswered.get(catalog.name, (began, None))
        if unanswered is not None and began < again_at:
            raise unanswered.with_traceback(None)  # otherwise the traceback would grow with every call
        try:
            catalog.open()
        except CatalogUnavailableError as error:
            now = self._clock()
            self._unanswered[catalog.name] = (now + min(now - began, _LONGEST_PAUSE), error)
            raise

    def unopened(self, name: str) -> ReadableCatalog:
        """Return a catalog without connecting, for its static properties.

        :raises CatalogNotFoundError: when there is none of that name.
        :raises ConfigurationError: when its connection is unknown or wrong.
        """
        return self._made(name)

    def resolve(self, text: str) -> TableIdentifier:
        """Return the full name for a name of one, two or three parts; connects to nothing.

        :raises ConfigurationError: when it is not a valid name.
        """
        try:
            return TableIdentifier.parse(text, catalog=self.default_catalog, database=self.default_database)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error

    def upgrade(self) -> None:
        """Upgrade the state of every registered catalog to this release's schema; idempotent.

        :raises CatalogUnavailableError: when one cannot be reached.
        """
        for name in self.names():
            self._made(name).upgrade()

    @contextmanager
    def holding_sources(self) -> Iterator[None]:
        """Hold the state to which sources are bound for a job until the end of the outermost body; then current rows are read."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            for name in sorted(self._opened) if not self._holders else ():
                self._catalogs[name].release()

    def close(self) -> None:
        """Close every catalog that was opened."""
        for name in sorted(self._opened):
            self._catalogs[name].close()
        self._opened.clear()

    def _made(self, name: str) -> ReadableCatalog:
        if name not in self._catalogs:
            make = self._declared.get(name) or (self._missing and partial(self._missing, name))
            if make is None:
                raise CatalogNotFoundError(f"There is no catalog {name}; known are {', '.join(self.names()) or 'none'}.")
            self.register(make())
        return self._catalogs[name]
