"""An Iceberg catalog on behalf of one catalog of ours: which names are legal there, and what its errors become."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError

from airflow_dynamic_tables.catalog.errors import no_database
from airflow_dynamic_tables.clients.iceberg.servers import Server
from airflow_dynamic_tables.exceptions import UnsupportedError

_FOLDED = re.compile(r"[a-z0-9_]{1,128}", re.ASCII)
_NOT_IN_PATHS = re.compile(r"[/\x00-\x1f\x7f]")


class Session:
    """Connects when it is first needed."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._tables: Catalog | None = None

    @property
    def catalog(self) -> str:
        """The name that errors are told of."""
        return self.server.name

    @property
    def tables(self) -> Catalog:
        """PyIceberg's client.

        :raises CatalogUnavailableError: when the catalog cannot be reached.
        """
        if self._tables is None:
            self._tables = self.server.connect()
        return self._tables

    def close(self) -> None:
        """Let go of connections; idempotent."""
        if self._tables is not None:
            self._tables.close()
            self._tables = None

    @contextmanager
    def asking(self, database: str) -> Iterator[Catalog]:
        """Around everything that asks for a database or something in it.

        :raises DatabaseNotFoundError: when there is no such database.
        :raises CatalogUnavailableError: when the catalog cannot be reached.
        """
        if not self.is_legal(database):
            raise no_database(self.catalog, database)
        try:
            with self.server.errors():
                yield self.tables
        except NoSuchNamespaceError as error:
            raise no_database(self.catalog, database) from error

    def is_legal(self, *names: str) -> bool:
        """Whether the catalog would keep these names as they are."""
        return all(self._why_not(name) is None for name in names)

    def check_name(self, what: str, name: str) -> None:
        """Refuse the name of something new.

        :raises UnsupportedError: when the catalog would change the name, cannot hold it, or takes it for several.
        """
        if why := self._why_not(name):
            raise UnsupportedError(
                f"Catalog {self.catalog} is an Iceberg catalog, where the name of a {what} {why}; choose another name than "
                f"{name!r}."
            )

    def _why_not(self, name: str) -> str | None:
        if "." in name:
            return "has no dots, for namespaces of several levels are not supported"
        if self.server.traits.folds_names and not _FOLDED.fullmatch(name):
            return "has at most 128 lower-case letters, digits and underscores"
        return "has no slashes and control characters" if not name or _NOT_IN_PATHS.search(name) else None
