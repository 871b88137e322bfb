"""Joins in partition lineage: which conditions restrict the rows of a joined table to those of a partition."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Generic, Protocol, TypeVar

from sqlglot import exp

from airflow_dynamic_tables.core.refresh.key_sources import Call, Formula, KeyColumn, Literal, Obstacle, ObstacleCode, columns_of
from airflow_dynamic_tables.definitions.queries.formulas import (
    DayBound,
    NoFormulaError,
    Resolve,
    bounds_of,
    formula_of,
    substituted,
    type_of,
)
from airflow_dynamic_tables.definitions.queries.relations import BlockedError, Relation, hides_right, offset_of, used_columns

_JOINS = {
    *(("", kind) for kind in ("", "INNER", "CROSS", "SEMI", "ANTI")),
    *(("LEFT", kind) for kind in ("", "OUTER", "SEMI", "ANTI")),
}
"""Joins that keep the rows of the first table apart."""

_SUBQUERY = "(subquery)"
"""The relation of the columns of a subquery, whose name no other relation has."""

_RIGHT_JOINS = {("RIGHT", ""), ("RIGHT", "OUTER")}
_FULL_JOINS = {("FULL", ""), ("FULL", "OUTER")}


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

    The condition of a left, semi or anti join restricts the rows of the joined relation only, that of a right join those of the
    others, and that of a full join none.
    """

    def __init__(self, select: exp.Select, relations: Sequence[Relation], resolve: Resolve, types: RelationTypes) -> None:
        self._select = select
        self._relations = relations
        self._by_name = {relation.name: relation for relation in relations}
        self._joins: list[exp.Join] = select.args.get("joins") or []
        self._joined = list(zip(relations[1:], self._joins, strict=True))
        self._resolve = resolve
        self._types = types

    def check(self, formula: Formula) -> None:
        """Check that the joins keep rows with different values of the key apart.

        :raises BlockedError: if they do not.
        """
        keys = _by_relation(formula)
        if not keys or any({column.relation for column in columns_of(key)} != {name} for name, key in keys.items()):
            cause = "the key is of several tables" if keys else "the key is the same in all rows"
            raise BlockedError(ObstacleCode.SEVERAL_TABLES, self._select, cause, "take the key from columns of one table")
        if len(keys) > 1:
            self._check_full_joins(formula, keys)
            return
        self._check_kinds(_JOINS | _RIGHT_JOINS)
        (name,) = keys
        position = [relation.name for relation in self._relations].index(name)
        optional = [relation for relation, join in self._joined[position:] if join.side.upper() == "RIGHT"]
        if position and (self._joins[position - 1].side.upper() == "LEFT" or hides_right(self._joins[position - 1])):
            optional.insert(0, self._relations[position])
        if optional:
            cause = "the key is a column of the optional side of a join, which is null where there is no partner"
            raise BlockedError(ObstacleCode.JOIN, optional[0].node, cause, "take the key from the other table, or write JOIN")

    def check_kinds(self) -> None:
        """Check that no join returns rows of its right side without a partner.

        :raises BlockedError: if one may.
        """
        self._check_kinds(_JOINS)

    def _check_kinds(self, known: Collection[tuple[str, str]], first: int = 0) -> None:
        """Check that all joins from one on are known.

        :raises BlockedError: if one is not.
        """
        for relation, join in self._joined[first:]:
            if _kind(join) not in known:
                words = " ".join(filter(None, (join.method.upper(), join.side.upper(), join.kind.upper(), "JOIN")))
                cause = f"{words} is not analysed, because it may return rows without a partner on either side"
                remedy = "write LEFT JOIN, with the table of the key first"
                if _kind(join) in _FULL_JOINS:
                    remedy += "; or ON l.ds = r.ds, and take COALESCE(l.ds, r.ds) as the key"
                raise BlockedError(ObstacleCode.JOIN, relation.node, cause, remedy)

    def _check_full_joins(self, formula: Formula, keys: Mapping[str, Formula]) -> None:
        """Check that full joins return only rows in which the columns that the key coalesces are equal or null.

        :raises BlockedError: if they may return others.
        """
        count = len(keys)
        first = self._relations[:count]
        are_full = all(_kind(join) in _FULL_JOINS for join in self._joins[: count - 1])
        if {relation.name for relation in first} != keys.keys() or not are_full:
            cause = "the key coalesces columns of tables that FULL JOIN does not join first"
            raise BlockedError(
                ObstacleCode.JOIN, self._select, cause, "write FULL JOIN for all tables of COALESCE, before others"
            )
        for columns in _coalesced(formula):
            by_name = {column.relation: column for column in columns}
            ordered = [by_name[relation.name] for relation in first]
            for number, join in enumerate(self._joins[: count - 1], 1):
                if not self._are_equated(join, ordered[:number], ordered[number]):
                    cause = "FULL JOIN does not equate the columns that the key coalesces"
                    remedy = "write ON l.ds = r.ds or USING (ds), with columns of one type"
                    raise BlockedError(ObstacleCode.JOIN, first[number].node, cause, remedy)
        self._check_kinds(_JOINS, count - 1)

    def _are_equated(self, join: exp.Join, before: Sequence[KeyColumn], column: KeyColumn) -> bool:
        """Return whether a join only joins rows in which a column equals all earlier ones that are not null."""
        if column.name in used_columns(join):
            return all(other.name == column.name and self._are_same(other, column) for other in before)
        for condition in conjuncts(join.args.get("on")):
            for one, other in self._equations(condition) if isinstance(condition, exp.EQ) else ():
                parts = other.arguments if isinstance(other, Call) and other.function == "coalesce" else (other,)
                if one == column and {*before} >= {*parts} and self._are_same(column, other):
                    return True
        return False

    def column_pairs(self, name: str) -> Iterator[tuple[KeyColumn, KeyColumn]]:
        """Yield the columns of a relation with those of others that must equal them where one of its rows has an effect.

        Null equals nothing.
        """
        for condition, only in self._restrictions():
            if not isinstance(condition, exp.EQ) or (only is not None and name not in only):
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
        known = _by_relation(formula)
        equal, bounds = self._conditions()
        waiting = [*known]
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

    def key_in(self, query: exp.Expr, relation: Relation, known: Mapping[str, Formula]) -> tuple[Relation, Formula] | None:
        """Return a subquery with new names of its columns, and the formula of the key over them; ``None`` if IN does not keep
        only rows for which the subquery returns the key.

        :param known: the formulas of the key over relations.
        """
        where = self._select.args.get("where")
        for condition in conjuncts(where.this if where else None):
            if not isinstance(condition, exp.In) or condition.args.get("query") is not query:
                continue
            left = condition.this.unnest()
            items = left.expressions if isinstance(left, exp.Tuple) else [left]
            named = replace(relation, columns=tuple(f"column{number}" for number in range(len(items))))
            same: dict[Formula, Formula] = {}
            for item, name in zip(items, named.columns, strict=True):
                with suppress(NoFormulaError):
                    formula = formula_of(item, self._resolve)
                    if self._types.are_same(type_of(formula, self._type), self._types.of(named, name)):
                        same[formula] = KeyColumn(name, _SUBQUERY)
            for formula in known.values():
                found = substituted(formula, same.get)
                if all(column.relation == _SUBQUERY for column in columns_of(found)):
                    return named, found
        return None

    def _by_using(self, name: str, formula: Formula, known: Mapping[str, Formula]) -> Iterator[tuple[str, Formula]]:
        """Yield the formulas of relations that USING joins to an earlier one, or to the right side of a first RIGHT JOIN."""
        position = [relation.name for relation in self._relations].index(name)
        named = {column.name for column in columns_of(formula)}
        linked = list(takewhile(lambda pair: pair[1].side.upper() not in ("RIGHT", "FULL"), self._joined[position:]))
        if position == 1 and self._joins[0].side.upper() == "RIGHT":
            linked.append((self._relations[0], self._joins[0]))
        for relation, join in linked:
            if relation.name in known or not named <= {*used_columns(join)}:
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
        """Return what conditions equate, and the days by which they bound a difference."""
        equal, bounds = _Links[tuple[Formula, Formula]](), _Links[DayBound]()
        for condition, only in self._restrictions():
            for one, other in self._equations(condition):
                equal.add(one, other, (one, other), only)
            for bound in bounds_of(condition, self._resolve, self._is_day):
                bounds.add(bound.column, bound.other, bound, only)
        return equal, bounds

    def _restrictions(self) -> Iterator[tuple[exp.Expr, Collection[str] | None]]:
        """Yield the conditions, each with the only relations whose rows it restricts; ``None`` if those of all."""
        where = self._select.args.get("where")
        for condition in conjuncts(where.this if where else None):
            yield condition, None
        names = [relation.name for relation in self._relations]
        for number, join in enumerate(self._joins):
            restricted = {"RIGHT": names[: number + 1], "FULL": []}.get(join.side.upper(), names[number + 1 : number + 2])
            for condition in conjuncts(join.args.get("on")):
                yield condition, None if _restricts_all(join) else restricted

    def _equations(self, condition: exp.Expr) -> Iterator[tuple[Formula, Formula]]:
        if isinstance(condition, exp.EQ | exp.NullSafeEQ):
            with suppress(NoFormulaError):
                one, other = (formula_of(side, self._resolve) for side in (condition.this, condition.expression))
                yield one, other
                yield other, one


def _kind(join: exp.Join) -> tuple[str, str]:
    """Return the side and the kind of a join; those of none that is known if it is NATURAL or the like."""
    side = join.method.upper() or ("PIVOT" if join.args.get("pivots") else join.side.upper())
    return side, join.kind.upper()


def _coalesced(formula: Formula) -> Iterator[tuple[KeyColumn, ...]]:
    """Yield the columns of each COALESCE in a formula."""
    if isinstance(formula, Call) and formula.function == "coalesce":
        yield tuple(columns_of(formula))
    elif isinstance(formula, Call):
        for argument in formula.arguments:
            yield from _coalesced(argument)


def _by_relation(formula: Formula) -> dict[str, Formula]:
    """Return a formula as each relation has it, whose columns it may coalesce."""

    def own(name: str, part: Formula) -> Formula | None:
        if not isinstance(part, Call) or part.function != "coalesce":
            return None
        return next((column for column in columns_of(part) if column.relation == name), None)

    return {column.relation: substituted(formula, partial(own, column.relation)) for column in columns_of(formula)}


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

    def add(self, one: Formula, other: Formula, told: _T, only: Collection[str] | None) -> None:
        """Add what relates formulas of two relations; the second one must be of ``only``, if it is set."""
        first, second = ({column.relation for column in columns_of(each)} for each in (one, other))
        if len(first) == len(second) == 1 and first != second and (only is None or second <= {*only}):
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
