"""Search for the joins of a dimension by its keys.

A row of the dimension is joined only with those rows of a fact of which a condition equates a column with its key.
Both columns are traced down to those of tables, like partition keys. Suppose that all places at which the query reads the
dimension are such joins, and that two versions of the dimension differ in the rows of some keys. Over the facts without rows of
these keys, the query returns the same for both versions. So it returns different rows only where these rows of the facts count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from airflow_dynamic_tables.core.refresh.key_joins import KeyJoin, KeyJoins, are_exact
from airflow_dynamic_tables.core.refresh.key_sources import ColumnTypes, KeyColumn, KeySource, Obstacle, ObstacleCode
from airflow_dynamic_tables.definitions.queries.dialect import SparkSQL
from airflow_dynamic_tables.definitions.queries.joins import Joins
from airflow_dynamic_tables.definitions.queries.lineage import (
    TracedTypes,
    own_nodes,
    tables_below,
    trace_column,
    why_unreadable,
)
from airflow_dynamic_tables.definitions.queries.relations import (
    BlockedError,
    Env,
    Relation,
    branches,
    full_name,
    offset_of,
    relations_of,
    unwrapped,
    with_env,
)


def find_key_joins(
    query: str, dimension: str, facts: Collection[str], types: ColumnTypes, settings: Mapping[str, str], *, assumed: bool
) -> KeyJoins | Obstacle:
    """See :func:`airflow_dynamic_tables.definitions.queries.text.key_joins`."""
    if (unreadable := why_unreadable(query, settings)) is not None:
        return unreadable
    finder = _Finder(dimension, facts, types, assumed)
    try:
        root = sqlglot.parse_one(query, dialect=SparkSQL)
        finder.visit(unwrapped(Relation("", root, {})))
    except BlockedError as error:
        return error.obstacle
    except (SqlglotError, RecursionError):
        return Obstacle(ObstacleCode.UNREAD, 0, "the query is not understood", "simplify it, or split it into views", ())
    for table in root.find_all(exp.Table):
        if finder.may_be_read(table) and id(table) not in finder.seen:
            cause = f"{dimension} is read in a part of the query that is not analysed"
            return Obstacle(ObstacleCode.FORM, offset_of(table), cause, "read it in a join", ())
    return KeyJoins(tuple(finder.joins), _used_columns(root))


class _Finder:
    """Visits the SELECTs that read the dimension; ``seen`` are the tables that do, by their identity, in a join by its key."""

    def __init__(self, dimension: str, facts: Collection[str], types: ColumnTypes, assumed: bool) -> None:
        self.joins: dict[KeyJoin, None] = {}
        self.seen: set[int] = set()
        self._dimension = dimension.lower()
        self._facts = {name.lower(): name for name in facts}
        self._types = types
        self._traced = TracedTypes(types, assumed)
        self._assumed = assumed
        self._visited: set[int] = set()

    def may_be_read(self, table: exp.Expr) -> bool:
        """Return whether a table may be the dimension."""
        if not table.args.get("db"):
            return False
        name = full_name(table)
        return name is None or name.lower() == self._dimension

    def visit(self, relation: Relation) -> None:
        """Visit a relation that reads the dimension in joins by its key, or not at all.

        :raises BlockedError: if it reads it in another way.
        """
        node = relation.node
        if not self._reads(node, relation.env) or id(node) in self._visited:
            return
        self._visited.add(id(node))
        if isinstance(node, exp.Select):
            self._select(node, relation.env)
        elif isinstance(node, exp.SetOperation):
            for part in branches(relation):
                self.visit(part)
        elif isinstance(node, exp.Table):
            raise _unjoined(relation)
        else:
            cause = "this part of FROM is not analysed"
            raise BlockedError(ObstacleCode.FORM, node, cause, "read the table in a plain join")

    def _reads(self, node: exp.Expr, env: Env) -> bool:
        return any(map(self.may_be_read, tables_below(node, env)))

    def _select(self, select: exp.Select, env: Env) -> None:
        known = with_env(select, env)
        for query in own_nodes(select):
            if isinstance(query, exp.Query | exp.Table) and self._reads(query, known):
                cause = "a subquery outside FROM is not followed"
                raise BlockedError(ObstacleCode.SUBQUERY, query, cause, "write it as a join, such as LEFT SEMI JOIN")
        relations, resolve = relations_of(select, env)
        joins = Joins(select, relations, resolve, self._traced)
        for relation in relations:
            if not self._reads(relation.node, relation.env):
                continue
            try:
                join = self._join(joins, relations, relation)
            except BlockedError as error:
                self._visit_inside(relation, error)
            else:
                self.joins[join] = None
                self.seen |= {id(table) for table in tables_below(relation.node, relation.env)}

    def _visit_inside(self, relation: Relation, error: BlockedError) -> None:
        """Visit a relation that is not joined itself, but may contain the join.

        :raises BlockedError: the given one if it contains none.
        """
        if not isinstance(relation.node, exp.SetOperation | exp.Select):
            raise error
        try:
            self.visit(relation)
        except BlockedError as inner:
            is_unjoined = inner.obstacle.code is ObstacleCode.JOIN and not relation.node.find(exp.Join)
            raise error if is_unjoined else inner from None

    def _join(self, joins: Joins, relations: list[Relation], relation: Relation) -> KeyJoin:
        """Return the join of a relation of the dimension with a fact.

        :raises BlockedError: if no condition equates one of its keys with a column of a fact.
        """
        joins.check_kinds()
        named = {each.name: each for each in relations}
        found: dict[tuple[str, str], dict[tuple[KeyColumn, KeyColumn], None]] = {}
        untyped: tuple[KeyColumn, KeyColumn] | None = None
        for own, other in joins.column_pairs(relation.name):
            key = self._table_column(self._dimension, self._sources(relation, own.name))
            fact, column = self._fact_column(named[other.relation], other.name)
            if key is None or column is None:
                continue
            if are_exact(key.type, column.type) or (self._assumed and None in (key.type, column.type)):
                found.setdefault((other.relation, fact), {})[key, column] = None
            else:
                untyped = key, column
        if found:
            (_, fact), pairs = next(iter(found.items()))
            return KeyJoin(fact, tuple(_distinct(pairs)))
        if untyped is not None:
            key, column = untyped
            cause = f"it is joined by {key.name} of type {key.type or 'unknown'} with {column.name} of {column.type or 'unknown'}"
            remedy = "give both columns one type: an integer, a text, a date, a boolean, or a decimal"
            raise BlockedError(ObstacleCode.TYPES, relation.node, cause, remedy)
        raise _unjoined(relation)

    def _sources(self, relation: Relation, name: str) -> Mapping[str, KeySource]:
        found = trace_column(relation, name, self._types, assumed=self._assumed).sources
        return {table.lower(): source for table, source in found.items()}

    def _fact_column(self, relation: Relation, name: str) -> tuple[str, KeyColumn | None]:
        """Return the fact and its column that every value of a column of a relation is of; ``None`` if it is not certain."""
        lineage = trace_column(relation, name, self._types, assumed=self._assumed)
        with suppress(ValueError):
            (table,) = lineage.sources
            if lineage.is_closed and table.lower() in self._facts:
                return self._facts[table.lower()], self._table_column(table, lineage.sources)
        return "", None

    @staticmethod
    def _table_column(table: str, sources: Mapping[str, KeySource]) -> KeyColumn | None:
        """Return the column of a table that is a column of a relation without any conversion; ``None`` if it is not certain."""
        formulas = sources[table].formulas if table in sources else ()
        return formulas[0] if len(formulas) == 1 and isinstance(formulas[0], KeyColumn) else None


def _distinct(pairs: Collection[tuple[KeyColumn, KeyColumn]]) -> Iterator[tuple[KeyColumn, KeyColumn]]:
    """Yield pairs of which no two share a column; those that are left out would only tell more rows apart."""
    seen: set[tuple[int, str]] = set()
    for pair in pairs:
        names = {(side, column.name) for side, column in enumerate(pair)}
        if seen.isdisjoint(names):
            seen |= names
            yield pair


def _unjoined(relation: Relation) -> BlockedError:
    name = relation.name or full_name(relation.node) or "the dimension"
    cause = f"no condition equates a column of {name} with one of a table whose partitions are mapped and whose changes count"
    remedy = "join it with JOIN, or as the right table of LEFT JOIN, ON fact.id = dimension.id"
    return BlockedError(ObstacleCode.JOIN, relation.node, cause, remedy)


def _used_columns(root: exp.Expr) -> frozenset[str] | None:
    """Return the names of a query, among which are all columns that it uses; ``None`` if it uses columns without their names."""
    is_plain = all(isinstance(star.parent, exp.Count) for star in root.find_all(exp.Star))
    if not is_plain or any(join.method for join in root.find_all(exp.Join)) or root.find(exp.QueryTransform):
        return None
    return frozenset(each.name.lower() for each in root.find_all(exp.Identifier))
