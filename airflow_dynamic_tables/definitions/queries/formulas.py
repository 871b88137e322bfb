"""Conversion of SQL expressions to formulas of partition lineage, and the days by which two date columns may differ."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from airflow_dynamic_tables.core.refresh.key_sources import FUNCTIONS, Call, Formula, KeyColumn, Literal

Resolve = Callable[[exp.Column], Formula]
"""Returns a column of a relation, or those that a join merges."""

LARGEST = 200
"""Maximum number of parts of a formula."""

_CASTS = {
    exp.DType.BIGINT: "cast_bigint",
    exp.DType.DATE: "cast_date",
    exp.DType.INT: "cast_int",
    exp.DType.SMALLINT: "cast_smallint",
    exp.DType.TEXT: "cast_string",
    exp.DType.TIMESTAMP: "cast_timestamp",
    exp.DType.TIMESTAMPTZ: "cast_timestamp",
    exp.DType.TIMESTAMPNTZ: "cast_timestamp",
    exp.DType.TINYINT: "cast_tinyint",
}
_CALLS: Mapping[type[exp.Expr], tuple[str, tuple[str, ...]]] = {
    exp.DateTrunc: ("trunc", ("unit", "this")),
    exp.Day: ("day", ("this",)),
    exp.DayOfMonth: ("day", ("this",)),
    exp.LastDay: ("last_day", ("this",)),
    exp.Left: ("left", ("this", "expression")),
    exp.Lower: ("lower", ("this",)),
    exp.Month: ("month", ("this",)),
    exp.Pad: ("lpad", ("this", "expression", "fill_pattern")),
    exp.Quarter: ("quarter", ("this",)),
    exp.Replace: ("replace", ("this", "expression", "replacement")),
    exp.Right: ("right", ("this", "expression")),
    exp.Substring: ("substring", ("this", "start", "length")),
    exp.TimeStrToTime: ("cast_timestamp", ("this",)),
    exp.TimeToStr: ("date_format", ("this", "format")),
    exp.TimestampTrunc: ("date_trunc", ("unit", "this")),
    exp.Trim: ("trim", ("this",)),
    exp.TsOrDsToDate: ("to_date", ("this", "format")),
    exp.Upper: ("upper", ("this",)),
    exp.Year: ("year", ("this",)),
}
"""Functions of Spark with their arguments as sqlglot names them, in the order of ours."""

SCALARS = (*_CALLS, exp.Concat, exp.DPipe)
"""Functions that return one column."""

_IRRELEVANT = frozenset({"_type", "safe", "coalesce"})
_RESULTS = {
    **{name: name.removeprefix("cast_") for name in FUNCTIONS if name.startswith("cast_")},
    **dict.fromkeys(("concat", "date_format", "day_texts", "left", "lower", "lpad", "replace", "right"), "string"),
    **dict.fromkeys(("substring", "trim", "upper"), "string"),
    **dict.fromkeys(("date_add", "days", "last_day", "make_date", "to_date", "trunc"), "date"),
    **dict.fromkeys(("day", "month", "quarter", "year"), "int"),
    "date_trunc": "timestamp",
}


class NoFormulaError(Exception):
    """An expression is none of the known functions of columns and literals; ``part`` is the unknown one."""

    def __init__(self, part: exp.Expr) -> None:
        self.part = part
        super().__init__()


def formula_of(expression: exp.Expr, resolve: Resolve) -> Formula:
    """Convert an expression.

    :raises NoFormulaError: if it has an unknown part, or ``resolve`` raises it for a column.
    """
    node = expression.unalias().unnest()
    if isinstance(node, exp.Column):
        return resolve(node)
    if isinstance(node, exp.Literal | exp.Neg):
        return _literal(node)
    if isinstance(node, exp.Cast):
        name = _CASTS.get(node.to.this)
        if name is None or node.to.expressions or not has_only(node, {"this", "to"}):
            raise NoFormulaError(node)
        return Call(name, (formula_of(node.this, resolve),))
    if isinstance(node, exp.Coalesce):
        return _coalesced(node, resolve)
    if isinstance(node, exp.TsOrDsAdd):
        return Call("date_add", (formula_of(node.this, resolve), Literal(_days(node))))
    return Call(*_call(node, resolve))


def _coalesced(node: exp.Coalesce, resolve: Resolve) -> Call:
    """Return the first column that is not null, of columns of different relations."""
    columns = [formula_of(part, resolve) for part in (node.this, *node.expressions)]
    relations = {column.relation for column in columns if isinstance(column, KeyColumn)}
    if len(columns) < 2 or len(relations) != len(columns):
        raise NoFormulaError(node)
    return Call("coalesce", tuple(columns))


def _call(node: exp.Expr, resolve: Resolve) -> tuple[str, tuple[Formula, ...]]:
    if isinstance(node, exp.DPipe | exp.Concat):
        parts = list(node.flatten()) if isinstance(node, exp.DPipe) else node.expressions
        return "concat", tuple(formula_of(part, resolve) for part in parts)
    if isinstance(node, exp.Anonymous) and node.name.lower() == "make_date":
        return "make_date", tuple(formula_of(part, resolve) for part in node.expressions)
    name, names = _CALLS.get(type(node), ("", ()))
    expected = {*names, "is_left"} if name == "lpad" and node.args.get("is_left") else set(names)
    if not name or not has_only(node, expected):
        raise NoFormulaError(node)
    given = [node.args[each] for each in names if node.args.get(each) is not None]
    return name, tuple(Literal(each.name) if isinstance(each, exp.Var) else formula_of(each, resolve) for each in given)


def _literal(node: exp.Expr) -> Literal:
    sign, number = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
    if not isinstance(number, exp.Literal) or (number.is_string and sign < 0):
        raise NoFormulaError(node)
    if number.is_string:
        return Literal(str(number.this))
    if not str(number.this).isdecimal() or len(str(number.this)) > 9:
        raise NoFormulaError(node)
    return Literal(sign * int(number.this))


def _days(node: exp.TsOrDsAdd) -> int:
    """Return the number of days that ``date_add`` or ``date_sub`` adds."""
    number, factor = node.expression, 1
    if isinstance(number, exp.Mul) and number.expression == exp.Neg(this=exp.Literal.number(1)):
        number, factor = number.this, -1
    found = _literal(number.unnest())
    if node.text("unit").upper() != "DAY" or not isinstance(found.value, int):
        raise NoFormulaError(node)
    return factor * found.value


def has_only(node: exp.Expr, names: Collection[str]) -> bool:
    """Return whether a node has no other arguments than these."""
    return all(name in names or name in _IRRELEVANT or not value for name, value in node.args.items())


def size_of(formula: Formula) -> int:
    """Return the number of parts of a formula."""
    return 1 + sum(map(size_of, formula.arguments)) if isinstance(formula, Call) else 1


def substituted(formula: Formula, replace: Callable[[Formula], Formula | None]) -> Formula:
    """Return a formula whose parts, from the outside in, are replaced where ``replace`` returns another one."""
    if (other := replace(formula)) is not None:
        return other
    if not isinstance(formula, Call):
        return formula
    return Call(formula.function, tuple(substituted(argument, replace) for argument in formula.arguments))


def is_function_of(formula: Formula, others: Collection[Formula]) -> bool:
    """Return whether other formulas determine the value of a formula."""
    if formula in others or isinstance(formula, Literal):
        return True
    return isinstance(formula, Call) and all(is_function_of(argument, others) for argument in formula.arguments)


def type_of(formula: Formula, type_of_column: Callable[[KeyColumn], str | None]) -> str | None:
    """Return the type of a formula; ``None`` if it is unknown."""
    if isinstance(formula, KeyColumn):
        return type_of_column(formula)
    if isinstance(formula, Literal):
        return "int" if isinstance(formula.value, int) else "string"
    if formula.function == "coalesce":
        types = {type_of(argument, type_of_column) for argument in formula.arguments}
        return types.pop() if len(types) == 1 else None
    return _RESULTS[formula.function]


@dataclass(frozen=True, slots=True)
class DayBound:
    """A condition on two date columns: the first one is at most (``is_upper``) or at least the other plus some days."""

    column: KeyColumn
    other: KeyColumn
    days: int
    is_upper: bool


def bounds_of(condition: exp.Expr, resolve: Resolve, is_date: Callable[[KeyColumn], bool]) -> Iterator[DayBound]:
    """Yield the bounds that a condition sets on the difference of two date columns, in both directions.

    :param is_date: whether a column is of type date.
    """
    try:
        for left, sign, right in _comparisons(condition):
            for (column, days), (other, others_days), is_upper in _sides(left, sign, right, resolve, is_date):
                yield DayBound(column, other, others_days - days, is_upper)
                yield DayBound(other, column, days - others_days, not is_upper)
    except NoFormulaError:
        return


_SIGNS: Mapping[type[exp.Expr], str] = {exp.GTE: ">=", exp.GT: ">", exp.LTE: "<=", exp.LT: "<", exp.EQ: "="}


def _comparisons(condition: exp.Expr) -> Iterator[tuple[exp.Expr, str, exp.Expr]]:
    if isinstance(condition, exp.Between) and not condition.args.get("symmetric"):
        yield condition.this, ">=", condition.args["low"]
        yield condition.this, "<=", condition.args["high"]
    elif type(condition) in _SIGNS:
        yield condition.this, _SIGNS[type(condition)], condition.expression


Shifted = tuple[KeyColumn, int]
"""A date column plus some days."""


def _sides(
    left: exp.Expr, sign: str, right: exp.Expr, resolve: Resolve, is_date: Callable[[KeyColumn], bool]
) -> Iterator[tuple[Shifted, Shifted, bool]]:
    if isinstance(right.unnest(), exp.DateDiff):
        left, sign, right = right, sign.translate(str.maketrans("<>", "><")), left
    difference = left.unnest()
    if isinstance(difference, exp.DateDiff):
        if difference.text("unit").upper() not in ("", "DAY") or not isinstance(number := _literal(right.unnest()).value, int):
            raise NoFormulaError(difference)
        one, (other, days) = (_shifted(part, resolve, is_date) for part in (difference.this, difference.expression))
        shifted = other, days + number
    else:
        one, shifted = _shifted(left, resolve, is_date), _shifted(right, resolve, is_date)
    strict = {">": 1, "<": -1}.get(sign, 0)
    for is_upper in (False, True):
        if sign == "=" or ("<" in sign) is is_upper:
            yield one, (shifted[0], shifted[1] + strict), is_upper


def _shifted(expression: exp.Expr, resolve: Resolve, is_date: Callable[[KeyColumn], bool]) -> Shifted:
    node = expression.unnest()
    if isinstance(node, exp.Column):
        if isinstance(column := resolve(node), KeyColumn):
            return column, 0
        raise NoFormulaError(node)
    if isinstance(node, exp.TsOrDsAdd):
        column, days = _shifted(node.this, resolve, is_date)
        return column, days + _days(node)
    if isinstance(node, exp.TsOrDsToDate) and not node.args.get("format"):
        return _shifted(node.this, resolve, is_date)
    if isinstance(node, exp.Cast) and node.to.this is exp.DType.DATE:
        return _shifted(node.this, resolve, is_date)
    if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
        column, days = _shifted(node.this, resolve, is_date)
        interval = node.expression
        if is_date(column) and interval.text("unit").upper() in ("DAY", "DAYS") and interval.name.isdecimal():
            return column, days + int(interval.name) * (1 if isinstance(node, exp.Add) else -1)
    raise NoFormulaError(node)
