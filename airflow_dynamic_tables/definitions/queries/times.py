"""What queries say about the time of their run, and its value at another time.

Spark has no setting for the time that ``current_date`` and others return, so the job puts literals in their place. What Spark may
read in another way is left alone, and counts as nondeterministic.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from airflow_dynamic_tables.core.refresh.plan import BoundTime
from airflow_dynamic_tables.definitions.queries.dialect import SparkSQL

_DATE, _TIMESTAMP, _LTZ, _NTZ, _SECONDS = "date", "timestamp", "timestamp_ltz", "timestamp_ntz", "seconds"

_FUNCTIONS = {
    "current_date": _DATE,
    "curdate": _DATE,
    "current_timestamp": _LTZ,
    "now": _LTZ,
    "localtimestamp": _NTZ,
    "unix_timestamp": _SECONDS,
}
"""Functions of Spark that return the time when they have no argument, and their types."""

_NAMES = frozenset({"current_date", "current_timestamp"})
"""Those that Spark also calls without parentheses, if there is no column of that name."""

_TYPES = frozenset({_DATE, _TIMESTAMP, _LTZ, _NTZ})
_DAYS = {"now": None, "today": 0, "yesterday": -1, "tomorrow": 1}
"""Texts that are a time when they are converted to one: days from the midnight of today."""

_CASTS = frozenset({"cast", "try_cast"})

STRINGS = frozenset({TokenType.STRING, TokenType.RAW_STRING, TokenType.NATIONAL_STRING})

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class NamedTime:
    """A time that a query names: its place, its type, and for a midnight the days from today."""

    start: int
    end: int
    type: str
    days: int | None = None
    is_name: bool = False


def bind_times(query: str, at: datetime, timezone: str, settings: Mapping[str, str]) -> tuple[BoundTime, ...]:
    """See :func:`airflow_dynamic_tables.definitions.queries.text.bind_times`."""
    default = _NTZ if settings.get("spark.sql.timestampType", "").strip().upper() == "TIMESTAMP_NTZ" else _LTZ
    local = at.astimezone(ZoneInfo(timezone))
    return tuple(BoundTime(one.start, one.end, _sql(one, local, default), one.is_name) for one in times_named(query))


def _sql(named: NamedTime, now: datetime, default: str) -> str:
    if named.type == _SECONDS:
        return f"CAST({math.floor(now.timestamp())} AS BIGINT)"
    day = now.date() + timedelta(days=named.days or 0)
    if named.type == _DATE:
        return f"DATE '{day.isoformat()}'"
    then = now if named.days is None else datetime.combine(day, time(), now.tzinfo)
    if (default if named.type == _TIMESTAMP else named.type) == _NTZ:
        return f"TIMESTAMP_NTZ '{then.replace(tzinfo=None).isoformat(' ', 'microseconds')}'"
    return f"TIMESTAMP_LTZ '{then.astimezone(UTC).isoformat(' ', 'microseconds')}'"


@lru_cache(maxsize=1024)
def times_named(query: str) -> tuple[NamedTime, ...]:
    """Return the times that a query names, in their order, as far as it is certain how Spark reads them."""
    try:
        tokens = SparkSQL().tokenize(query)
    except SqlglotError:
        return ()
    # The name of a column without an alias is its expression, which another literal changes.
    if any(token.token_type is TokenType.IDENTIFIER and "(" in token.text for token in tokens):
        return ()
    found: list[NamedTime] = []
    for number in range(len(tokens)):
        named = _named(tokens, number)
        if named is not None and (not found or named.start >= found[-1].end):
            found.append(named)
    if any(named.is_name for named in found):
        taken = _names_of_columns(query, tokens)
        found = [named for named in found if not (named.is_name and query[named.start : named.end].lower() in taken)]
    return tuple(found)


def _named(tokens: Sequence[Token], number: int) -> NamedTime | None:
    """Return the time that begins at a token."""
    token = tokens[number]
    word = token.text.lower()
    before = tokens[number - 1].token_type if number else None
    after = [other.token_type for other in tokens[number + 1 : number + 3]]
    if token.token_type is TokenType.STRING:
        kind = _converted_to(tokens, number)
        return _of_text(token, kind, token.start) if kind else None
    if token.token_type is TokenType.IDENTIFIER or before is TokenType.DOT:
        return None
    if word in _TYPES and after[:1] == [TokenType.STRING]:
        return _of_text(tokens[number + 1], word, token.start)
    if word in _FUNCTIONS and after == [TokenType.L_PAREN, TokenType.R_PAREN]:
        return NamedTime(token.start, tokens[number + 2].end + 1, _FUNCTIONS[word])
    if word in _NAMES and after[:1] != [TokenType.L_PAREN]:
        return NamedTime(token.start, token.end + 1, _FUNCTIONS[word], is_name=True)
    return None


def _converted_to(tokens: Sequence[Token], number: int) -> str | None:
    """Return the type of a time to which ``CAST(... AS ...)`` or ``::`` converts a text."""
    before = [token.text.lower() for token in tokens[max(number - 2, 0) : number]]
    after = [token.text.lower() for token in tokens[number + 1 : number + 4]]
    is_cast = before[1:] == ["("] and before[0] in _CASTS and after[:1] == ["as"] and after[2:] == [")"]
    is_operator = (
        after[:1] == ["::"] and tokens[number - 1].token_type not in STRINGS and after[2:] not in (["with"], ["without"])
    )
    kind = after[1] if (is_cast or is_operator) and len(after) > 1 else None
    return kind if kind in _TYPES else None


def _of_text(text: Token, kind: str, start: int) -> NamedTime | None:
    word = text.text.strip().lower()
    is_plain = len(text.text) + 1 == text.end - text.start  # nothing is escaped
    return NamedTime(start, text.end + 1, kind, _DAYS[word]) if is_plain and word in _DAYS else None


def _names_of_columns(query: str, tokens: Sequence[Token]) -> frozenset[str]:
    """Return the possible names of columns that the query makes: its identifiers, words of its texts, and fields of structs."""
    try:
        root = sqlglot.parse_one(query, dialect=SparkSQL)
    except (SqlglotError, RecursionError):
        return _NAMES
    texts = (token.text.lower() for token in tokens if token.token_type in STRINGS)
    names = {identifier.name.lower() for identifier in root.find_all(exp.Identifier)}
    names |= {word for text in texts for word in _WORD.findall(text)}
    # struct(current_date) has a field of that name.
    is_field = any(isinstance(part.expression, exp.CurrentDate | exp.CurrentTimestamp) for part in root.find_all(exp.PropertyEQ))
    return frozenset(names) | _NAMES if is_field else frozenset(names)
