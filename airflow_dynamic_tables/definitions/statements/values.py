"""Statements as values: what was written, each part with the place where it stands.

Offsets count characters of the whole text, so that a file of several statements has one count. Names are as written, with the
back-quotes taken off; what a short one means is the caller's to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airflow_dynamic_tables.core.identifiers import join_name

SQL_SUFFIX = ".sql"
"""How the names of files end that hold statements, or a query."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a statement: what it says, and the offsets where it begins and ends.

    ``value`` is what is meant: of a string what stands between its quotes, of a word the word as it is written.
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
        """The name, with back-quotes where it needs them."""
        return join_name(*self.parts)


@dataclass(frozen=True, slots=True)
class Pair:
    """A key and its value: an option, or a partition key and the partition of it."""

    key: Piece
    value: Piece


@dataclass(frozen=True, slots=True)
class Group:
    """Pairs in parentheses; ``start`` is where the clause begins (``WITH``), ``end`` is behind its last parenthesis."""

    pairs: tuple[Pair, ...]
    start: int
    end: int

    def as_dict(self) -> dict[str, str]:
        """The values by their keys; the parser takes no key twice."""
        return {pair.key.value: pair.value.value for pair in self.pairs}


@dataclass(frozen=True, slots=True)
class ColumnItem:
    """A column of a column list, and its comment."""

    name: Piece
    comment: Piece | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What all statements have: where they begin and end, without the semicolon."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDynamicTable(Statement):
    """``CREATE [OR ALTER] DYNAMIC TABLE [IF NOT EXISTS] … AS query``: a declaration.

    ``freshness`` is as written (``INTERVAL '1' DAY``, ``1 day``). ``options`` has all that stands in WITH: options of the table,
    and the settings that have no clause of their own. ``as_at`` is where the keyword AS begins.
    """

    name: Name
    query: Piece
    as_at: int
    or_alter: bool = False
    if_not_exists: bool = False
    columns: tuple[ColumnItem, ...] = ()
    partitioned_by: tuple[Piece, ...] = ()
    comment: Piece | None = None
    options: Group | None = None
    freshness: Piece | None = None
    refresh_mode: Piece | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterDynamicTable(Statement):
    """``ALTER DYNAMIC TABLE name …``: what all of these have."""

    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend(AlterDynamicTable):
    """``… SUSPEND``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(AlterDynamicTable):
    """``… RESUME [WITH (…)]``."""

    options: Group | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refresh(AlterDynamicTable):
    """``… REFRESH [PARTITION (…) [TO (…)]]``: a partition, all from one to the other, both of them too, or the whole table."""

    partition: Group | None = None
    until: Group | None = None


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

    options: Group


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOptions(AlterDynamicTable):
    """``… RESET ('key', …)``."""

    keys: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameTo(AlterDynamicTable):
    """``… RENAME TO new_name``; a short one is of the catalog and database of the old one."""

    new_name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterQuery(AlterDynamicTable):
    """``… AS query``."""

    query: Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDynamicTable(Statement):
    """``DROP DYNAMIC TABLE [IF EXISTS] name [PURGE]``; PURGE deletes the data, too."""

    name: Name
    if_exists: bool = False
    purge: bool = False


class Kind(StrEnum):
    """What SHOW lists."""

    DYNAMIC_TABLES = "DYNAMIC TABLES"
    TABLES = "TABLES"
    VIEWS = "VIEWS"
    FUNCTIONS = "FUNCTIONS"
    DATABASES = "DATABASES"
    CATALOGS = "CATALOGS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Show(Statement):
    """``SHOW DYNAMIC TABLES [{FROM | IN} [catalog.]database] [[NOT] LIKE 'pattern']``, and likewise for other kinds.

    ``within`` is a database, of DATABASES a catalog; ``None``: the current one. In ``like``, ``%`` is any text and ``_`` any
    letter.
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
    """``EXPLAIN statement``: of CREATE DYNAMIC TABLE, ALTER … AS, ALTER … REFRESH or a query."""

    explained: CreateDynamicTable | AlterQuery | Refresh | Query


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Statement):
    """``SELECT …`` and whatever else begins a query; what stands in it is judged by whoever runs it."""

    text: Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Use(Statement):
    """``USE [catalog.]database`` or ``USE CATALOG catalog``: then ``database`` is ``None``."""

    catalog: str | None
    database: str | None
    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDatabase(Statement):
    """``CREATE DATABASE [IF NOT EXISTS] [catalog.]database [COMMENT '…'] [WITH (…)]``."""

    name: Name
    if_not_exists: bool = False
    comment: Piece | None = None
    options: Group | None = None


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

    ``language`` is in lower case, as catalogs have it.
    """

    name: Name
    implementation: Piece
    if_not_exists: bool = False
    language: str = "java"
    options: Group | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropFunction(Statement):
    """``DROP FUNCTION [IF EXISTS] name``."""

    name: Name
    if_exists: bool = False
