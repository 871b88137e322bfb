"""Which tables a returned column tells apart, row by row; only where that is plain to see."""

from __future__ import annotations

from collections.abc import Iterator

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from airflow_dynamic_tables.core.refresh.moved import Origin
from airflow_dynamic_tables.definitions.queries.dialect import SparkSQL

_ELSEWHERE = (exp.With, exp.Subquery, exp.SetOperation, exp.Window, exp.Lateral, exp.Pivot, exp.Limit, exp.Offset, exp.Fetch)
"""What lets rows of one value decide rows of another one, or hides where they come from."""

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
    """The query has a form of which nothing is told."""


def _selects(root: exp.Expr) -> Iterator[exp.Select]:
    """The SELECTs whose rows are put together, from the first to the last."""
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
    """Every table that a SELECT reads, and which of its columns the returned one at a place is; ``None`` where none surely is."""
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
    """What is returned at a place, when that is just a column."""
    items = select.selects
    if place >= len(items) or any(item.is_star for item in items):
        return None
    plain = items[place].unalias()
    return plain if isinstance(plain, exp.Column) and not plain.args.get("db") else None


def _name(table: exp.Expr) -> str | None:
    """The full name of a table; ``None`` where a part has a dot, which would name another one."""
    names = [part.name for part in table.parts] if isinstance(table, exp.Table) else []
    return ".".join(names) if names and not any("." in name for name in names) else None


def _equal_column(join: exp.Join, first: exp.Table, column: str) -> str | None:
    """The column of a joined table that has to equal one of the first table, whatever else has to hold."""
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
    """What all has to hold for a condition to hold."""
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
