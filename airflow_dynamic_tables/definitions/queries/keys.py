"""From which column of which table a returned column comes just as it is, row by row; only where that is plain to see."""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from airflow_dynamic_tables.definitions.queries.dialect import SparkSQL

_ELSEWHERE = (exp.With, exp.Subquery, exp.SetOperation, exp.Window, exp.Lateral, exp.Pivot, exp.Limit, exp.Offset, exp.Fetch)
"""What lets rows of one value decide rows of another one, or hides where they come from."""

_PLAIN_GROUP = {"expressions"}
_PLAIN_JOINS = {"", "INNER", "CROSS", "LEFT", "SEMI", "ANTI"}


def origin(query: str, column: str) -> tuple[str, str] | None:
    """See :func:`airflow_dynamic_tables.definitions.queries.text.origin`."""
    try:
        root = sqlglot.parse_one(query, dialect=SparkSQL)
    except (SqlglotError, RecursionError):
        return None
    if not isinstance(root, exp.Select) or root.find(*_ELSEWHERE) or len(list(root.find_all(exp.Query))) != 1:
        return None
    returned = [item for item in root.selects if item.alias_or_name.lower() == column.lower()]
    plain = returned[0].unalias() if len(returned) == 1 else None
    if not isinstance(plain, exp.Column) or plain.args.get("db") or any(item.is_star for item in root.selects):
        return None
    table = _table_of(root, plain)
    if table is None or not _is_grouped_by(root, plain):
        return None
    names = [part.name for part in table.parts]
    return (".".join(names), plain.name) if not any("." in name for name in names) else None


def _table_of(root: exp.Select, column: exp.Column) -> exp.Table | None:
    """The only table that the column can be of: the first one, as others may not have a row for each of its rows."""
    first = root.args["from_"].this if root.args.get("from_") else None
    joins = root.args.get("joins") or []
    tables = [first, *(join.this for join in joins)]
    if not isinstance(first, exp.Table) or not all(isinstance(table, exp.Table) for table in tables):
        return None
    if any({join.side.upper(), join.kind.upper(), join.method.upper()} - _PLAIN_JOINS for join in joins):
        return None
    names = [tuple(part.name.lower() for part in table.parts) for table in tables]
    is_first = column.table.lower() == first.alias_or_name.lower() if column.table else not joins
    return first if is_first and names.count(names[0]) == 1 else None


def _is_grouped_by(root: exp.Select, column: exp.Column) -> bool:
    group = root.args.get("group")
    if group is None:
        return True
    if {name for name, value in group.args.items() if value} - _PLAIN_GROUP:
        return False
    return any(isinstance(one, exp.Column) and one.name.lower() == column.name.lower() for one in group.expressions)
