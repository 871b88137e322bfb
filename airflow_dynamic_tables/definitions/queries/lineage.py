"""Column lineage: the source columns that determine the rows of a returned column, and the columns affected by a change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from airflow_dynamic_tables.core.refresh.source_changes import Origin
from airflow_dynamic_tables.definitions.queries.dialect import SparkSQL

_ELSEWHERE = (exp.With, exp.Subquery, exp.SetOperation, exp.Window, exp.Lateral, exp.Pivot, exp.Limit, exp.Offset, exp.Fetch)
"""Constructs that let rows of one value affect rows of another value, or hide where rows come from."""

_PLAIN_GROUP = {"expressions"}
_PLAIN_JOINS = {"", "INNER", "CROSS", "LEFT", "SEMI", "ANTI"}
_PLAIN_UNION = {"this", "expression", "distinct"}


def origins(query: str, column: str) -> dict[str, Origin]:
    """See :func:`airflow_dynamic_tables.definitions.queries.text.origins`."""
    try:
        selects = list(_selects(sqlglot.parse_one(query, dialect=SparkSQL)))
    except (SqlglotError, RecursionError, _HiddenError):
        return {}
    names = [item.alias_or_name.lower() for item in selects[0].selects]
    if names.count(column.lower()) != 1:
        return {}
    place = names.index(column.lower())
    told: dict[str, set[str | None]] = {}
    for select in selects:
        for table, its in _columns_of_tables(select, place):
            told.setdefault(table, set()).add(its)
    is_itself = len(selects) == 1
    first = _name(selects[0].args["from_"].this) if is_itself and selects[0].args.get("from_") else None
    return {
        table: Origin(its, is_itself and table == first)
        for table, columns in told.items()
        for its in columns
        if its is not None and len(columns) == 1
    }


class _HiddenError(Exception):
    """The query has a form that is not analysed."""


def _selects(root: exp.Expr) -> Iterator[exp.Select]:
    """Yield the SELECTs of a union, from first to last."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.Subquery) and {name for name, value in node.args.items() if value} == {"this"}:
            waiting.append(node.this)
        elif isinstance(node, exp.Union) and not {name for name, value in node.args.items() if value} - _PLAIN_UNION:
            waiting += [node.expression, node.this]
        elif isinstance(node, exp.Select) and not node.find(*_ELSEWHERE) and len(list(node.find_all(exp.Query))) == 1:
            yield node
        else:
            raise _HiddenError


def _columns_of_tables(select: exp.Select, place: int) -> Iterator[tuple[str, str | None]]:
    """Yield every table of a SELECT, with its column that is returned at an index; ``None`` where that is uncertain."""
    first = select.args["from_"].this if select.args.get("from_") else None
    joins = select.args.get("joins") or []
    tables = [table for table in (first, *(join.this for join in joins)) if isinstance(table, exp.Table)]
    returned = _returned(select, place)
    is_plain = (
        isinstance(first, exp.Table)
        and len(tables) == 1 + len(joins)
        and not any({join.side.upper(), join.kind.upper(), join.method.upper()} - _PLAIN_JOINS for join in joins)
        and returned is not None
        and (returned.table.lower() == first.alias_or_name.lower() if returned.table else not joins)
        and _is_grouped_by(select, returned)
    )
    for number, table in enumerate(tables):
        name = _name(table)
        if name is None:
            continue
        column = None
        if is_plain and returned is not None and [_name(one) for one in tables].count(name) == 1:
            column = returned.name if number == 0 else _equal_column(joins[number - 1], tables[0], returned.name)
        yield name, column


def _returned(select: exp.Select, place: int) -> exp.Column | None:
    """Return the expression at an index of the result, if it is a plain column."""
    items = select.selects
    if place >= len(items) or any(item.is_star for item in items):
        return None
    plain = items[place].unalias()
    return plain if isinstance(plain, exp.Column) and not plain.args.get("db") else None


def _name(table: exp.Expr) -> str | None:
    """Return the full name of a table; ``None`` if a part contains a dot, because the joined name would be ambiguous."""
    names = [part.name for part in table.parts] if isinstance(table, exp.Table) else []
    return ".".join(names) if names and not any("." in name for name in names) else None


def _equal_column(join: exp.Join, first: exp.Table, column: str) -> str | None:
    """Return the column of a joined table that the join condition equates with a column of the first table."""
    if any(name.name.lower() == column.lower() for name in join.args.get("using") or ()):
        return column
    wanted = (first.alias_or_name.lower(), column.lower())
    for part in _conditions(join.args.get("on")):
        sides = (part.this, part.expression) if isinstance(part, exp.EQ) else ()
        if not sides or not all(isinstance(side, exp.Column) and not side.args.get("db") for side in sides):
            continue
        for one, other in (sides, sides[::-1]):
            if (one.table.lower(), one.name.lower()) == wanted and other.table.lower() == join.this.alias_or_name.lower():
                return str(other.name)
    return None


def _conditions(whole: exp.Expr | None) -> Iterator[exp.Expr]:
    waiting = [whole] if whole is not None else []
    while waiting:
        one = waiting.pop().unnest()
        if isinstance(one, exp.And):
            waiting += [one.this, one.expression]
        else:
            yield one


def _is_grouped_by(select: exp.Select, column: exp.Column) -> bool:
    group = select.args.get("group")
    if group is None:
        return True
    if {name for name, value in group.args.items() if value} - _PLAIN_GROUP:
        return False
    return any(isinstance(one, exp.Column) and one.name.lower() == column.name.lower() for one in group.expressions)


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
