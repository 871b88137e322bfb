"""Column lineage for people: which columns of tables a column of the result derives from.

Unlike partition lineage, it decides nothing, so it covers every query that sqlglot qualifies. Conditions are not origins.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.lineage import Node, lineage

from airflow_dynamic_tables.core.identifiers import split_name
from airflow_dynamic_tables.core.lineage import ColumnOrigin
from airflow_dynamic_tables.definitions.queries.dialect import SparkSQL

log = logging.getLogger(__name__)


def find_origins(query: str, columns: Mapping[str, Sequence[str]]) -> dict[str, tuple[ColumnOrigin, ...]]:
    """See :func:`airflow_dynamic_tables.definitions.queries.text.column_origins`."""
    try:
        parsed = sqlglot.parse_one(query, dialect=SparkSQL)
        tables = _tables(parsed, columns)
        # A table that is not in the schema has any column; one without columns would make the query invalid.
        known = {table: columns[name] for table, name in tables.items() if columns[name]}
        schema: dict[str, dict[str, str]] = {table: dict.fromkeys(names, "unknown") for table, names in known.items()}
        found = lineage(None, parsed, schema, dialect=SparkSQL, copy=False)
    except (SqlglotError, RecursionError) as error:
        log.debug("The lineage of columns is unknown: %s", error)
        return {}
    return {name: _origins(node, tables, columns) for name, node in found.items()}


def _tables(parsed: exp.Expr, columns: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Rename each table of a query to a word, and return the full names by these words.

    Only the last parts of a name may be written in the query.
    """
    full = {tuple(part.lower() for part in split_name(name)): name for name in columns}
    words: dict[str, str] = {}
    for table in list(parsed.find_all(exp.Table)):
        parts = tuple(part.name.lower() for part in table.parts)
        fitting = [name for each, name in full.items() if each[-len(parts) :] == parts]
        if len(fitting) != 1 or (len(parts) == 1 and _is_cte(table)):
            continue
        word = f"table_{sorted(columns).index(fitting[0])}"
        words[word] = fitting[0]
        if table.args.get("alias") is None:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
        for part, value in (("this", exp.to_identifier(word)), ("db", None), ("catalog", None)):
            table.set(part, value)
    return words


def _is_cte(table: exp.Table) -> bool:
    """Return whether the name is that of a common table expression of the query."""
    root = table.root()
    return any(cte.alias.lower() == table.name.lower() for cte in root.find_all(exp.CTE))


def _origins(node: Node, tables: Mapping[str, str], columns: Mapping[str, Sequence[str]]) -> tuple[ColumnOrigin, ...]:
    """Return the origins of a column; none if they are not all known, as the columns of a table are unknown."""
    found: dict[tuple[str, str], bool] = {}
    waiting = [(node, True)]
    while waiting:
        each, is_copy = waiting.pop()
        folded = each.name.rpartition(".")[2]
        if isinstance(each.expression, exp.Placeholder) or (isinstance(each.expression, exp.Table) and folded == "*"):
            return ()
        if isinstance(each.expression, exp.Table):
            if (name := tables.get(each.expression.name)) is not None:
                column = next((each for each in columns[name] if each.lower() == folded.lower()), folded)
                found[name, column] = found.get((name, column), True) and is_copy
            continue
        goes_on = is_copy and _is_copy(each.expression)
        waiting += [(below, goes_on) for below in each.downstream]
    return tuple(ColumnOrigin(table, column, is_copy) for (table, column), is_copy in sorted(found.items()))


def _is_copy(expression: exp.Expr) -> bool:
    return isinstance(expression.unalias(), exp.Column | exp.Query)
