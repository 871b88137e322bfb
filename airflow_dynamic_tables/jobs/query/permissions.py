"""Check of a query's abilities beyond SQL, by the tree of Spark's own parser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.refresh.permissions import EVERYTHING, JAVA_CALLS, Ability, ability_of
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan

_CALLS = {"UnresolvedFunction": "nameParts", "UnresolvedTableValuedFunction": "name"}
"""Nodes that call a function, with the attribute that holds its name."""


def check_allowed(spark: SparkSession, plan: RefreshPlan) -> None:
    """Reject a plan whose query, predicates or functions need abilities that this deployment denies.

    :raises ValueError: names the ability, with line and column of the query.
    """
    if plan.allowed == EVERYTHING:
        return
    for function in plan.functions:
        if why := plan.allowed.refusal(ability_of(function.language)):
            raise ValueError(f"function {function.identifier}: {why}")
    parser = spark._jsparkSession.sessionState().sqlParser()
    trees = [parser.parsePlan(plan.query)]
    trees += [parser.parseExpression(item.predicate) for item in plan.expectations if item.predicate]
    for node in _Nodes(spark).of(trees):
        ability = _need(node)
        if ability is not None and (why := plan.allowed.refusal(ability)):
            raise ValueError(f"{_place(node)}{why}")


def _need(node: Any) -> Ability | None:
    """The ability beyond SQL that a node needs."""
    kind = str(node.getClass().getSimpleName())
    if kind == "ScriptTransformation":
        return Ability.TRANSFORM
    if "WithUnresolvedIdentifier" in kind:  # IDENTIFIER(...), which may name any function
        return Ability.JAVA_CALLS
    if kind in _CALLS and str(getattr(node, _CALLS[kind])().last()).lower() in JAVA_CALLS:
        return Ability.JAVA_CALLS
    return None


def _place(node: Any) -> str:
    line = node.origin().line()
    column = node.origin().startPosition()
    return f"line {line.get()}, column {column.get() + 1} of the query: " if line.isDefined() and column.isDefined() else ""


class _Nodes:
    """Traverses trees of Spark completely, including all parts of every node."""

    def __init__(self, spark: SparkSession) -> None:
        loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
        names = ("org.apache.spark.sql.catalyst.trees.TreeNode", "scala.collection.Iterable", "scala.Product")
        find = spark._jvm.java.lang.Class.forName  # type: ignore[union-attr]
        self._node, self._many, self._product = (find(name, False, loader) for name in names)

    def of(self, trees: list[Any]) -> Iterator[Any]:
        """All nodes of these trees."""
        waiting = list(trees)
        while waiting:
            part = waiting.pop()
            if not isinstance(part, JavaObject):
                continue  # a text or a number
            if self._node.isInstance(part):
                yield part
            if self._many.isInstance(part):
                waiting += _all(part.iterator())
            elif self._product.isInstance(part):
                waiting += _all(part.productIterator())


def _all(iterator: Any) -> Iterator[Any]:
    while iterator.hasNext():
        yield iterator.next()
