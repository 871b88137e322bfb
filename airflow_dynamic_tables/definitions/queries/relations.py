"""The relations in FROM of a query, and the names of their columns, for partition lineage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from airflow_dynamic_tables.core.refresh.key_sources import Call, Formula, KeyColumn, Obstacle, ObstacleCode
from airflow_dynamic_tables.definitions.queries.formulas import SCALARS, NoFormulaError, has_only

_PLAIN_UNION = {"this", "expression", "distinct", "with_", "order", "sort", "cluster", "distribute", "limit", "offset", "fetch"}
_LIMITS = ("limit", "offset", "fetch")
_OPERATORS = (exp.Binary, exp.Neg, exp.Not, exp.Case, exp.Coalesce, exp.Window)
_ONE_COLUMN = (exp.Alias, exp.Column, exp.Literal, exp.Cast, exp.AggFunc, *_OPERATORS, *SCALARS)
"""Items of a SELECT that are certainly one column each; in an operator Spark refuses a function that returns several."""

Env = Mapping[str, "Relation"]
"""Common table expressions by their names in lower case."""


@dataclass(eq=False)
class Relation:
    """One relation of FROM, or the result of a query.

    ``node`` is the query or table with the common table expressions ``env``, ``columns`` are the new names of its columns.
    """

    name: str
    node: exp.Expr
    env: Env
    columns: tuple[str, ...] = ()


class BlockedError(Exception):
    """The key cannot be traced further."""

    def __init__(self, code: ObstacleCode, node: exp.Expr, cause: str, remedy: str) -> None:
        self.obstacle = Obstacle(code, offset_of(node), cause, remedy, ())
        super().__init__()


class ColumnFinder:
    """Finds the relation of a column in FROM of a SELECT."""

    def __init__(self, select: exp.Select, relations: Sequence[Relation]) -> None:
        self._names = [relation.name for relation in relations]
        self._generated = {
            column.name.lower()
            for lateral in select.args.get("laterals") or ()
            for column in (lateral.args["alias"].args.get("columns") if lateral.args.get("alias") else None) or ()
        }
        joins = select.args.get("joins") or []
        self._visible = [name for name, join in zip(self._names, [None, *joins], strict=False) if not hides_right(join)]
        self._merged = {name: self._merge(name, joins) for join in joins[:1] for name in used_columns(join)}

    def _merge(self, name: str, joins: Sequence[exp.Join]) -> Formula:
        """Return the column that joins with USING make of those with its name."""
        relations = self._names[:1]
        for relation, join in zip(self._names[1:], joins, strict=False):
            if name in used_columns(join) and join.side.upper() in ("RIGHT", "FULL"):
                relations = [relation] if join.side.upper() == "RIGHT" else [*relations, relation]
        columns = tuple(KeyColumn(name, relation) for relation in relations)
        return columns[0] if len(columns) == 1 else Call("coalesce", columns)

    def __call__(self, column: exp.Column) -> Formula:
        """Return the column with the name of its relation, or the columns that USING merges.

        :raises NoFormulaError: if the relation is not certain.
        """
        name = column.name.lower()
        if column.args.get("db") or not isinstance(column.this, exp.Identifier):
            raise NoFormulaError(column)
        if column.table:
            relation = column.table.lower()
        elif name in self._generated or not self._visible:
            raise NoFormulaError(column)
        elif name in self._merged:
            return self._merged[name]
        elif len(self._visible) == 1:
            relation = self._names[0]
        else:
            raise NoFormulaError(column)
        if self._names.count(relation) != 1:
            raise NoFormulaError(column)
        return KeyColumn(name, relation)


def unwrapped(relation: Relation) -> Relation:
    """Return a relation without the parentheses around its query."""
    node = relation.node
    while isinstance(node, exp.Subquery) and has_only(node, {"this"}):
        node = node.this
    return replace(relation, node=node)


def relation_of(node: exp.Expr, env: Env) -> Relation:
    """Return a relation of FROM."""
    name = node.alias_or_name.lower()
    alias = node.args.get("alias")
    columns = tuple(column.name.lower() for column in (alias.args.get("columns") if alias else None) or ())
    if isinstance(node, exp.Table) and has_only(node, {"this", "alias"}) and node.name.lower() in env:
        cte = env[node.name.lower()]
        return Relation(name, cte.node, cte.env, columns or cte.columns)
    if isinstance(node, exp.Subquery) and has_only(node, {"this", "alias"}) and isinstance(node.this, exp.Query):
        return unwrapped(Relation(name, node.this, env, columns))
    return Relation(name, node, env, columns)


def full_name(table: exp.Expr) -> str | None:
    """Return the full name of a table; ``None`` if a part contains a dot, because the joined name would be ambiguous."""
    names = [part.name for part in table.parts] if isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier) else []
    return ".".join(names) if names and not any("." in name for name in names) else None


def hides_right(join: exp.Join | None) -> bool:
    """Return whether a join returns no columns of the joined relation."""
    return join is not None and join.kind.upper() in ("SEMI", "ANTI")


def used_columns(join: exp.Join) -> list[str]:
    """Return the names in USING of a join."""
    return [column.name.lower() for column in join.args.get("using") or ()]


def offset_of(node: exp.Expr) -> int:
    """Return the offset of the first name in a node; 0 if it has none."""
    return min((each.meta["start"] for each in node.find_all(exp.Identifier) if "start" in each.meta), default=0)


def with_env(node: exp.Expr, env: Env) -> Env:
    """Return the common table expressions that a query can read."""
    clause = node.args.get("with_")
    if clause is None:
        return env
    if clause.args.get("recursive"):
        cause = "WITH RECURSIVE is not analysed"
        raise BlockedError(ObstacleCode.FORM, node, cause, "make a dynamic table of the recursion")
    known = dict(env)
    for cte in clause.expressions:
        columns = tuple(column.name.lower() for column in cte.args["alias"].args.get("columns") or ())
        known[cte.alias.lower()] = unwrapped(Relation("", cte.this, dict(known), columns))
    return known


def select_of(relation: Relation) -> exp.Select:
    """Return the SELECT of a relation that is one."""
    if not isinstance(relation.node, exp.Select):
        raise TypeError(type(relation.node))
    return relation.node


def relations_of(select: exp.Select, env: Env) -> tuple[list[Relation], ColumnFinder]:
    """Return the relations in FROM of a SELECT, and a function that finds the relation of a column."""
    known = with_env(select, env)
    clause = select.args.get("from_")
    nodes = [clause.this] if clause else []
    nodes += [join.this for join in select.args.get("joins") or ()]
    relations = [relation_of(node, known) for node in nodes]
    return relations, ColumnFinder(select, relations)


def check_limits(node: exp.Expr) -> None:
    """Check that a query returns all of its rows.

    :raises BlockedError: if it does not.
    """
    if any(node.args.get(name) for name in _LIMITS):
        cause = "LIMIT and OFFSET choose among the rows of all partitions"
        raise BlockedError(ObstacleCode.LIMIT, node, cause, "choose by ROW_NUMBER() OVER (PARTITION BY key ORDER BY …)")


def output(relation: Relation, name: str) -> exp.Expr:
    """Return the item of a SELECT with a name; a column of its single relation if it has a star instead."""
    select = select_of(relation)
    items = list(select.selects)
    if relation.columns:
        if len(relation.columns) != len(items) or relation.columns.count(name) != 1 or not _are_single(items):
            raise _no_column(select, name)
        return items[relation.columns.index(name)]
    named = [item for item in items if not item.is_star and item.alias_or_name.lower() == name]
    if len(named) == 1:
        return named[0]
    stars = [item for item in items if item.is_star]
    if named or len(stars) != 1 or any(stars[0].args.get(each) for each in ("except_", "replace", "rename")):
        raise _no_column(select, name)
    relations, _ = relations_of(select, relation.env)
    qualifier = stars[0].table if isinstance(stars[0], exp.Column) else ""
    if not qualifier and (len(relations) != 1 or select.args.get("laterals")):
        cause = f"column {name} is part of * over several tables"
        raise BlockedError(ObstacleCode.STAR, select, cause, "name the columns instead of *")
    return exp.column(name, table=qualifier or relations[0].name, quoted=True)


def branches(relation: Relation) -> list[Relation]:
    """Return the SELECTs of a set operation, from first to last.

    UNION, EXCEPT and INTERSECT compare complete rows, so they keep rows with different values of a column apart.
    """
    found = []
    waiting = [(relation.node, relation.env)]
    while waiting:
        node, env = waiting.pop()
        env = with_env(node, env) if not isinstance(node, exp.Select) else env
        if isinstance(node, exp.Subquery) and has_only(node, {"this", "with_"}):
            waiting.append((node.this, env))
        elif isinstance(node, exp.SetOperation) and has_only(node, _PLAIN_UNION):
            check_limits(node)
            waiting += [(node.expression, env), (node.this, env)]
        elif isinstance(node, exp.Select):
            found.append(Relation("", node, env))
        else:
            cause = "this part of the set operation is not analysed"
            raise BlockedError(ObstacleCode.FORM, node, cause, "make each part a plain SELECT")
    return found


def by_position(relation: Relation, parts: Sequence[Relation], name: str) -> list[exp.Expr]:
    """Return the items of all parts of a set operation that are a column of its result."""
    lists = [list(select_of(part).selects) for part in parts]
    if not all(map(_are_single, lists)):
        cause = "a part of the set operation has columns that it does not name, such as *"
        raise BlockedError(ObstacleCode.STAR, relation.node, cause, "name the columns of each part")
    names = list(relation.columns) or [item.alias_or_name.lower() for item in lists[0]]
    if names.count(name) != 1 or any(len(items) != len(names) for items in lists):
        raise _no_column(relation.node, name)
    return [items[names.index(name)] for items in lists]


def _are_single(items: Sequence[exp.Expr]) -> bool:
    return all(isinstance(item, _ONE_COLUMN) and not item.is_star for item in items)


def _no_column(node: exp.Expr, name: str) -> BlockedError:
    cause = f"it is not certain which column {name} is"
    return BlockedError(ObstacleCode.NO_COLUMN, node, cause, "give it a name that no other column has")
