"""Request and result of a CREATE TABLE AS."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.partition_transforms import spelled, split_keys
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.names import check_names
from airflow_dynamic_tables.yaml_files.documents import line_and_column


class Purpose(StrEnum):
    """How an existing table is handled (FLIP-305)."""

    CREATE = "CREATE_TABLE_AS"
    """It is an error."""

    CREATE_IF_NOT_EXISTS = "CREATE_TABLE_AS_IF_NOT_EXISTS"
    """The existing table is kept, and nothing is done."""

    CREATE_OR_REPLACE = "CREATE_OR_REPLACE_TABLE_AS"
    """Its rows are replaced atomically, if it was created by CREATE TABLE AS."""


@dataclass(frozen=True, slots=True)
class QueryPlace:
    """The place of a query for error messages: a text, its display name, and the offset of the query in it."""

    path: Path
    text: str
    start: int = 0

    def mistake(self, offset: int, message: str) -> Mistake:
        """Return a mistake at an offset of the query."""
        return Mistake(self.path, *line_and_column(self.text, self.start + offset), message)


@dataclass(frozen=True, slots=True)
class KeysPlace:
    """The place of partition keys for error messages: a text, its display name, and the offset of each key in it."""

    path: Path
    text: str
    starts: tuple[int, ...]

    def mistake(self, number: int, message: str) -> Mistake:
        """Return a mistake in the key with that number."""
        return Mistake(self.path, *line_and_column(self.text, self.starts[number]), message)


@dataclass(frozen=True, slots=True)
class WantedTable:
    """A table to be created from a query.

    Short names in ``query`` refer to the catalog and database in ``scope``. Without a ``format`` the table has that of the table
    that it replaces, or the default one. ``place`` is the place of the query, ``keys_place`` that of its partition keys, if they
    are in a text.
    """

    identifier: TableIdentifier
    query: str
    scope: tuple[str, str]
    place: QueryPlace
    purpose: Purpose = Purpose.CREATE
    format: str | None = None
    partition_keys: tuple[str, ...] = ()
    comment: str | None = None
    timezone: str = "UTC"
    spark: SparkSettings = field(default_factory=SparkSettings)
    keys_place: KeysPlace | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """Normalised partition keys, which have been checked."""
        return tuple(map(spelled, self.partition_keys))


class CtasOutcome(StrEnum):
    """The result of a CREATE TABLE AS."""

    CREATED = "created"
    REPLACED = "replaced"
    EXISTS = "exists"


@dataclass(frozen=True, slots=True)
class Created:
    """A table that was created, replaced, or already existed; in the last case only ``table`` and ``outcome`` are set."""

    table: TableIdentifier
    outcome: CtasOutcome
    version: int | None = None
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None
    seconds: dict[str, float] | None = None
    token: str | None = None
    sources: dict[str, str] | None = None


def purpose_of(*, if_not_exists: bool, replace: bool) -> Purpose:
    """Return the purpose given by two flags.

    :raises ConfigurationError: if they contradict each other.
    """
    if if_not_exists and replace:
        raise ConfigurationError("if_not_exists and replace contradict each other; give one of them.")
    if replace:
        return Purpose.CREATE_OR_REPLACE
    return Purpose.CREATE_IF_NOT_EXISTS if if_not_exists else Purpose.CREATE


def keys_in(text: str, called: str) -> tuple[tuple[str, ...], KeysPlace]:
    """Return the comma-separated partition keys in a text, and their places.

    :param called: the display name of the text.
    """
    keys = tuple(split_keys(text))
    return tuple(key for _, key in keys), KeysPlace(Path(called), text, tuple(start for start, _ in keys))


def named_new_table(name: str, scope: tuple[str, str]) -> TableIdentifier:
    """Return the full name of a table to be created.

    :param scope: catalog and database of short names.
    :raises ConfigurationError: if the name is invalid.
    """
    try:
        identifier = TableIdentifier.parse(name, catalog=scope[0], database=scope[1])
    except ValueError as error:
        raise ConfigurationError(f"{error}.") from error
    check_names(identifier.catalog, identifier.database, identifier.table)
    return identifier
