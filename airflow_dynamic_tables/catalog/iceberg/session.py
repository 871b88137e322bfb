"""Session with an external Iceberg catalog: legal names, error conversion, databases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NamespaceNotEmptyError, NoSuchNamespaceError, NoSuchTableError

from airflow_dynamic_tables.catalog.base import database_taken, no_database, not_empty
from airflow_dynamic_tables.catalog.values import CatalogDatabase
from airflow_dynamic_tables.clients.iceberg.servers import IcebergServer
from airflow_dynamic_tables.exceptions import DatabaseNotFoundError, UnsupportedError

_FOLDED = re.compile(r"[a-z0-9_]{1,128}", re.ASCII)
_NOT_IN_PATHS = re.compile(r"[/\x00-\x1f\x7f]")


class IcebergSession:
    """Connects on first use."""

    def __init__(self, server: IcebergServer) -> None:
        self.server = server
        self._tables: Catalog | None = None

    @property
    def catalog(self) -> str:
        """The catalog name for error messages."""
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
        """Close connections; idempotent."""
        if self._tables is not None:
            self._tables.close()
            self._tables = None

    @contextmanager
    def asking(self, database: str) -> Iterator[Catalog]:
        """Context for every request about a database or its content.

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
        """Return whether the catalog keeps these names unchanged."""
        return all(self._why_not(name) is None for name in names)

    def check_name(self, what: str, name: str) -> None:
        """Check the name of a new object.

        :raises UnsupportedError: when the catalog would change the name, cannot hold it, or would split it into several names.
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


_OWN_COMMENT = "dynamic-tables.comment"
"""Property for the comment of an altered database in a metastore, because Hive never changes its own field."""

_TECHNICAL = {"location", "exists", "owner-type", "ownerType"}
"""Properties of a namespace that the catalog sets itself."""


@dataclass(frozen=True, slots=True)
class IcebergDatabases:
    """Namespaces; nested ones are neither listed nor found."""

    session: IcebergSession

    def names(self) -> list[str]:
        """Return the names of all databases, sorted."""
        with self.session.server.errors():
            listed = self.session.tables.list_namespaces()
        return sorted(names[0] for names in listed if len(names) == 1 and self.session.is_legal(names[0]))

    def get(self, database: str) -> CatalogDatabase:
        """Return a database."""
        properties = self._properties(database)
        comment = properties.pop(self._comment, None)
        comment = properties.pop(_OWN_COMMENT, comment)
        return CatalogDatabase(comment or None, {key: text for key, text in properties.items() if key not in _TECHNICAL})

    def exists(self, database: str) -> bool:
        """Return whether a database exists."""
        try:
            self._properties(database)
        except DatabaseNotFoundError:
            return False
        return True

    def create(self, database: str, value: CatalogDatabase) -> None:
        """Create a namespace."""
        self.session.check_name("database", database)
        comment = {self._comment: value.comment} if value.comment is not None else {}
        try:
            with self.session.asking(database) as tables:
                if tables.namespace_exists((database,)):
                    raise NamespaceAlreadyExistsError(database)
                tables.create_namespace((database,), {**value.properties, **comment})
        except NamespaceAlreadyExistsError as error:
            raise database_taken(self.session.catalog, database) from error

    def alter(self, database: str, value: CatalogDatabase) -> None:
        """Replace comment and properties."""
        before = self._properties(database)
        after = dict(value.properties)
        if value.comment is not None:
            after[_OWN_COMMENT if self._keeps_comment else self._comment] = value.comment
        elif self._keeps_comment:
            after[_OWN_COMMENT] = ""
        stay = _TECHNICAL | ({self._comment} if self._keeps_comment else set())
        with self.session.asking(database) as tables:
            tables.update_namespace_properties((database,), before.keys() - after.keys() - stay, after)

    def drop(self, database: str, *, cascade: bool = False) -> None:
        """Drop a namespace and, with ``cascade``, its tables; their files are kept."""
        try:
            with self.session.asking(database) as tables:
                tables.load_namespace_properties((database,))
                names = tables.list_tables((database,))
                if names and not cascade:
                    raise not_empty(self.session.catalog, database)
                for name in names:
                    self._drop_table(name)
                tables.drop_namespace((database,))
        except NamespaceNotEmptyError as error:
            raise not_empty(self.session.catalog, database) from error

    def _drop_table(self, name: tuple[str, ...]) -> None:
        try:
            self.session.tables.drop_table(name)
        except NoSuchTableError:
            return  # dropped concurrently

    def _properties(self, database: str) -> dict[str, str]:
        with self.session.asking(database) as tables:
            return {key: str(text) for key, text in tables.load_namespace_properties((database,)).items()}

    @property
    def _comment(self) -> str:
        return self.session.server.traits.comment

    @property
    def _keeps_comment(self) -> bool:
        return self.session.server.traits.keeps_comments
