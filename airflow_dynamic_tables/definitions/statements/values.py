"""Parsed statements as values, each part with its position in the text.

Offsets count characters from the start of the text, also in a file of several statements. Names are as written, without
back-quotes; the caller resolves short names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airflow_dynamic_tables.core.identifiers import join_name

SQL_SUFFIX = ".sql"
"""Suffix of files that contain statements, or a query."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a statement: its value, and its start and end offsets.

    ``value`` is the content of a string without its quotes, or a word as written.
    """

    value: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Name:
    """A name of one to three parts."""

    parts: tuple[str, ...]
    start: int
    end: int

    def __str__(self) -> str:
        """Return the name, with back-quotes where needed."""
        return join_name(*self.parts)


@dataclass(frozen=True, slots=True)
class Pair:
    """A key and its value: an option, or a partition column and its value."""

    key: Piece
    value: Piece


@dataclass(frozen=True, slots=True)
class PairList:
    """Pairs in parentheses; ``start`` is where the clause begins (``WITH``), ``end`` is behind its last parenthesis."""

    pairs: tuple[Pair, ...]
    start: int
    end: int

    def as_dict(self) -> dict[str, str]:
        """Return the values by key; keys are unique."""
        return {pair.key.value: pair.value.value for pair in self.pairs}


@dataclass(frozen=True, slots=True)
class ColumnItem:
    """A column of a column list, and its comment."""

    name: Piece
    comment: Piece | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Base of all statements: start and end offsets, without the semicolon."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDynamicTable(Statement):
    """``CREATE [OR ALTER] DYNAMIC TABLE [IF NOT EXISTS] … AS query``: a declaration.

    ``freshness`` is as written (``INTERVAL '1' DAY``, ``1 day``). ``options`` holds everything in WITH: options of the table,
    and the settings that have no clause of their own. ``as_at`` is the offset of the keyword AS.
    """

    name: Name
    query: Piece
    as_at: int
    or_alter: bool = False
    if_not_exists: bool = False
    columns: tuple[ColumnItem, ...] = ()
    partitioned_by: tuple[Piece, ...] = ()
    comment: Piece | None = None
    options: PairList | None = None
    freshness: Piece | None = None
    refresh_mode: Piece | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterDynamicTable(Statement):
    """Base of the ``ALTER DYNAMIC TABLE name …`` statements."""

    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend(AlterDynamicTable):
    """``… SUSPEND``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(AlterDynamicTable):
    """``… RESUME [WITH (…)]``."""

    options: PairList | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshTable(AlterDynamicTable):
    """``… REFRESH [PARTITION (…) [TO (…)]]``: one partition, an inclusive range of partitions, or the full table."""

    partition: PairList | None = None
    until: PairList | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFreshness(AlterDynamicTable):
    """``… SET FRESHNESS = INTERVAL '1' DAY``."""

    freshness: Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRefreshMode(AlterDynamicTable):
    """``… SET REFRESH_MODE = FULL``."""

    refresh_mode: Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOptions(AlterDynamicTable):
    """``… SET ('key' = 'value', …)``."""

    options: PairList


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOptions(AlterDynamicTable):
    """``… RESET ('key', …)``."""

    keys: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameTo(AlterDynamicTable):
    """``… RENAME TO new_name``; missing parts of a short name are those of the old name."""

    new_name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterQuery(AlterDynamicTable):
    """``… AS query``."""

    query: Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDynamicTable(Statement):
    """``DROP DYNAMIC TABLE [IF EXISTS] name [PURGE]``; PURGE also deletes the data."""

    name: Name
    if_exists: bool = False
    purge: bool = False


class Kind(StrEnum):
    """Kind of object that SHOW lists."""

    DYNAMIC_TABLES = "DYNAMIC TABLES"
    TABLES = "TABLES"
    VIEWS = "VIEWS"
    FUNCTIONS = "FUNCTIONS"
    DATABASES = "DATABASES"
    CATALOGS = "CATALOGS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Show(Statement):
    """``SHOW DYNAMIC TABLES [{FROM | IN} [catalog.]database] [[NOT] LIKE 'pattern']``, and likewise for other kinds.

    ``within`` is a database, or for DATABASES a catalog; ``None`` is the current one. In ``like``, ``%`` matches any text and
    ``_`` any single character.
    """

    kind: Kind
    within: Name | None = None
    like: Piece | None = None
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreate(Statement):
    """``SHOW CREATE DYNAMIC TABLE name``."""

    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe(Statement):
    """``{DESCRIBE | DESC} [EXTENDED] name``."""

    name: Name
    extended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain(Statement):
    """``EXPLAIN statement``, for CREATE DYNAMIC TABLE, ALTER … AS, ALTER … REFRESH or a query."""

    explained: CreateDynamicTable | AlterQuery | RefreshTable | Query


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Statement):
    """``SELECT …`` or any other query; its content is validated when it is executed."""

    text: Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Use(Statement):
    """``USE [catalog.]database``, or ``USE CATALOG catalog``, for which ``database`` is ``None``."""

    catalog: str | None
    database: str | None
    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDatabase(Statement):
    """``CREATE DATABASE [IF NOT EXISTS] [catalog.]database [COMMENT '…'] [WITH (…)]``."""

    name: Name
    if_not_exists: bool = False
    comment: Piece | None = None
    options: PairList | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDatabase(Statement):
    """``DROP DATABASE [IF EXISTS] [catalog.]database [RESTRICT | CASCADE]``."""

    name: Name
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateView(Statement):
    """``CREATE VIEW [IF NOT EXISTS] name [COMMENT '…'] AS query``."""

    name: Name
    query: Piece
    if_not_exists: bool = False
    comment: Piece | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropView(Statement):
    """``DROP VIEW [IF EXISTS] name``."""

    name: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateFunction(Statement):
    """``CREATE FUNCTION [IF NOT EXISTS] name AS 'class' [LANGUAGE {JAVA | PYTHON}] [WITH (…)]``.

    ``language`` is in lower case, as in the catalogs.
    """

    name: Name
    implementation: Piece
    if_not_exists: bool = False
    language: str = "java"
    options: PairList | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropFunction(Statement):
    """``DROP FUNCTION [IF EXISTS] name``."""

    name: Name
    if_exists: bool = False
