"""Conditions of frozen partitions as text: ``ds < {now - 30 days}``."""

from __future__ import annotations

import re
from datetime import timedelta

import sqlglot
from sqlglot import exp

from airflow_dynamic_tables.core.refresh.frozen import Combination, FrozenCondition, KeyComparison
from airflow_dynamic_tables.core.schedule import Freshness
from airflow_dynamic_tables.definitions.queries.dialect import SparkSQL
from airflow_dynamic_tables.definitions.queries.parsing import analyse_condition, start_of
from airflow_dynamic_tables.definitions.queries.text import FrozenConditionError, QueryProblem

_TIME = re.compile(r"\{([^{}']*)\}")
_AGE = re.compile(r"\s*now\s*-\s*(.+?)\s*")
_MARK = "\ue000"
"""First character of the text that stands for a time. Its length is that of the time, so that positions do not change."""

_Ages = dict[str, timedelta]

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.LT: "<",
    exp.LTE: "<=",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.GTE: ">=",
    exp.GT: ">",
}
_REVERSED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def parse_frozen(text: str) -> FrozenCondition:
    """See :func:`airflow_dynamic_tables.definitions.queries.text.parse_frozen`."""
    ages = {_marked(match[1]): _age(match[1], match.start()) for match in _TIME.finditer(text)}
    marked = _TIME.sub(lambda match: f"'{_marked(match[1])}'", text)
    if problem := next(iter(analyse_condition(marked).problems), None):
        raise FrozenConditionError(problem)
    return _condition(sqlglot.parse_one(marked, dialect=SparkSQL, into=exp.Condition), ages)


def _marked(said: str) -> str:
    return f"{_MARK}{said[1:]}"


def _age(said: str, offset: int) -> timedelta:
    match = _AGE.fullmatch(said)
    if match is None:
        raise FrozenConditionError(QueryProblem(offset, f"{{{said}}} is no time; write for example {{now - 30 days}}"))
    try:
        return Freshness.parse(match[1]).period
    except ValueError as error:
        message = f"{match[1]!r} is no length of time; write for example {{now - 30 days}}"
        raise FrozenConditionError(QueryProblem(offset, message)) from error


def _condition(node: exp.Expr, ages: _Ages) -> FrozenCondition:
    node = node.unnest()
    if isinstance(node, exp.And | exp.Or):
        return Combination((_condition(node.this, ages), _condition(node.expression, ages)), isinstance(node, exp.Or))
    if isinstance(node, exp.In) and node.expressions:
        return Combination(tuple(_comparison(node, node.this, "=", one, ages) for one in node.expressions), is_any=True)
    if isinstance(node, exp.Between):
        ends = ((">=", node.args["low"]), ("<=", node.args["high"]))
        return Combination(tuple(_comparison(node, node.this, sign, end, ages) for sign, end in ends), is_any=False)
    if (sign := _OPERATORS.get(type(node))) is None:
        raise _refused(node)
    if isinstance(node.this, exp.Column):
        return _comparison(node, node.this, sign, node.expression, ages)
    return _comparison(node, node.expression, _REVERSED.get(sign, sign), node.this, ages)


def _comparison(node: exp.Expr, key: exp.Expr, sign: str, value: exp.Expr, ages: _Ages) -> KeyComparison:
    if not isinstance(key, exp.Column) or len(key.parts) != 1 or not isinstance(value, exp.Literal | exp.Neg):
        raise _refused(node)
    name, said = key.name, value.name
    if isinstance(value, exp.Neg) or not value.is_string:
        try:
            return KeyComparison(name, sign, int(value.sql()))
        except ValueError:
            raise _refused(node) from None
    if said not in ages:
        return KeyComparison(name, sign, said)
    if sign not in ("<", "<="):
        message = f"a partition that is frozen must stay so as time passes; compare with the time like this: {name} < {{now - …}}"
        raise FrozenConditionError(QueryProblem(_offset(node), message))
    return KeyComparison(name, sign, ages[said])


def _refused(node: exp.Expr) -> FrozenConditionError:
    message = (
        "'frozen' compares partition keys with values, joined by AND and OR; write for example ds < {now - 30 days}, or "
        "country = 'DE'"
    )
    return FrozenConditionError(QueryProblem(_offset(node), message))


def _offset(node: exp.Expr) -> int:
    parts = (column.parts[0] for column in node.find_all(exp.Column))
    return min((start_of(part) for part in parts if "start" in part.meta), default=0)
