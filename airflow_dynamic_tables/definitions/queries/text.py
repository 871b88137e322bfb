"""Analysis of the text of queries, and the rejection of text that Spark and sqlglot lex differently.

Spark continues a ``--`` comment after a backslash at the end of its line and ends it at a carriage return, reads comments and
quotes within a hint, and does not count a hint within a comment. Text that only Spark sees would run without validation.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.lineage import ColumnOrigin
from airflow_dynamic_tables.core.refresh.conditions import SourceFilters
from airflow_dynamic_tables.core.refresh.frozen import FrozenCondition
from airflow_dynamic_tables.core.refresh.key_joins import KeyJoins
from airflow_dynamic_tables.core.refresh.key_sources import ColumnTypes, Lineage, Obstacle
from airflow_dynamic_tables.core.refresh.merge_rules import MergeRule
from airflow_dynamic_tables.core.refresh.permissions import Ability, Allowed
from airflow_dynamic_tables.core.refresh.plan import BoundTime

_PIECE = re.compile(
    r"""
    (?P<quoted> (?<!\w)r'[^']*' | (?<!\w)r"[^"]*" | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*` )
    | (?P<line> --[^\n]* )
    | (?P<hint> /\*\+ (?:(?!\*/).)* )
    | (?P<block> /\* )
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_EDGE = re.compile(r"/\*\+?|\*/")

_TIME_WORDS = re.compile(r"current_|curdate|localtimestamp|now|today|tomorrow|unix_timestamp|yesterday", re.IGNORECASE)
"""Text without any of them names no time that can be bound."""

_WITHIN_HINT = re.compile(r"""--|/\*|['"]""")


def misread(query: str) -> Iterator[QueryProblem]:
    """Yield a problem for each comment and hint that Spark lexes differently."""
    position = 0
    while piece := _PIECE.search(query, position):
        position = piece.end()
        if piece["line"] is not None:
            yield from _line(query, piece)
        elif piece["hint"] is not None:
            if within := _WITHIN_HINT.search(piece["hint"], 3):
                yield QueryProblem(
                    piece.start() + within.start(), f"a hint cannot hold {within[0]}: for Spark it begins something else"
                )
        elif piece["block"] is not None:
            position, problems = _block(query, piece.start())
            yield from problems


def _line(query: str, comment: re.Match[str]) -> Iterator[QueryProblem]:
    if comment[0].endswith("\\") and comment.end() < len(query):
        yield QueryProblem(
            comment.end() - 1, "a backslash at the end of a comment: for Spark the next line is comment; remove it"
        )
    lone = comment[0].rstrip("\r").find("\r")
    if lone >= 0:
        yield QueryProblem(comment.start() + lone, "a carriage return in a comment: for Spark the comment ends there; remove it")


def _block(query: str, start: int) -> tuple[int, list[QueryProblem]]:
    """Return the end offset of a bracketed comment, which may be nested, and its problems."""
    problems = []
    depth = 0
    position = start
    while edge := _EDGE.search(query, position):
        position = edge.end()
        if edge[0] == "/*+":
            problems.append(QueryProblem(edge.start(), "a hint cannot stand in a comment: for Spark both end together"))
        depth += -1 if edge[0] == "*/" else 1
        if depth == 0:
            return position, problems
    return len(query), problems


@dataclass(frozen=True, slots=True)
class Span:
    """A name in the query, and its character offsets."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Reference:
    """A table that the query reads.

    ``alias_at`` is where an alias has to be inserted when it has no ``alias``; ``scope`` is the number of the SELECT that
    reads it. ``keyword_at`` is the offset of the keyword of ``TABLE orders``, which is short for ``SELECT * FROM orders``.
    """

    parts: tuple[Span, ...]
    alias: str | None
    alias_at: int
    scope: int
    keyword_at: int | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """One SELECT with its FROM clause.

    ``outer`` is the number of the SELECT whose columns are resolved next. ``names`` are the aliases and common table
    expressions of the FROM clause, in lower case.
    """

    outer: int | None
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Qualifier:
    """Names before a column (``raw.orders`` of ``raw.orders.amount``), and the number of the SELECT that contains them.

    Qualifiers of a hint have no ``scope``: they may refer to any table. ``of_result`` is set where columns of the result take
    precedence over those of the tables, as in ORDER BY.
    """

    parts: tuple[Span, ...]
    scope: int | None
    of_result: bool = False


@dataclass(frozen=True, slots=True)
class QueryProblem:
    """A problem of a query, at a character offset.

    ``unread`` is set when sqlglot failed to parse it: Spark's own parser may accept it.
    """

    offset: int
    message: str
    unread: bool = False


class FrozenConditionError(ValueError):
    """A text that is no condition of frozen partitions, with the position of the problem."""

    def __init__(self, problem: QueryProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Need:
    """A capability that a query needs besides SQL, at a character offset."""

    ability: Ability
    offset: int


@dataclass(frozen=True, slots=True)
class Analysis:
    """Result of the analysis of the text of a query.

    ``text`` is the query without a final semicolon. ``outputs`` are its column names (``None`` for one without a plain name),
    or ``None`` when they depend on the tables. ``types`` are their types, where a cast or a function determines them.
    ``calls`` are the names of functions that are not built into SQL. ``column_aliases`` are the first names of qualifiers that
    the query also uses as column aliases anywhere, in lower case.
    """

    text: str
    references: tuple[Reference, ...] = ()
    scopes: tuple[Scope, ...] = ()
    qualifiers: tuple[Qualifier, ...] = ()
    outputs: tuple[str | None, ...] | None = None
    types: tuple[str | None, ...] | None = None
    calls: tuple[tuple[Span, ...], ...] = ()
    needs: tuple[Need, ...] = ()
    problems: tuple[QueryProblem, ...] = ()
    column_aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Condition:
    """Result of the analysis of a condition on one row: the columns that it references."""

    columns: tuple[Span, ...] = ()
    needs: tuple[Need, ...] = ()
    problems: tuple[QueryProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a reference: a table, and the SQL that replaces its name."""

    identifier: TableIdentifier
    sql: str


def analyse(query: str) -> Analysis:
    """Parse a query of Spark SQL; ``problems`` lists its errors."""
    # sqlglot takes half a second to import, and most processes find every analysis in the cache.
    from airflow_dynamic_tables.definitions.queries import parsing

    return parsing.analyse(query)


def analyse_condition(text: str) -> Condition:
    """Parse a condition of Spark SQL on the columns of one row; ``problems`` lists its errors."""
    from airflow_dynamic_tables.definitions.queries import parsing

    return parsing.analyse_condition(text)


def parse_frozen(text: str) -> FrozenCondition:
    """Parse a condition of frozen partitions: comparisons of keys with values, of which ``{now - 30 days}`` is a time.

    :raises FrozenConditionError: if it is none.
    """
    from airflow_dynamic_tables.definitions.queries import freezing

    return freezing.parse_frozen(text)


def refusals(needs: Iterable[Need], allowed: Allowed) -> tuple[QueryProblem, ...]:
    """Return a problem for each need of a query that is not allowed."""
    why = ((need.offset, allowed.refusal(need.ability)) for need in needs)
    return tuple(QueryProblem(offset, message) for offset, message in why if message is not None)


def same_query(first: str, second: str) -> bool:
    """Return whether two queries differ only in white space, comments and the case of keywords."""
    if first == second:
        return True
    from airflow_dynamic_tables.definitions.queries import parsing

    return parsing.same(first, second)


def variation(
    query: str, predicates: Iterable[str] = (), *, times: Iterable[BoundTime] = (), steady: Collection[str] = ()
) -> str | None:
    """Return why a query is nondeterministic, without a full stop; ``None`` when it is deterministic.

    :param predicates: conditions that filter or reject rows.
    :param times: the times that are bound in the query, see :func:`bind_times`; they do not count.
    :param steady: names of functions that are declared to be deterministic.
    """
    from airflow_dynamic_tables.definitions.queries import nondeterminism as varying

    return varying.variation(query, predicates, times=times, steady=steady)


def bind_times(query: str, time: datetime, timezone: str, settings: Mapping[str, str]) -> tuple[BoundTime, ...]:
    """Return what a query says about the time of its run, with the values that Spark would give it at another time.

    :param settings: Spark settings of the query.
    """
    if _TIME_WORDS.search(query) is None:
        return ()
    from airflow_dynamic_tables.definitions.queries import times

    return times.bind_times(query, time, timezone, settings)


def lineage(
    query: str,
    key: str,
    types: ColumnTypes,
    settings: Mapping[str, str] = MappingProxyType({}),
    timezone: str = "UTC",
    *,
    assumed: bool = False,
) -> Lineage:
    """Return how each table that a query reads determines a column of its result.

    :param types: the known columns of the tables with their types, by full table names.
    :param settings: Spark settings of the query that are not defaults.
    :param assumed: whether columns of unknown types are taken to have the same type, as for a check without catalogs.
    """
    from airflow_dynamic_tables.definitions.queries import lineage as tracing

    return tracing.trace(query, key, types, settings, timezone, assumed=assumed)


def key_joins(
    query: str,
    dimension: str,
    facts: Collection[str],
    types: ColumnTypes,
    settings: Mapping[str, str] = MappingProxyType({}),
    *,
    assumed: bool = False,
) -> KeyJoins | Obstacle:
    """Return how a query joins a dimension with some other tables, or why it is not known which of their rows it concerns.

    :param dimension: its full name; ``facts`` are those of the other tables.
    :param types: as of :func:`lineage`, also for ``settings`` and ``assumed``.
    """
    from airflow_dynamic_tables.definitions.queries import key_joins as joining

    return joining.find_key_joins(query, dimension, facts, types, settings, assumed=assumed)


def merge_rule(
    query: str, source: str, types: ColumnTypes = MappingProxyType({}), settings: Mapping[str, str] = MappingProxyType({})
) -> MergeRule | Obstacle:
    """Return how the result of a query follows from its former result and the new rows of a source, or why it does not.

    :param types: the known columns of the tables with their types, by full table names.
    :param settings: Spark settings of the query that are not defaults.
    """
    from airflow_dynamic_tables.definitions.queries import merge_rules

    return merge_rules.merge_rule(query, source, types, settings)


def column_origins(query: str, columns: Mapping[str, Sequence[str]]) -> dict[str, tuple[ColumnOrigin, ...]]:
    """Return the columns of tables that each column of the result of a query derives from; empty if it is not analysed.

    :param columns: the columns of the tables, by full table names; none if they are unknown.
    """
    from airflow_dynamic_tables.definitions.queries import column_origins as tracing

    return tracing.find_origins(query, columns)


def source_filters(
    query: str, types: ColumnTypes, settings: Mapping[str, str] = MappingProxyType({})
) -> dict[str, SourceFilters]:
    """Return the conditions without which rows of each table that a query reads have no effect on its result.

    :param types: the known columns of the tables with their types, by full table names.
    :param settings: Spark settings of the query that are not defaults.
    """
    from airflow_dynamic_tables.definitions.queries import filters

    return filters.find_filters(query, types, settings)
