"""Search for the merge rule of a query and one of its sources.

A query is *linear* in a source if its result for more rows of the source is the former result and, as additional rows, the result
for the new rows alone. Groups of a linear query, and the newest row of each key, are merged by their keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from airflow_dynamic_tables.core.refresh.key_sources import ColumnTypes, Obstacle, ObstacleCode
from airflow_dynamic_tables.core.refresh.merge_rules import Average, MergeKind, MergeRule
from airflow_dynamic_tables.core.refresh.spark_settings import DEFAULTS
from airflow_dynamic_tables.definitions.queries.dialect import SparkSQL
from airflow_dynamic_tables.definitions.queries.formulas import has_only
from airflow_dynamic_tables.definitions.queries.lineage import TracedTypes, tables_below, why_unreadable
from airflow_dynamic_tables.definitions.queries.relations import (
    BlockedError,
    Relation,
    full_name,
    relations_of,
    select_of,
    unwrapped,
)

_ROWWISE = frozenset({"with_", "expressions", "from_", "joins", "where", "order", "sort", "cluster", "distribute", "hint"})
"""Clauses of a linear SELECT. Its order has no effect on the rows."""

_KEEPS_LEFT = {("", ""), ("", "INNER"), ("", "CROSS"), ("LEFT", ""), ("LEFT", "OUTER")}
_KEEPS_LEFT |= {(side, kind) for side in ("", "LEFT") for kind in ("SEMI", "ANTI")}
"""Joins whose result is linear in the tables before them, by side and kind."""

_KEEPS_RIGHT = {("", ""), ("", "INNER"), ("", "CROSS")}

_NOT_ROWWISE = (
    *(
        exp.AggFunc,
        exp.All,
        exp.Anonymous,
        exp.Any,
        exp.AnonymousAggFunc,
        exp.CombinedAggFunc,
        exp.Collate,
        exp.Dot,
        exp.Lateral,
        exp.Query,
    ),
    *(exp.QueryTransform, exp.Star, exp.Subquery, exp.TableSample, exp.UDTF, exp.Window, exp.WithinGroup),
)
"""Parts of an expression that may depend on several rows. Functions unknown to the parser may be aggregates."""

_MERGED_BY: Mapping[type[exp.Expr], str] = {exp.Count: "count", exp.Max: "max", exp.Min: "min", exp.Sum: "sum"}


_ANOTHER_TABLE = "compute it in another table"


class _NoRuleError(BlockedError):
    """The result does not follow."""

    def __init__(self, node: exp.Expr, cause: str, remedy: str) -> None:
        super().__init__(ObstacleCode.NOT_MERGED, node, cause, remedy)


def merge_rule(query: str, source: str, types: ColumnTypes, settings: Mapping[str, str]) -> MergeRule | Obstacle:
    """See :func:`airflow_dynamic_tables.definitions.queries.text.merge_rule`."""
    unknown = sorted(name for name, value in settings.items() if DEFAULTS.get(name) != value)
    if unknown:
        return _obstacle(f"{unknown[0]} is set", "leave the setting out")
    if (unreadable := why_unreadable(query, settings)) is not None:
        return replace(unreadable, code=ObstacleCode.NOT_MERGED)
    try:
        root = unwrapped(Relation("", sqlglot.parse_one(query, dialect=SparkSQL), {}))
        return _Finder(source, types).rule(root)
    except BlockedError as error:
        return replace(error.obstacle, code=ObstacleCode.NOT_MERGED)
    except (SqlglotError, RecursionError):
        return _obstacle("the query is not understood", "simplify it, or split it into views")


def _obstacle(cause: str, remedy: str) -> Obstacle:
    return Obstacle(ObstacleCode.NOT_MERGED, 0, cause, remedy, ())


class _Finder:
    """Finds the rule of a query and a source."""

    def __init__(self, source: str, types: ColumnTypes) -> None:
        self._source = source.lower()
        self._types = types
        self._empty: set[str] = set()
        self._unchanged: set[str] = set()

    def rule(self, root: Relation) -> MergeRule:
        """Return the rule of a query.

        :raises BlockedError: if there is none.
        """
        select = root.node
        if not isinstance(select, exp.Select):
            self._check_linear(root)
            return self._rule(root, MergeKind.APPEND)
        if select.args.get("group") or any(item.find(exp.AggFunc) for item in select.selects if not item.find(exp.Window)):
            return self._groups(root, select)
        if select.args.get("qualify"):
            return self._newest(root, root)
        relations, _ = relations_of(select, root.env)
        where = select.args.get("where")
        if len(relations) == 1 and where and isinstance(relations[0].node, exp.Select) and relations[0].node.find(exp.RowNumber):
            return self._newest(root, relations[0])
        self._check_linear(root)
        return self._rule(root, MergeKind.APPEND)

    def _rule(
        self,
        root: Relation,
        kind: MergeKind,
        keys: Sequence[str] = (),
        measures: Sequence[tuple[str, str]] = (),
        order: Sequence[tuple[str, str]] = (),
        averages: Sequence[Average] = (),
    ) -> MergeRule:
        if self._empty & (self._unchanged | {self._source}):
            cause = "a part of UNION ALL without new rows reads a table of another part"
            raise _NoRuleError(root.node, cause, "make a table of each part")
        return MergeRule(kind, frozenset(self._empty), tuple(keys), tuple(measures), tuple(order), tuple(averages))

    def _check_linear(self, relation: Relation) -> None:
        """Check that a relation is linear in the source.

        :raises _NoRuleError: if it is not.
        """
        node = relation.node
        if isinstance(node, exp.Table):
            if full_name(node) is None or not has_only(node, {"this", "db", "catalog", "alias"}):
                raise _NoRuleError(node, "a part of FROM is not analysed", "read a table there, or a view")
        elif isinstance(node, exp.Select):
            if not has_only(node, _ROWWISE):
                raise _NoRuleError(node, f"{_clause(node)} depends on several rows", _ANOTHER_TABLE)
            _check_rowwise([item for item in node.selects if not _is_star(item)])
            self._check_from(relation)
        elif isinstance(node, exp.Union) and not node.args.get("distinct"):
            self._check_union(relation)
        else:
            raise _NoRuleError(node, f"{node.key.upper()} depends on several rows", _ANOTHER_TABLE)

    def _check_union(self, relation: Relation) -> None:
        node = relation.node
        if not has_only(node, {"this", "expression", "distinct", "with_"}) or node.args.get("with_"):
            raise _NoRuleError(node, "a clause of UNION ALL is not analysed", "write it in the parts of UNION ALL")
        for part in (node.this, node.expression):
            found = unwrapped(Relation("", part, relation.env))
            if self._source in _tables(found):
                self._check_linear(found)
            else:
                self._empty_part(found)

    def _empty_part(self, part: Relation) -> None:
        """Let a part of UNION ALL that does not read the source return no rows, by one of its tables that is read as empty."""
        node = part.node
        while isinstance(node, exp.Select):
            relations, _ = relations_of(node, part.env)
            if not relations:
                break
            part = relations[0]
            node = part.node
        name = full_name(node) if isinstance(node, exp.Table) else None
        if name is None:
            raise _NoRuleError(node, "a part of UNION ALL reads no table", "read a table in it")
        other = _Finder(name, self._types)
        other._check_linear(part)
        self._empty.add(name.lower())

    def _check_from(self, relation: Relation) -> None:
        """Check that the rows of FROM and WHERE of a SELECT are linear in the source."""
        select = relation.node
        if not isinstance(select, exp.Select):
            raise _NoRuleError(select, "a part of FROM is not analysed", "read a table there, or a view")
        joins: list[exp.Join] = select.args.get("joins") or []
        _check_rowwise([join.args.get("on") for join in joins] + [select.args.get("where")])
        relations, _ = relations_of(select, relation.env)
        reading = [number for number, each in enumerate(relations) if self._source in _tables(each)]
        if len(reading) != 1:
            if reading:
                cause, remedy = "the source is read more than once", "compute one of the parts in another table"
            else:
                cause, remedy = "the source is read in an expression", "join it instead"
            raise _NoRuleError(relations[reading[1]].node if reading else select, cause, remedy)
        for number, join in enumerate(joins, start=1):
            words = (join.side.upper(), join.kind.upper())
            is_plain = not join.method and has_only(join, {"this", "side", "kind", "on", "using"})
            kept = _KEEPS_RIGHT if number == reading[0] else _KEEPS_LEFT
            if number >= reading[0] and (not is_plain or words not in kept):
                cause = f"{' '.join(filter(None, (*words, 'JOIN')))} depends on several rows"
                raise _NoRuleError(join, cause, "use an inner join, or a LEFT JOIN with the source on its left side")
        for number, each in enumerate(relations):
            if number != reading[0]:
                self._unchanged |= _tables(each)
        self._check_linear(relations[reading[0]])

    def _groups(self, root: Relation, select: exp.Select) -> MergeRule:
        group = select.args.get("group")
        if not has_only(select, _ROWWISE | {"group"}):
            raise _NoRuleError(select, "the groups are filtered or numbered", "filter and number them in another table")
        if group and (not has_only(group, {"expressions", "all"}) or group.find(exp.Cube, exp.Rollup, exp.GroupingSets)):
            raise _NoRuleError(group, "ROLLUP, CUBE and GROUPING SETS are not analysed", "make a table of each grouping")
        self._check_from(root)
        keys, measures, averages = [], [], []
        for item in select.selects:
            if isinstance(_aggregate(item)[0], exp.Avg):
                averages.append(self._average(root, item))
            elif (function := _measure(item)) is not None:
                measures.append((_name(item), function))
            else:
                _check_rowwise([item])
                keys.append(item)
        by = list(group.expressions) if group else []
        if group and group.args.get("all"):
            by = [item.unalias() for item in keys]
        grouped = [_grouped(expression, select) for expression in by]
        for expression in grouped:
            if expression not in [item.unalias() for item in keys]:
                raise _NoRuleError(expression, "the query groups by an expression that it does not return", "return it")
        for item in keys:
            if item.unalias() not in grouped and not isinstance(item.unalias(), exp.Literal):
                raise _NoRuleError(item, f"{item.sql(SparkSQL)} is computed from the groups", _ANOTHER_TABLE)
        return self._rule(root, MergeKind.GROUPS, [_name(item) for item in keys], measures, averages=averages)

    def _average(self, root: Relation, item: exp.Expr) -> Average:
        """Return an average, whose sum and count the query has to return, too."""
        average, condition = _aggregate(item)
        values = average.this
        _check_rowwise([values, condition])
        items = [(_aggregate(each), each) for each in select_of(root).selects]
        names = [
            next((_name(each) for part, each in items if _is_of(part, kind, values, condition)), "")
            for kind in (exp.Sum, exp.Count)
        ]
        if missing := [function for function, name in zip(("sum", "count"), names, strict=True) if not name]:
            told = item.unalias().sql(SparkSQL)
            parts = " and ".join(f"{function}{told.removeprefix('AVG')}" for function in missing)
            raise _NoRuleError(item, f"{told} is merged from its parts", f"add {parts} to the query")
        return Average(_name(item), names[0], names[1], TracedTypes(self._types, assumed=False).of_item(root, values))

    def _newest(self, root: Relation, numbered: Relation) -> MergeRule:
        """Return the rule of a query for the first row of each key.

        :param numbered: the SELECT that numbers the rows.
        """
        top, select = select_of(root), select_of(numbered)
        clauses = _ROWWISE - {"where", "joins"} if numbered is not root else _ROWWISE
        condition = top.args["where" if numbered is not root else "qualify"].this
        if numbered.columns or not has_only(top, clauses | ({"where"} if numbered is not root else {"qualify"})):
            cause = "the first rows of the keys are filtered or joined"
            raise _NoRuleError(top, cause, "filter and join them in another table")
        if not has_only(select, _ROWWISE | ({"qualify"} if numbered is root else set())):
            raise _NoRuleError(select, "the numbered rows are grouped or limited", "group them in another table")
        window = _numbering(condition, select)
        plain = [item for item in select.selects if not _is_star(item) and item.unalias() != window]
        _check_rowwise(plain)
        self._check_from(numbered)
        relations, _ = relations_of(select, numbered.env)
        inner = _Columns(select, window, is_single=len(relations) == 1)
        outer = inner if numbered is root else inner.within(top)
        by = window.args.get("partition_by") or []
        order = window.args["order"].expressions if window.args.get("order") else []
        if not by or not order:
            raise _NoRuleError(window, "the rows are numbered without a key or an order", "add PARTITION BY and ORDER BY")
        keys = [outer.name(expression) for expression in by]
        ordered = [(outer.name(one.this), _direction(one)) for one in order]
        return self._rule(root, MergeKind.NEWEST, keys, (), ordered)


class _Columns:
    """The names under which a query returns the columns of the SELECT that numbers its rows."""

    def __init__(self, select: exp.Select, window: exp.Window, *, is_single: bool) -> None:
        self._has_star = any(_is_star(item) for item in select.selects)
        self._is_single = is_single
        self._items = {_name(item): item.unalias() for item in select.selects if not _is_star(item) and item.unalias() != window}
        self._outer: dict[str, str] | None = None

    def within(self, top: exp.Select) -> _Columns:
        """Take into account the outer SELECT, which returns columns unchanged."""
        if len(top.selects) == 1 and _is_star(top.selects[0]):
            return self
        self._outer = {}
        for item in top.selects:
            column = item.unalias()
            if not isinstance(column, exp.Column) or _is_star(column):
                raise _NoRuleError(item, "the first rows of the keys are changed", "return their columns as they are")
            self._outer[column.name.lower()] = _name(item)
        return self

    def name(self, expression: exp.Expr) -> str:
        """Return the name of an input column in the result."""
        if not isinstance(expression, exp.Column) or not (self._is_single or expression.table):
            cause = f"{expression.sql(SparkSQL)} is not a column with the name of its table"
            raise _NoRuleError(expression, cause, "return a column with its value in an inner query")
        same = [name for name, item in self._items.items() if _is_column(item, expression)]
        column = expression.name.lower()
        if not same and self._has_star and self._is_single and column not in self._items:
            same = [column]
        for found in same:
            if self._outer is None or found in self._outer:
                return found if self._outer is None else self._outer[found]
        raise _NoRuleError(expression, f"the query does not return {expression.sql(SparkSQL)}", "return it")


def _is_column(item: exp.Expr, column: exp.Column) -> bool:
    if not isinstance(item, exp.Column) or item.name.lower() != column.name.lower():
        return False
    return not item.table or not column.table or item.table.lower() == column.table.lower()


def _numbering(condition: exp.Expr, select: exp.Select) -> exp.Window:
    """Return the window of ``row_number() = 1``."""
    if not isinstance(condition, exp.EQ) or not isinstance(condition.expression, exp.Literal) or condition.expression.this != "1":
        cause = "the rows are filtered by more than their number"
        raise _NoRuleError(condition, cause, "compare ROW_NUMBER() with 1 alone, and filter the rows in another table")
    numbered: exp.Expr = condition.this
    if isinstance(numbered, exp.Column):
        name = numbered.name.lower()
        items = [item for item in select.selects if not _is_star(item) and _name(item) == name]
        if len(items) != 1:
            raise _NoRuleError(numbered, f"column {name} is not the number of the rows", "compare ROW_NUMBER() with 1")
        numbered = items[0].unalias()
    if (
        not isinstance(numbered, exp.Window)
        or not isinstance(numbered.this, exp.RowNumber)
        or not has_only(numbered, {"this", "partition_by", "order", "over"})
    ):
        raise _NoRuleError(numbered, "the rows are not chosen by ROW_NUMBER()", "use ROW_NUMBER() with an order")
    return numbered


def _direction(ordered: exp.Expr) -> str:
    if not isinstance(ordered, exp.Ordered) or not has_only(ordered, {"this", "desc", "nulls_first"}):
        raise _NoRuleError(ordered, "the order of the rows is not analysed", "order them by columns")
    nulls = "FIRST" if ordered.args.get("nulls_first") else "LAST"
    return f"{'DESC' if ordered.args.get('desc') else 'ASC'} NULLS {nulls}"


def _grouped(expression: exp.Expr, select: exp.Select) -> exp.Expr:
    """Return the expression of an item of GROUP BY, which may be a position."""
    if not isinstance(expression, exp.Literal) or expression.is_string:
        return expression
    position = int(expression.this) if str(expression.this).isdecimal() else 0
    if not 1 <= position <= len(select.selects) or any(map(_is_star, select.selects)):
        raise _NoRuleError(expression, "GROUP BY has no position of the query", "write the expression instead")
    return select.selects[position - 1].unalias()


def _aggregate(item: exp.Expr) -> tuple[exp.Expr, exp.Expr | None]:
    """Return the expression of an item, and the condition of its FILTER."""
    node = item.unalias()
    return (node.this, node.expression.this) if isinstance(node, exp.Filter) else (node, None)


def _measure(item: exp.Expr) -> str | None:
    """Return the function that merges an aggregate; ``None`` if the item is no aggregate that is merged by itself."""
    node, condition = _aggregate(item)
    if type(node) not in _MERGED_BY:
        return None
    arguments = [each for each in (node.this, *node.expressions) if isinstance(each, exp.Expr)]
    _check_rowwise([condition, *(each for each in arguments if not isinstance(each, exp.Star))])
    return _MERGED_BY[type(node)]


def _is_of(part: tuple[exp.Expr, exp.Expr | None], kind: type[exp.Expr], values: exp.Expr, condition: exp.Expr | None) -> bool:
    """Return whether an item is a function of some values under the condition of a FILTER."""
    function, own = part
    return type(function) is kind and not function.expressions and (function.this, own) == (values, condition)


def _check_rowwise(nodes: Sequence[exp.Expr | None]) -> None:
    """Check that expressions depend on one row only."""
    for node in nodes:
        part = node.find(*_NOT_ROWWISE, exp.Distinct) if node is not None else None
        if part is not None:
            raise _NoRuleError(part, f"{part.sql(SparkSQL)} depends on several rows, or is not known", _ANOTHER_TABLE)


def _clause(select: exp.Select) -> str:
    """Return the name of the first clause of a SELECT that is not rowwise."""
    name = next(name for name, value in select.args.items() if value and name not in _ROWWISE)
    return {"group": "GROUP BY", "laterals": "LATERAL VIEW"}.get(name, name.upper())


def _is_star(item: exp.Expr) -> bool:
    return bool(item.is_star) and not isinstance(item.unalias(), exp.Count)


def _name(item: exp.Expr) -> str:
    name = item.alias_or_name.lower()
    if not name:
        raise _NoRuleError(item, f"{item.sql(SparkSQL)} has no name", "give it an alias")
    return name


def _tables(relation: Relation) -> set[str]:
    """Return the full names of all tables below a relation, in lower case; an empty name is one that is not certain."""
    return {(full_name(table) or "").lower() for table in tables_below(relation.node, relation.env)}
