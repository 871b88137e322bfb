"""What a CREATE TABLE AS asks for, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.partitioning import spelled, split_keys
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.names import check_names
from airflow_dynamic_tables.yaml_files.texts import line_and_column


class Purpose(StrEnum):
    """What is done about a table that is there already (FLIP-305)."""

    CREATE = "CREATE_TABLE_AS"
    """It is an error."""

    CREATE_IF_NOT_EXISTS = "CREATE_TABLE_AS_IF_NOT_EXISTS"
    """It stays, and nothing is done."""

    CREATE_OR_REPLACE = "CREATE_OR_REPLACE_TABLE_AS"
    """Its rows are replaced in one step, when CREATE TABLE AS made it."""


@dataclass(frozen=True, slots=True)
class QueryPlace:
    """Where a query stands, for what is wrong with it: a text, what that is called, and where in it the query begins."""

    path: Path
    text: str
    start: int = 0

    def mistake(self, offset: int, message: str) -> Mistake:
        """A mistake at an offset of the query."""
        return Mistake(self.path, *line_and_column(self.text, self.start + offset), message)


@dataclass(frozen=True, slots=True)
class KeysPlace:
    """Where partition keys stand, for what is wrong with them: a text, what that is called, and where in it each key begins."""

    path: Path
    text: str
    starts: tuple[int, ...]

    def mistake(self, number: int, message: str) -> Mistake:
        """A mistake in one of the keys, by its number."""
        return Mistake(self.path, *line_and_column(self.text, self.starts[number]), message)


@dataclass(frozen=True, slots=True)
class WantedTable:
    """A table that somebody wants to be made of a query.

    Names in ``query`` that are short are of the catalog and database in ``scope``. Without a ``format`` it has that of the table
    which is replaced, or the default one. ``place`` is where the query stands, ``keys_place`` where its partition keys do, if
    that is a text.
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
        """Partition keys in their one spelling; they are without a mistake."""
        return tuple(map(spelled, self.partition_keys))


class Outcome(StrEnum):
    """What became of it."""

    CREATED = "created"
    REPLACED = "replaced"
    EXISTS = "exists"


@dataclass(frozen=True, slots=True)
class Created:
    """A table that was made, replaced, or there already; then all but its name is ``None``."""

    table: TableIdentifier
    outcome: Outcome
    version: int | None = None
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None
    seconds: dict[str, float] | None = None
    token: str | None = None
    sources: dict[str, str] | None = None


def purpose_of(*, if_not_exists: bool, replace: bool) -> Purpose:
    """The purpose that two flags say.

    :raises ConfigurationError: when they contradict each other.
    """
    if if_not_exists and replace:
        raise ConfigurationError("if_not_exists and replace contradict each other; give one of them.")
    if replace:
        return Purpose.CREATE_OR_REPLACE
    return Purpose.CREATE_IF_NOT_EXISTS if if_not_exists else Purpose.CREATE


def keys_in(text: str, called: str) -> tuple[tuple[str, ...], KeysPlace]:
    """The partition keys that stand in a text, separated by commas, and where they stand in it.

    :param called: what people know the text by.
    """
    keys = tuple(split_keys(text))
    return tuple(key for _, key in keys), KeysPlace(Path(called), text, tuple(start for start, _ in keys))


def named_new_table(name: str, scope: tuple[str, str]) -> TableIdentifier:
    """The full name of a table that is to be made.

    :param scope: catalog and database of a name that leaves them out.
    :raises ConfigurationError: when it may not be one.
    """
    try:
        identifier = TableIdentifier.parse(name, catalog=scope[0], database=scope[1])
    except ValueError as error:
        raise ConfigurationError(f"{error}.") from error
    check_names(identifier.catalog, identifier.database, identifier.table)
    return identifier
