"""Filters of sources: the conditions of a query without which a row of a source has no effect on its result.

A condition of WHERE or ON filters the relations of its FROM whose rows it drops, and is traced down to the tables like a
partition key: through columns of subqueries, and to other relations whose columns are equated with its own. Each place where
the query reads a table has filters of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from airflow_dynamic_tables.core.refresh.conditions import (
    NEGATED,
    AllOf,
    AnyOf,
    Compared,
    Condition,
    Filter,
    NullTest,
    SourceFilters,
    columns_in,
    formulas_in,
    over,
)
from airflow_dynamic_tables.core.refresh.key_sources import ColumnTypes, Formula, KeyColumn, Literal, ObstacleCode, columns_of
from airflow_dynamic_tables.definitions.queries.dialect import SparkSQL
from airflow_dynamic_tables.definitions.queries.formulas import (
    LARGEST,
    NoFormulaError,
    Resolve,
    formula_of,
    has_only,
    size_of,
    substituted,
)
from airflow_dynamic_tables.definitions.queries.joins import Joins, conjuncts
from airflow_dynamic_tables.definitions.queries.lineage import (
    TracedTypes,
    check_clauses,
    check_windows,
    over_items,
    own_nodes,
    tables_below,
    why_unreadable,
)
from airflow_dynamic_tables.definitions.queries.relations import (
    BlockedError,
    Env,
    Relation,
    branches,
    by_position,
    full_name,
    offset_of,
    output,
    relations_of,
    select_of,
    unwrapped,
    with_env,
)

_MOST_PLACES = 1_000
"""Limit of the parts of a query that are visited, each with each set of filters."""

_LONGEST_TEXT = 100
"""Maximum number of characters of a condition in a reason."""

_PLAIN_TEXT = re.compile(r"[^\\\x00-\x1f]*")
_DECIMAL = re.compile(r"\d{1,30}(\.\d{1,30})?", re.ASCII)

_SIGNS: Mapping[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}

_UNKNOWN = AllOf(())
"""A condition that is not analysed."""


def find_filters(query: str, types: ColumnTypes, settings: Mapping[str, str]) -> dict[str, SourceFilters]:
    """See :func:`airflow_dynamic_tables.definitions.queries.text.source_filters`."""
    if why_unreadable(query, settings) is not None:
        return {}
    finder = _Finder(types)
    try:
        root = sqlglot.parse_one(query, dialect=SparkSQL)
        finder.visit(unwrapped(Relation("", root, {})), ())
    except (SqlglotError, RecursionError, BlockedError):
        return {}
    if len(finder.visited) > _MOST_PLACES:
        return {}
    # A table in a part of the query that is not visited has no filter.
    for table in root.find_all(exp.Table):
        if id(table) not in finder.seen and table.args.get("db"):
            finder.add(table, ())
    return finder.filters()


class _Finder:
    """Visits the parts of a query and collects the filters at each table; ``seen`` are the tables, by their identity."""

    def __init__(self, types: ColumnTypes) -> None:
        self.seen: set[int] = set()
        self.visited: set[tuple[int, tuple[str, ...], tuple[Filter, ...]]] = set()
        self._types = TracedTypes(types, assumed=False)
        self._readings: dict[str, dict[tuple[Filter, ...], None]] = {}
        self._names: set[str] = set()

    def filters(self) -> dict[str, SourceFilters]:
        """Return the filters by table. Names that differ in their case may be one table."""
        return {name: SourceFilters(tuple(self._readings[name.lower()])) for name in self._names}

    def add(self, table: exp.Expr, filters: tuple[Filter, ...]) -> None:
        """Add a reading of a table, filtered by columns of known types."""
        self.seen.add(id(table))
        name = full_name(table)
        if name is None:
            raise SqlglotError("a name with dots")  # it may be any table
        typed = (_over(each, partial(self._typed, name)) for each in filters)
        known = tuple(each for each in typed if all(column.type is not None for column in columns_in(each.condition)))
        self._names.add(name)
        self._readings.setdefault(name.lower(), {})[known] = None

    def visit(self, relation: Relation, filters: tuple[Filter, ...]) -> None:
        """Visit a relation whose rows only have an effect if they meet filters over its columns."""
        node = relation.node
        place = id(node), relation.columns, filters
        if place in self.visited or len(self.visited) > _MOST_PLACES:
            return
        self.visited.add(place)
        if isinstance(node, exp.Select):
            self._select(node, relation.env, filters, partial(output, relation))
        elif isinstance(node, exp.SetOperation):
            self._set_operation(relation, filters)
        elif isinstance(node, exp.Table) and has_only(node, {"this", "db", "catalog", "alias"}) and node.args.get("db"):
            self.add(node, () if relation.columns else filters)
        else:
            self._without_filters(node, relation.env)

    def _without_filters(self, node: exp.Expr, env: Env) -> None:
        for table in tables_below(node, env):
            if table.args.get("db"):
                self.add(table, ())

    def _set_operation(self, relation: Relation, filters: tuple[Filter, ...]) -> None:
        try:
            parts = branches(relation)
        except BlockedError:
            self._without_filters(relation.node, relation.env)
            return
        items: dict[str, list[exp.Expr]] = {}
        for name in {column.name for each in filters for column in columns_in(each.condition)}:
            with suppress(BlockedError):
                found = by_position(relation, parts, name)
                first, *others = (self._types.of_item(part, item) for part, item in zip(parts, found, strict=True))
                if all(self._types.are_same(first, other) for other in others):
                    items[name] = found
        known = tuple(each for each in filters if all(column.name in items for column in columns_in(each.condition)))
        for number, part in enumerate(parts):
            outputs = {name: found[number] for name, found in items.items()}
            self._select(select_of(part), part.env, known, outputs.__getitem__)

    def _select(self, select: exp.Select, env: Env, filters: tuple[Filter, ...], outputs: Outputs) -> None:
        own = list(own_nodes(select))
        try:
            relations, resolve = relations_of(select, env)
            known = with_env(select, env)
        except BlockedError:
            self._without_filters(select, env)
            return
        joins = Joins(select, relations, resolve, self._types)
        found: dict[str, dict[Filter, None]] = {relation.name: {} for relation in relations}
        for each in filters:
            with suppress(BlockedError):
                for name, traced in _spread(joins, _traced(each, select, own, outputs, resolve)):
                    found[name][traced] = None
        for each, names, is_of_all in _own_filters(select, relations, resolve):
            of = {column.relation for column in columns_in(each.condition)}
            if len(of) != 1 or not of <= names:
                continue
            found[of.pop()][each] = None
            if is_of_all:
                with suppress(BlockedError):
                    for name, traced in _spread(joins, each):
                        found[name][traced] = None
        for relation in relations:
            self.visit(relation, tuple(_without_relation(each) for each in found[relation.name]))
        for query in (each for each in own if isinstance(each, exp.Query | exp.Table)):
            self.visit(unwrapped(Relation("", query, known)), ())

    def _typed(self, table: str, formula: Formula) -> Formula:
        return substituted(formula, lambda part: self._types.typed(table, part) if isinstance(part, KeyColumn) else None)


Outputs = Callable[[str], exp.Expr]
"""Returns the item of a SELECT with a name; raises BlockedError if it is not certain."""


def _over(each: Filter, convert: Callable[[Formula], Formula]) -> Filter:
    return Filter(over(each.condition, convert), each.text, each.offset)


def _without_relation(each: Filter) -> Filter:
    """Return a filter over the columns of one relation, by their names alone."""

    def named(formula: Formula) -> Formula:
        return substituted(formula, lambda part: KeyColumn(part.name) if isinstance(part, KeyColumn) else None)

    return _over(each, named)


def _traced(each: Filter, select: exp.Select, own: Sequence[exp.Expr], outputs: Outputs, resolve: Resolve) -> Filter:
    """Return a filter of the result of a SELECT as one of its relations.

    :raises BlockedError: if rows that it drops may have an effect on others.
    """
    check_clauses(select, own)

    def traced(formula: Formula) -> Formula:
        found = over_items(formula, {column.name: outputs(column.name) for column in columns_of(formula)}, resolve)
        if size_of(found) > LARGEST:
            raise BlockedError(ObstacleCode.FORM, select, "", "")
        check_windows(select, own, found, resolve)
        return found

    return _over(each, traced)


def _spread(joins: Joins, each: Filter) -> Iterator[tuple[str, Filter]]:
    """Yield a filter of one relation, and those of the relations whose rows only join rows with the same values.

    :raises BlockedError: if rows that the filter drops may have an effect on others.
    """
    formulas = {formula for formula in formulas_in(each.condition) if any(columns_of(formula))}
    for formula in formulas:
        joins.check(formula)
    relations = {column.relation for column in columns_in(each.condition)}
    if len(relations) != 1:
        return
    yield relations.pop(), each
    if len(formulas) == 1:
        (formula,) = formulas
        for name, other in joins.spread(formula).items():
            yield name, _over(each, lambda part, other=other: other if part == formula else part)  # type: ignore[misc]  # its default


def _own_filters(select: exp.Select, relations: Sequence[Relation], resolve: Resolve) -> Iterator[tuple[Filter, set[str], bool]]:
    """Yield the filters of a SELECT with the relations that each may filter, and whether these are all that it keeps.

    A row that is not dropped but kept without a partner still has an effect.
    """
    names = {relation.name for relation in relations[:1]}
    for relation, join in zip(relations[1:], select.args.get("joins") or (), strict=True):
        on = join.args.get("on")
        match ("NATURAL" if join.method or join.args.get("pivots") else join.side.upper(), join.kind.upper()):
            case ("", "" | "INNER" | "CROSS"):
                names = names | {relation.name}
                yield from _filters_of(on, names, resolve, is_of_all=True)
            case ("LEFT", "" | "OUTER") | ("" | "LEFT", "ANTI"):
                yield from _filters_of(on, {relation.name}, resolve)
            case ("" | "LEFT", "SEMI"):
                yield from _filters_of(on, names | {relation.name}, resolve)
            case ("RIGHT", "" | "OUTER"):
                yield from _filters_of(on, names, resolve)
                names = {relation.name}
            case _:
                names = set()
    where = select.args.get("where")
    yield from _filters_of(where.this if where else None, names, resolve, is_of_all=True)


def _filters_of(
    whole: exp.Expr | None, names: set[str], resolve: Resolve, *, is_of_all: bool = False
) -> Iterator[tuple[Filter, set[str], bool]]:
    for part in conjuncts(whole):
        condition = _condition(part, resolve)
        if any(columns_in(condition)):
            text = " ".join(part.sql(dialect=SparkSQL).split())
            text = text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"
            yield Filter(condition, text, offset_of(part)), names, is_of_all


def _condition(expression: exp.Expr, resolve: Resolve, *, is_negated: bool = False) -> Condition:
    """Convert a condition; a part that is not analysed may hold."""
    node = expression.unnest()
    part = partial(_condition, resolve=resolve, is_negated=is_negated)
    match node:
        case exp.Not():
            return _condition(node.this, resolve, is_negated=not is_negated)
        case exp.And() | exp.Or():
            both = part(node.this), part(node.expression)
            return AllOf(both) if isinstance(node, exp.And) is not is_negated else AnyOf(both)
        case exp.Between() if not node.args.get("symmetric"):
            bounds = exp.GTE(this=node.this, expression=node.args["low"]), exp.LTE(this=node.this, expression=node.args["high"])
            both = part(bounds[0]), part(bounds[1])
            return AnyOf(both) if is_negated else AllOf(both)
        case exp.In() if has_only(node, {"this", "expressions"}) and node.expressions:
            each = tuple(part(exp.EQ(this=node.this, expression=one)) for one in node.expressions)
            return AllOf(each) if is_negated else AnyOf(each)
    try:
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            return NullTest(_operand(node.this, resolve), not is_negated)
        if (sign := _SIGNS.get(type(node))) is not None:
            left, right = (_operand(side, resolve) for side in (node.this, node.expression))
            return Compared(NEGATED[sign] if is_negated else sign, left, right)
    except NoFormulaError:
        pass
    return _UNKNOWN


def _operand(expression: exp.Expr, resolve: Resolve) -> Formula:
    """Convert one side of a comparison.

    :raises NoFormulaError: if it has an unknown part.
    """
    node = expression.unnest()
    number = node.this.unnest() if isinstance(node, exp.Neg) else node
    if isinstance(number, exp.Literal) and not number.is_string:
        if not _DECIMAL.fullmatch(str(number.this)):
            raise NoFormulaError(node)
        value = Decimal(str(number.this))
        return Literal(-value if isinstance(node, exp.Neg) else value)
    for text in node.find_all(exp.Literal):
        if text.is_string and not _PLAIN_TEXT.fullmatch(str(text.this)):
            raise NoFormulaError(node)  # its escapes are Spark's
    return formula_of(node, resolve)
