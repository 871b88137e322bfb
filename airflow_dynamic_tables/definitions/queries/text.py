"""Queries as text with known places: which tables they read, what they return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.allowed import Ability, Allowed
from airflow_dynamic_tables.core.refresh.moved import Origin


@dataclass(frozen=True, slots=True)
class Span:
    """One name of the query, at its character offsets."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Reference:
    """A table that the query reads.

    ``alias_at`` is where an alias has to be put when it has no ``alias``; ``scope`` is the number of the SELECT that reads it.
    ``keyword_at`` is where the keyword of ``TABLE orders`` stands, which is short for ``SELECT * FROM orders``.
    """

    parts: tuple[Span, ...]
    alias: str | None
    alias_at: int
    scope: int
    keyword_at: int | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """One SELECT with its FROM clause.

    ``outer`` is the number of the SELECT whose columns are looked at next, and ``names`` are those of aliases and common
    table expressions of the FROM clause, in lower case.
    """

    outer: int | None
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Qualifier:
    """Names before a column (``raw.orders`` of ``raw.orders.amount``), and the number of the SELECT in which they stand.

    Those of a hint have no ``scope``: they may mean every table. ``of_result`` is set where columns of the result come before
    those of the tables, as in ORDER BY.
    """

    parts: tuple[Span, ...]
    scope: int | None
    of_result: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a query, at a character offset.

    It is ``unread`` when our own parser gave up: then Spark's may know better.
    """

    offset: int
    message: str
    unread: bool = False


@dataclass(frozen=True, slots=True)
class Need:
    """What a query can do besides SQL, at a character offset."""

    ability: Ability
    offset: int


@dataclass(frozen=True, slots=True)
class Analysis:
    """What the text of a query says by itself.

    ``text`` is the query without a final semicolon, ``outputs`` its column names (``None`` for one that has no plain name),
    or ``None`` when they depend on the tables. ``types`` are theirs, where a cast or a function tells. ``calls``
    are the names of the functions that SQL itself does not have. ``column_aliases`` are, in lower case, those of the names that
    qualifiers begin with that the query also gives to columns, anywhere.
    """

    text: str
    references: tuple[Reference, ...] = ()
    scopes: tuple[Scope, ...] = ()
    qualifiers: tuple[Qualifier, ...] = ()
    outputs: tuple[str | None, ...] | None = None
    types: tuple[str | None, ...] | None = None
    calls: tuple[tuple[Span, ...], ...] = ()
    needs: tuple[Need, ...] = ()
    problems: tuple[Problem, ...] = ()
    column_aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Condition:
    """What the text of a condition over one row says: the columns it looks at."""

    columns: tuple[Span, ...] = ()
    needs: tuple[Need, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """What a reference means: a table, and the SQL that takes the place of its name."""

    identifier: TableIdentifier
    sql: str


def analyse(query: str) -> Analysis:
    """Parse a query of Spark SQL; what is wrong with it is in ``problems``."""
    # sqlglot takes half a second to import, and most processes find every analysis in the cache.
    from airflow_dynamic_tables.definitions.queries import parsing

    return parsing.analyse(query)


def analyse_condition(text: str) -> Condition:
    """Parse a condition of Spark SQL over the columns of one row; what is wrong with it is in ``problems``."""
    from airflow_dynamic_tables.definitions.queries import parsing

    return parsing.analyse_condition(text)


def refusals(needs: Iterable[Need], allowed: Allowed) -> tuple[Problem, ...]:
    """A problem for everything that a query needs and may not do."""
    why = ((need.offset, allowed.refusal(need.ability)) for need in needs)
    return tuple(Problem(offset, message) for offset, message in why if message is not None)


def same_query(first: str, second: str) -> bool:
    """Whether two queries differ in nothing but white space, comments and the case of keywords."""
    from airflow_dynamic_tables.definitions.queries import parsing

    return first == second or parsing.same(first, second)


def variation(query: str, predicates: Iterable[str] = ()) -> str | None:
    """Why a query may give other rows though what it reads stays the same, without a full stop; ``None`` when it does not.

    :param predicates: conditions that decide which rows are kept or refused.
    """
    from airflow_dynamic_tables.definitions.queries import varying

    return varying.variation(query, predicates)


def origins(query: str, column: str) -> Mapping[str, Origin]:
    """By the full names of tables, the column of each by which a returned column tells its rows apart.

    A row of the result is then made of rows of that table with the same value alone, and of other tables, however they are
    joined or put together. Tables of which that is not plain to see are left out.
    """
    from airflow_dynamic_tables.definitions.queries import keys

    return keys.origins(query, column)
