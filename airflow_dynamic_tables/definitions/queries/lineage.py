"""Partition lineage: the columns of the sources that determine a partition key of a query.

The key is traced from the result down to the tables, through each SELECT that keeps rows of different key values apart. What does
not is an obstacle: the tables below it feed every partition. A table that is read at several places feeds what each of them does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from airflow_dynamic_tables.core.refresh.key_sources import (
    ColumnTypes,
    Formula,
    KeyColumn,
    KeySource,
    Lineage,
    Obstacle,
    ObstacleCode,
    columns_of,
)
from airflow_dynamic_tables.core.refresh.spark_settings import DEFAULTS
from airflow_dynamic_tables.definitions.queries.dialect import SparkSQL
from airflow_dynamic_tables.definitions.queries.formulas import (
    LARGEST,
    NoFormulaError,
    Resolve,
    formula_of,
    has_only,
    is_function_of,
    size_of,
    substituted,
    type_of,
)
from airflow_dynamic_tables.definitions.queries.joins import Joins, unjoined
from airflow_dynamic_tables.definitions.queries.relations import (
    BlockedError,
    Env,
    Relation,
    branches,
    by_position,
    check_limits,
    full_name,
    offset_of,
    output,
    relations_of,
    select_of,
    unwrapped,
    with_env,
)

_HARMLESS = frozenset(
    {"with_", "expressions", "from_", "joins", "laterals", "where", "group", "having", "qualify", "windows", "order", "sort"}
    | {"cluster", "distribute", "distinct", "hint", "limit", "offset", "fetch"}
)
"""Clauses of a SELECT that are analysed, or that do not matter."""

_ROWWISE = frozenset({"explode", "explodeouter", "posexplode", "posexplodeouter", "inline", "inlineouter", "jsontuple", "stack"})
"""Functions of LATERAL VIEW that depend on one row only, without underscores."""

_KNOWN_SETTINGS = (
    *("spark.sql.ansi.enabled", "spark.sql.extensions", "spark.sql.session.timeZone"),
    *(f"spark.sql.{reader}." for reader in ("avro", "csv", "files", "json", "orc", "parquet", "sources")),
    *("spark.sql.execution.", "spark.sql.join.", "spark.sql.optimizer.", "spark.sql.streaming."),
)
"""Settings that change neither what names mean nor the values of functions of partition keys."""

_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})


def trace(query: str, key: str, types: ColumnTypes, settings: Mapping[str, str], timezone: str, *, assumed: bool) -> Lineage:
    """See :func:`airflow_dynamic_tables.definitions.queries.text.lineage`."""
    if (unreadable := why_unreadable(query, settings)) is not None:
        return Lineage({}, (unreadable,))
    tracer = _Tracer(types, assumed)
    try:
        root = sqlglot.parse_one(query, dialect=SparkSQL)
        tracer.descend(unwrapped(Relation("", root, {})), KeyColumn(key.lower()))
    except (SqlglotError, RecursionError):
        return Lineage(
            {}, (_unreadable(ObstacleCode.UNREAD, "the query is not understood", "simplify it, or split it into views"),)
        )
    return Lineage(tracer.sources(timezone), tuple(tracer.obstacles), tracer.is_closed, tracer.type)


def trace_column(relation: Relation, name: str, types: ColumnTypes, *, assumed: bool) -> Lineage:
    """Return how tables determine a column of a relation of a query."""
    tracer = _Tracer(types, assumed, follows_subqueries=False)
    tracer.descend(relation, KeyColumn(name))
    return Lineage(tracer.sources("UTC"), tuple(tracer.obstacles), tracer.is_closed)


def why_unreadable(query: str, settings: Mapping[str, str]) -> Obstacle | None:
    """Return why nothing is known about the rows of a query; ``None`` if it is analysed."""
    unknown = (name for name, value in settings.items() if DEFAULTS.get(name) != value and not name.startswith(_KNOWN_SETTINGS))
    if (setting := next(unknown, None)) is not None:
        return _unreadable(ObstacleCode.SETTING, f"{setting} may change what the query means", "leave the setting out")
    if "|>" in query:
        remedy = "write the query with the clauses of SELECT"
        return _unreadable(ObstacleCode.FORM, "the pipe operator |> is not analysed", remedy)
    return None


def _unreadable(code: ObstacleCode, cause: str, remedy: str) -> Obstacle:
    return Obstacle(code, 0, cause, remedy, ())


class _Tracer:
    """The tables reached so far: ``found`` has the formulas of the key, ``blocked`` the tables that feed every partition."""

    def __init__(self, types: ColumnTypes, assumed: bool, *, follows_subqueries: bool = True) -> None:
        self.found: dict[str, list[Formula]] = {}
        self.blocked: set[str] = set()
        self.obstacles: list[Obstacle] = []
        self._is_interrupted = False
        self._types = TracedTypes(types, assumed)
        self._follows_subqueries = follows_subqueries
        self._visited: set[tuple[int, tuple[str, ...], Formula]] = set()

    def descend(self, relation: Relation, formula: Formula) -> None:
        """Trace a formula of the columns of a relation to its tables."""
        node = relation.node
        place = id(node), relation.columns, formula
        if place in self._visited:
            return
        self._visited.add(place)
        names = list(dict.fromkeys(column.name for column in columns_of(formula)))
        try:
            if size_of(formula) > LARGEST:
                raise BlockedError(ObstacleCode.FORM, node, "the key is a very long expression", "make a column of it")
            if isinstance(node, exp.SetOperation):
                self._set_operation(relation, formula, names)
            elif isinstance(node, exp.Select):
                self._select(node, relation.env, formula, {name: output(relation, name) for name in names})
            else:
                self._table(relation, formula)
        except BlockedError as error:
            self._is_interrupted = True
            self._block(node, relation.env, error.obstacle)

    @property
    def is_closed(self) -> bool:
        """Whether the key of every row was traced to a table that does not feed every partition in another place."""
        blocked = {name.lower() for name in self.blocked}
        return not self._is_interrupted and bool(self.found) and blocked.isdisjoint(name.lower() for name in self.found)

    @property
    def type(self) -> str | None:
        """The type of the key; ``None`` if it is unknown."""
        types = {type_of(formula, lambda column: column.type) for formulas in self.found.values() for formula in formulas}
        return types.pop() if len(types) == 1 else None

    def sources(self, timezone: str) -> dict[str, KeySource]:
        """Return how tables determine the key. Names that differ in their case may be one table."""
        blocked = {name.lower() for name in self.blocked}
        formulas: dict[str, list[Formula]] = {}
        for name, found in self.found.items():
            formulas.setdefault(name.lower(), []).extend(found)
        return {name: KeySource(tuple(formulas[name.lower()]), timezone) for name in self.found if name.lower() not in blocked}

    def _table(self, relation: Relation, formula: Formula) -> None:
        name = full_name(relation.node)
        if name is None or relation.columns or not has_only(relation.node, {"this", "db", "catalog", "alias"}):
            cause = "this part of FROM is not analysed"
            raise BlockedError(ObstacleCode.FORM, relation.node, cause, "read the table plainly, or make a view of it")
        own = substituted(formula, lambda part: self._types.typed(name, part) if isinstance(part, KeyColumn) else None)
        if own not in self.found.setdefault(name, []):
            self.found[name].append(own)

    def _set_operation(self, relation: Relation, formula: Formula, names: Sequence[str]) -> None:
        parts = branches(relation)
        items = {name: by_position(relation, parts, name) for name in names}
        for name, found in items.items():
            first, *others = (self._types.of_item(part, item) for part, item in zip(parts, found, strict=True))
            if not all(self._types.are_same(first, other) for other in others):
                cause = f"the parts of the {relation.node.key.upper()} have column {name} in different or unknown types"
                raise BlockedError(ObstacleCode.TYPES, relation.node, cause, "cast it to one type in each part")
        for number, part in enumerate(parts):
            self._select(select_of(part), part.env, formula, {name: found[number] for name, found in items.items()})

    def _select(self, select: exp.Select, env: Env, formula: Formula, outputs: Mapping[str, exp.Expr]) -> None:
        """Trace a formula of outputs of a SELECT to its relations."""
        own = list(own_nodes(select))
        try:
            relations, resolve = relations_of(select, env)
            joins = Joins(select, relations, resolve, self._types)
            inner = over_items(formula, outputs, resolve)
            check_clauses(select, own)
            check_windows(select, own, inner, resolve)
            joins.check(inner)
            known = joins.spread(inner)
        except BlockedError as error:
            self._is_interrupted = True
            self._block(select, env, error.obstacle)
            return
        for relation, join in zip(relations, [None, *(select.args.get("joins") or ())], strict=True):
            if relation.name in known:
                self.descend(relation, known[relation.name])
            else:
                self._block(relation.node, relation.env, unjoined(relation, join))
        inside = with_env(select, env)
        for query in (each for each in own if isinstance(each, exp.Query | exp.Table)):
            if self._follows_subqueries and self._by_in(joins, query, unwrapped(Relation("", query, inside)), known):
                continue
            cause = "this subquery outside FROM is not followed"
            remedy = "write WHERE ds IN (SELECT …) with the key, or a join, such as LEFT SEMI JOIN, whose condition names the key"
            self._block(query, inside, Obstacle(ObstacleCode.SUBQUERY, offset_of(query), cause, remedy, ()))

    def _by_in(self, joins: Joins, query: exp.Expr, relation: Relation, known: Mapping[str, Formula]) -> bool:
        """Trace the key to a subquery if IN keeps only rows for which it returns the key; return whether it does.

        NOT IN also depends on other rows: on nulls, and for a null key on any.
        """
        found = joins.key_in(query, relation, known)
        if found is None:
            return False
        # A subquery restricts rows, so the keys are still those of the relations.
        is_interrupted = self._is_interrupted
        self.descend(*found)
        self._is_interrupted = is_interrupted
        return True

    def _block(self, node: exp.Expr, env: Env, obstacle: Obstacle) -> None:
        """Record that all tables below a node feed every partition."""
        tables = {full_name(table) or "": None for table in tables_below(node, env)}
        self.blocked |= {*tables}
        told = replace(obstacle, sources=tuple(name for name in tables if "." in name))
        if told.sources and told not in self.obstacles:
            self.obstacles.append(told)


def tables_below(node: exp.Expr, env: Env) -> Iterator[exp.Table]:
    """Yield the tables that a node reads, also through common table expressions."""
    waiting = [(node, env)]
    seen = set()
    while waiting:
        below, names = waiting.pop()
        for table in below.find_all(exp.Table):
            cte = names.get(table.name.lower()) if not table.args.get("db") else None
            if cte is None:
                yield table
            elif id(cte.node) not in seen:
                seen.add(id(cte.node))
                waiting.append((cte.node, cte.env))


class TracedTypes:
    """The types of the columns of relations, see :class:`~airflow_dynamic_tables.definitions.queries.joins.RelationTypes`."""

    def __init__(self, types: ColumnTypes, assumed: bool) -> None:
        self._of_tables = {table: {name.lower(): kind for name, kind in columns.items()} for table, columns in types.items()}
        self._assumed = assumed
        self._known: dict[tuple[int, tuple[str, ...], str], str | None] = {}

    @property
    def is_assumed(self) -> bool:
        """Whether unknown types are assumed to fit."""
        return self._assumed

    def typed(self, table: str, column: KeyColumn) -> KeyColumn:
        """Return a column of a table with its type."""
        return KeyColumn(column.name, "", self._of_tables.get(table, {}).get(column.name))

    def of(self, relation: Relation, name: str) -> str | None:
        """Return the type of a column; ``None`` if it is unknown."""
        if isinstance(relation.node, exp.Table):
            return self._of_tables.get(full_name(relation.node) or "", {}).get(name)
        place = id(relation.node), relation.columns, name
        if place not in self._known:
            self._known[place] = None
            with suppress(BlockedError):
                self._known[place] = self._of_query(relation, name)
        return self._known[place]

    def _of_query(self, relation: Relation, name: str) -> str | None:
        if isinstance(relation.node, exp.Select):
            return self.of_item(relation, output(relation, name))
        if not isinstance(relation.node, exp.SetOperation):
            return None
        parts = branches(relation)
        types = {self.of_item(part, item) for part, item in zip(parts, by_position(relation, parts, name), strict=True)}
        return types.pop() if len(types) == 1 else None

    def of_item(self, relation: Relation, item: exp.Expr) -> str | None:
        """Return the type of an expression over the relations of a SELECT; ``None`` if it is unknown."""
        try:
            relations, resolve = relations_of(select_of(relation), relation.env)
            by_name = {each.name: each for each in relations}
            return type_of(formula_of(item, resolve), lambda column: self.of(by_name[column.relation], column.name))
        except (BlockedError, NoFormulaError):
            return None

    def are_same(self, one: str | None, other: str | None) -> bool:
        """Return whether two types are, or are assumed to be, the same."""
        if one is None or other is None:
            return self._assumed
        return one == other or (one in _INTEGERS and other in _INTEGERS)


def over_items(formula: Formula, outputs: Mapping[str, exp.Expr], resolve: Resolve) -> Formula:
    """Replace the outputs in a formula by their expressions.

    :raises BlockedError: if one is no formula.
    """
    items: dict[str, Formula] = {}
    for name, item in outputs.items():
        try:
            items[name] = formula_of(item, resolve)
        except NoFormulaError as error:
            raise _no_formula(name, item, error.part) from error
    return substituted(formula, lambda part: items[part.name] if isinstance(part, KeyColumn) else None)


def check_clauses(select: exp.Select, own: Sequence[exp.Expr]) -> None:
    """Check that the clauses keep rows with different values of the key apart.

    :raises BlockedError: if they do not.
    """
    distinct, group = select.args.get("distinct"), select.args.get("group")
    is_plain = has_only(select, _HARMLESS) and not any(isinstance(each, exp.QueryTransform) for each in own)
    if not is_plain or (distinct and distinct.args.get("on")) or not all(map(_is_rowwise, select.args.get("laterals") or ())):
        cause = "this SELECT has a clause that is not analysed"
        raise BlockedError(ObstacleCode.FORM, select, cause, "write it as a plain SELECT")
    check_limits(select)
    if group and (not has_only(group, {"expressions", "all"}) or group.find(exp.Cube, exp.Rollup, exp.GroupingSets)):
        cause = "ROLLUP, CUBE and GROUPING SETS have rows of all partitions"
        raise BlockedError(ObstacleCode.GROUPING, group, cause, "make another table of the totals")


def _is_rowwise(lateral: exp.Lateral) -> bool:
    function = lateral.this.name.lower() if isinstance(lateral.this, exp.Anonymous) else lateral.this.key
    return bool(lateral.args.get("view")) and function.replace("_", "") in _ROWWISE


def check_windows(select: exp.Select, own: Sequence[exp.Expr], formula: Formula, resolve: Resolve) -> None:
    """Check that no window has rows with different values of the key.

    :raises BlockedError: if one has.
    """
    named = {each.name.lower(): each for each in select.args.get("windows") or ()}
    for window in (each for each in own if isinstance(each, exp.Window)):
        by = window.args.get("partition_by") or ()
        if not by and window.alias and window.alias.lower() in named:
            by = named[window.alias.lower()].args.get("partition_by") or ()
        known = set()
        for expression in by:
            with suppress(NoFormulaError):
                known.add(formula_of(expression, resolve))
        if not is_function_of(formula, known):
            remedy = "add the key, as the query returns it, to PARTITION BY; or join the rows of the days that it needs"
            raise BlockedError(ObstacleCode.WINDOW, window, "a window reaches over several partitions", remedy)


def own_nodes(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the nodes of a SELECT outside FROM; queries within it are yielded, but not their nodes."""
    waiting = [value for name, value in select.args.items() if name not in ("with_", "from_", "joins")]
    waiting += [join.args.get("on") for join in select.args.get("joins") or ()]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, exp.Expr):
            yield node
            if not isinstance(node, exp.Query):
                waiting += node.args.values()


def _no_formula(name: str, item: exp.Expr, part: exp.Expr) -> BlockedError:
    if isinstance(part, exp.Column):
        cause = f"it is not certain which table column {part.name} is of"
        return BlockedError(ObstacleCode.NO_COLUMN, part, cause, f"write the alias of its table before it, as in o.{part.name}")
    cause = f"{name} is computed by {part.key.upper()}, which is not evaluated for partition values"
    remedy = "use a column, date_trunc, date_format, to_date, substr, concat or a cast, or partition the source by the key"
    return BlockedError(ObstacleCode.FUNCTION, part if part.find(exp.Identifier) else item, cause, remedy)
