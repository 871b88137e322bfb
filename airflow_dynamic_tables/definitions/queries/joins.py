"""Joins in partition lineage: which conditions restrict the rows of a joined table to those of a partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Generic, Protocol, TypeVar

from sqlglot import exp

from airflow_dynamic_tables.core.refresh.key_sources import Call, Formula, KeyColumn, Literal, Obstacle, ObstacleCode, columns_of
from airflow_dynamic_tables.definitions.queries.formulas import (
    DayBound,
    NoFormulaError,
    bounds_of,
    formula_of,
    substituted,
    type_of,
)
from airflow_dynamic_tables.definitions.queries.relations import BlockedError, Relation, hides_right, offset_of

_JOINS = {
    *(("", kind) for kind in ("", "INNER", "CROSS", "SEMI", "ANTI")),
    *(("LEFT", kind) for kind in ("", "OUTER", "SEMI", "ANTI")),
}
"""Joins that keep the rows of the first table apart."""


class RelationTypes(Protocol):
    """The types of the columns of relations; those that are unknown may be assumed to fit."""

    @property
    def is_assumed(self) -> bool:
        """Whether unknown types are assumed to fit."""

    def of(self, relation: Relation, name: str) -> str | None:
        """Return the type of a column; ``None`` if it is unknown."""

    def are_same(self, one: str | None, other: str | None) -> bool:
        """Return whether two types are, or are assumed to be, the same."""


class Joins:
    """The relations in FROM of a SELECT, the columns that its conditions equate, and the days by which they let two differ.

    The condition of an outer, semi or anti join restricts the rows of the joined relation only.
    """

    def __init__(
        self, select: exp.Select, relations: Sequence[Relation], resolve: Callable[[exp.Column], KeyColumn], types: RelationTypes
    ) -> None:
        self._select = select
        self._relations = relations
        self._by_name = {relation.name: relation for relation in relations}
        self._joins: list[exp.Join] = select.args.get("joins") or []
        self._resolve = resolve
        self._types = types

    def check(self, formula: Formula) -> None:
        """Check that the joins keep rows with different values of the key apart.

        :raises BlockedError: if they do not.
        """
        used = {column.relation for column in columns_of(formula)}
        if len(used) != 1:
            cause = "the key is of several tables" if used else "the key is the same in all rows"
            raise BlockedError(ObstacleCode.SEVERAL_TABLES, self._select, cause, "take the key from columns of one table")
        self.check_kinds()
        for relation, join in zip(self._relations[1:], self._joins, strict=True):
            if relation.name in used and (join.side.upper() == "LEFT" or hides_right(join)):
                cause = "the key is a column of the optional side of a join, which is null where there is no partner"
                raise BlockedError(ObstacleCode.JOIN, relation.node, cause, "take the key from the other table, or write JOIN")

    def check_kinds(self) -> None:
        """Check that no join returns rows of its right side without a partner.

        :raises BlockedError: if one may.
        """
        for relation, join in zip(self._relations[1:], self._joins, strict=True):
            side, kind = join.side.upper(), join.kind.upper()
            if (side, kind) not in _JOINS or join.method or join.args.get("pivots"):
                words = " ".join(filter(None, (join.method.upper(), side, kind, "JOIN")))
                cause = f"{words} is not analysed, because it may return rows without a partner on either side"
                raise BlockedError(ObstacleCode.JOIN, relation.node, cause, "write LEFT JOIN, with the table of the key first")

    def column_pairs(self, name: str) -> Iterator[tuple[KeyColumn, KeyColumn]]:
        """Yield the columns of a relation with those of others that must equal them where one of its rows has an effect.

        Null equals nothing.
        """
        for condition, only in self._restrictions():
            if not isinstance(condition, exp.EQ) or only not in (None, name):
                continue
            for one, other in self._equations(condition):
                if isinstance(one, KeyColumn) and isinstance(other, KeyColumn) and one.relation == name != other.relation:
                    yield one, other
        if not self._joins or (using := self._joins[0].args.get("using")) is None:
            return
        left, right = self._relations[0].name, self._relations[1].name
        if left == right or name not in (left, right) or (name == left and not _restricts_all(self._joins[0])):
            return
        partner = right if name == left else left
        yield from ((KeyColumn(column.name.lower(), name), KeyColumn(column.name.lower(), partner)) for column in using)

    def spread(self, formula: Formula) -> dict[str, Formula]:
        """Return the formula of the key over each relation whose rows conditions restrict to those of the key."""
        first = next(columns_of(formula)).relation
        known = {first: formula}
        equal, bounds = self._conditions()
        waiting = [first]
        while waiting:
            name = waiting.pop()
            for other in {*equal.of(name), *bounds.of(name)} - known.keys():
                found = self._by_equality(known[name], equal.of(name).get(other, [])) or self._by_range(
                    known[name], bounds.of(name).get(other, [])
                )
                if found is not None:
                    known[other] = found
                    waiting.append(other)
            for found_name, found in self._by_using(name, known[name], known):
                known[found_name] = found
                waiting.append(found_name)
        return known

    def _by_using(self, name: str, formula: Formula, known: Mapping[str, Formula]) -> Iterator[tuple[str, Formula]]:
        """Yield the formulas of relations that USING joins to an earlier one."""
        position = [relation.name for relation in self._relations].index(name)
        named = {column.name for column in columns_of(formula)}
        for relation, join in zip(self._relations[position + 1 :], self._joins[position:], strict=True):
            using = {column.name.lower() for column in join.args.get("using") or ()}
            if relation.name in known or not named <= using:
                continue
            moved = substituted(formula, partial(_renamed, relation.name))
            if all(self._are_same(KeyColumn(each, name), KeyColumn(each, relation.name)) for each in named):
                yield relation.name, moved

    def _by_equality(self, formula: Formula, pairs: Sequence[tuple[Formula, Formula]]) -> Formula | None:
        """Return the formula with all columns replaced by those that conditions equate with them."""
        same = {one: other for one, other in pairs if self._are_same(one, other)}
        before = {column.relation for column in columns_of(formula)}
        found = substituted(formula, same.get)
        return found if before.isdisjoint(column.relation for column in columns_of(found)) else None

    def _are_same(self, one: Formula, other: Formula) -> bool:
        """Return whether Spark compares the values without a conversion."""
        return self._types.are_same(type_of(one, self._type), type_of(other, self._type))

    def _type(self, column: KeyColumn) -> str | None:
        relation = self._by_name.get(column.relation)
        return self._types.of(relation, column.name) if relation is not None else None

    def _is_day(self, column: KeyColumn, *others: str) -> bool:
        """Return whether a column is a date, or of one of the other types."""
        found = self._type(column)
        return self._types.is_assumed if found is None else found in ("date", *others)

    def _by_range(self, formula: Formula, bounds: Sequence[DayBound]) -> Formula | None:
        """Return the formula over the days at which conditions let a row join those of the key."""
        columns = {*columns_of(formula)}
        if len(columns) != 1:
            return None
        (column,) = columns
        for other in {bound.other for bound in bounds if bound.column == column}:
            own = [bound for bound in bounds if (bound.column, bound.other) == (column, other)]
            first = max((bound.days for bound in own if not bound.is_upper), default=None)
            last = min((bound.days for bound in own if bound.is_upper), default=None)
            if first is None or last is None or not all(self._is_day(each, "string") for each in (column, other)):
                continue
            days = (other, Literal(first), Literal(last))
            if self._is_day(column):
                return _over(formula, Call("days", days))
            if formula == column:
                return Call("day_texts", days)
        return None

    def _conditions(self) -> tuple[_Links[tuple[Formula, Formula]], _Links[DayBound]]:
        """Return what conditions equate, and the days by which they bound a difference.

        The condition of an outer, semi or anti join restricts the rows of the joined relation only.
        """
        equal, bounds = _Links[tuple[Formula, Formula]](), _Links[DayBound]()
        for condition, only in self._restrictions():
            for one, other in self._equations(condition):
                equal.add(one, other, (one, other), only)
            for bound in bounds_of(condition, self._resolve, self._is_day):
                bounds.add(bound.column, bound.other, bound, only)
        return equal, bounds

    def _restrictions(self) -> Iterator[tuple[exp.Expr, str | None]]:
        """Yield the conditions, each with the only relation whose rows it restricts; ``None`` if those of all."""
        where = self._select.args.get("where")
        for condition in conjuncts(where.this if where else None):
            yield condition, None
        for relation, join in zip(self._relations[1:], self._joins, strict=True):
            for condition in conjuncts(join.args.get("on")):
                yield condition, None if _restricts_all(join) else relation.name

    def _equations(self, condition: exp.Expr) -> Iterator[tuple[Formula, Formula]]:
        if isinstance(condition, exp.EQ | exp.NullSafeEQ):
            with suppress(NoFormulaError):
                one, other = (formula_of(side, self._resolve) for side in (condition.this, condition.expression))
                yield one, other
                yield other, one


def _restricts_all(join: exp.Join) -> bool:
    """Return whether the condition of a join restricts the rows of all its relations."""
    return not join.side and join.kind.upper() in ("", "INNER", "CROSS")


def _renamed(relation: str, part: Formula) -> Formula | None:
    return KeyColumn(part.name, relation) if isinstance(part, KeyColumn) else None


def _over(formula: Formula, days: Call) -> Formula:
    """Return a formula of one column over days instead."""
    return substituted(formula, lambda part: days if isinstance(part, KeyColumn) else None)


_T = TypeVar("_T")


class _Links(Generic[_T]):
    """What conditions tell of two relations, by the names of both."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, list[_T]]] = {}

    def add(self, one: Formula, other: Formula, told: _T, only: str | None) -> None:
        """Add what relates formulas of two relations; of ``only``, if it is set, the second one must be."""
        first, second = ({column.relation for column in columns_of(each)} for each in (one, other))
        if len(first) == len(second) == 1 and first != second and (only is None or second == {only}):
            self._found.setdefault(first.pop(), {}).setdefault(second.pop(), []).append(told)

    def of(self, name: str) -> Mapping[str, list[_T]]:
        """Return what relates a relation to each other one."""
        return self._found.get(name, {})


def conjuncts(whole: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yield the conditions of a condition that all hold where it does."""
    waiting = [whole] if whole is not None else []
    while waiting:
        one = waiting.pop().unnest()
        if isinstance(one, exp.And):
            waiting += [one.this, one.expression]
        else:
            yield one


def unjoined(relation: Relation, join: exp.Join | None) -> Obstacle:
    """Return the obstacle of a relation that no condition links with the key."""
    cause = f"no condition says which rows of {relation.name} belong to a value of the key"
    remedy = "add one, such as ON … AND c.ds = o.ds with columns of one type, or set on_change: affected or ignore for the table"
    return Obstacle(ObstacleCode.JOIN, offset_of(join if join is not None else relation.node), cause, remedy, ())
