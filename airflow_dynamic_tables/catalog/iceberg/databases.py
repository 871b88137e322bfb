"""The databases of an Iceberg catalog: its namespaces of one level."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.exceptions import NamespaceAlreadyExistsError, NamespaceNotEmptyError, NoSuchTableError

from airflow_dynamic_tables.catalog.errors import database_taken, not_empty
from airflow_dynamic_tables.catalog.iceberg.session import Session
from airflow_dynamic_tables.catalog.values import CatalogDatabase
from airflow_dynamic_tables.exceptions import DatabaseNotFoundError

_OWN_COMMENT = "dynamic-tables.comment"
"""Where the comment stands of a database of a metastore that was altered: Hive never changes its own."""

_TECHNICAL = {"location", "exists", "owner-type", "ownerType"}
"""Properties of a namespace that the catalog sets itself."""


@dataclass(frozen=True, slots=True)
class IcebergDatabases:
    """Namespaces; those below others are neither listed nor found."""

    session: Session

    def names(self) -> list[str]:
        """Names of all databases, sorted."""
        with self.session.server.errors():
            listed = self.session.tables.list_namespaces()
        return sorted(names[0] for names in listed if len(names) == 1 and self.session.is_legal(names[0]))

    def get(self, database: str) -> CatalogDatabase:
        """One database."""
        properties = self._properties(database)
        comment = properties.pop(self._comment, None)
        comment = properties.pop(_OWN_COMMENT, comment)
        return CatalogDatabase(comment or None, {key: text for key, text in properties.items() if key not in _TECHNICAL})

    def exists(self, database: str) -> bool:
        """Whether there is a database of that name."""
        try:
            self._properties(database)
        except DatabaseNotFoundError:
            return False
        return True

    def create(self, database: str, value: CatalogDatabase, *, ignore_if_exists: bool = False) -> None:
        """Make a namespace."""
        self.session.check_name("database", database)
        comment = {self._comment: value.comment} if value.comment is not None else {}
        try:
            with self.session.asking(database) as tables:
                if tables.namespace_exists((database,)):
                    raise NamespaceAlreadyExistsError(database)
                tables.create_namespace((database,), {**value.properties, **comment})
        except NamespaceAlreadyExistsError as error:
            if not ignore_if_exists:
                raise database_taken(self.session.catalog, database) from error

    def alter(self, database: str, value: CatalogDatabase, *, ignore_if_not_exists: bool = False) -> None:
        """Replace comment and properties."""
        try:
            before = self._properties(database)
        except DatabaseNotFoundError:
            if ignore_if_not_exists:
                return
            raise
        after = dict(value.properties)
        if value.comment is not None:
            after[_OWN_COMMENT if self._keeps_comment else self._comment] = value.comment
        elif self._keeps_comment:
            after[_OWN_COMMENT] = ""
        stay = _TECHNICAL | ({self._comment} if self._keeps_comment else set())
        with self.session.asking(database) as tables:
            tables.update_namespace_properties((database,), before.keys() - after.keys() - stay, after)

    def drop(self, database: str, *, ignore_if_not_exists: bool = False, cascade: bool = False) -> None:
        """Drop a namespace and, with ``cascade``, its tables; their files stay."""
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
        except DatabaseNotFoundError:
            if not ignore_if_not_exists:
                raise

    def _drop_table(self, name: tuple[str, ...]) -> None:
        try:
            self.session.tables.drop_table(name)
        except NoSuchTableError:
            return  # somebody else dropped it just now

    def _properties(self, database: str) -> dict[str, str]:
        with self.session.asking(database) as tables:
            return {key: str(text) for key, text in tables.load_namespace_properties((database,)).items()}

    @property
    def _comment(self) -> str:
        return self.session.server.traits.comment

    @property
    def _keeps_comment(self) -> bool:
        return self.session.server.traits.keeps_comments
