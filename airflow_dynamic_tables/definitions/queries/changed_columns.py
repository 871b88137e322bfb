"""The columns of a query whose values may differ when the query, or a table that it reads, changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from airflow_dynamic_tables.definitions.queries.dialect import SparkSQL

Touched = frozenset[str] | None
"""Columns that may have other values; ``None`` is all columns, because there may be other rows."""

ALL: Touched = None
NONE: Touched = frozenset()


@dataclass(frozen=True, slots=True)
class _Reads:
    """Names that a query references: by output, and elsewhere. ``outputs`` is ``None`` when the query is not simple."""

    outputs: tuple[tuple[str, frozenset[str]], ...] | None
    elsewhere: frozenset[str]
    has_star: bool


def changed_columns(before: str, now: str) -> Touched:
    """Return the columns whose values may differ between two queries over the same tables, including added and removed ones."""
    one, other = _plain(before), _plain(now)
    if one is None or other is None:
        return ALL
    mine, yours = _by_name(one), _by_name(other)
    if mine is None or yours is None or _rest(one) != _rest(other):
        return ALL
    changed = frozenset(name for name in mine.keys() | yours.keys() if mine.get(name) != yours.get(name))
    return ALL if changed and (_counts_columns(one) or _counts_columns(other)) else changed


def touched_columns(query: str, touched: Touched) -> Touched:
    """Return the columns of a query whose values may differ when the touched columns of its source table differ."""
    if touched == NONE:
        return NONE
    reads = _reads(query)
    if touched is None or reads.has_star or reads.elsewhere & touched:
        return ALL
    if reads.outputs is None:
        return NONE
    found: frozenset[str] = frozenset()
    while True:  # an output may be computed from others
        more = frozenset(name for name, names in reads.outputs if names & (touched | found))
        if more == found:
            return found
        found = more


@lru_cache(maxsize=4096)
def _reads(query: str) -> _Reads:
    root = _parsed(query)
    if root is None:
        return _Reads(None, frozenset(), has_star=True)
    has_star = root.find(exp.Star) is not None and any(not isinstance(star.parent, exp.Count) for star in root.find_all(exp.Star))
    select = _plain(query)
    outputs = _by_name(select) if select is not None else None
    if select is None or outputs is None or _counts_columns(select):
        return _Reads(None, _names([root]), has_star)
    named = tuple((name, _names([item])) for name, item in outputs.items())
    return _Reads(named, _names([_rest(select)]), has_star)


def _parsed(query: str) -> exp.Expr | None:
    try:
        return sqlglot.parse_one(query, dialect=SparkSQL)
    except (SqlglotError, RecursionError):
        return None


def _plain(query: str) -> exp.Select | None:
    """Return the query if it is a single SELECT, whatever it reads."""
    root = _parsed(query)
    return root if isinstance(root, exp.Select) else None


def _by_name(select: exp.Select) -> dict[str, exp.Expr] | None:
    """Return the outputs of a SELECT by name; ``None`` when some have no name, or names are not unique."""
    items = {item.alias_or_name.lower(): item.unalias() for item in select.selects if not item.is_star}
    return items if len(items) == len(select.selects) and "" not in items else None


def _rest(select: exp.Select) -> exp.Expr:
    """Return a SELECT without its outputs."""
    rest = select.copy()
    rest.set("expressions", [])
    return rest


def _counts_columns(select: exp.Select) -> bool:
    """Return whether the outputs of a SELECT decide which rows there are."""
    if select.args.get("distinct"):
        return True
    group = select.args.get("group")
    return group is not None and (bool(group.args.get("all")) or any(isinstance(key, exp.Literal) for key in group.expressions))


def _names(parts: Iterable[exp.Expr]) -> frozenset[str]:
    return frozenset(name.name.lower() for part in parts for name in part.find_all(exp.Identifier))
