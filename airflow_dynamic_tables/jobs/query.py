"""The query of a refresh: settings that determine its meaning, and checks that it only reads bound tables.

Spark's own parser checks that a text is one query and needs only permitted abilities.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - pyspark's own habit

from airflow_dynamic_tables.core.identifiers import TableIdentifier, own_alias
from airflow_dynamic_tables.core.refresh.permissions import EVERYTHING, JAVA_CALLS, Ability, ability_of
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, SourceBinding, named_times
from airflow_dynamic_tables.core.refresh.spark_settings import DEFAULTS, FIXED, TIME_ZONE, UNLESS_TUNED, decides_rows
from airflow_dynamic_tables.jobs.messages import message


class SessionSettings(ABC):
    """The settings of a session, accessed in bulk because each call over a network has latency."""

    @abstractmethod
    def set_by_anybody(self) -> dict[str, str]:
        """Settings that do not, or may not, have Spark's default; without those whose value looks secret to a server."""

    @abstractmethod
    def values(self, names: Collection[str]) -> dict[str, str | None]:
        """The effective values of settings; ``None`` for one that this Spark does not have."""

    @abstractmethod
    def modifiable(self, names: Collection[str]) -> frozenset[str]:
        """The settings of Spark itself that can be changed in a session."""

    @abstractmethod
    def change(self, values: Mapping[str, str], defaults: Collection[str] = ()) -> None:
        """Set values, and reset other settings to the cluster's or Spark's default."""


class JvmSettings(SessionSettings):
    """The settings of a session in this process."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._conf = spark.conf

    def set_by_anybody(self) -> dict[str, str]:
        return dict(self._spark.sql("SET").collect())  # RuntimeConfig.getAll is new in Spark 4.0

    def values(self, names: Collection[str]) -> dict[str, str | None]:
        return {name: self._conf.get(name) if self._conf.isModifiable(name) else None for name in names}

    def modifiable(self, names: Collection[str]) -> frozenset[str]:
        return frozenset(filter(self._conf.isModifiable, names))

    def change(self, values: Mapping[str, str], defaults: Collection[str] = ()) -> None:
        for name in defaults:
            self._conf.unset(name)
        for name, value in values.items():
            self._conf.set(name, value)


def settle_settings(settings: SessionSettings, plan: RefreshPlan) -> dict[str, str]:
    """Apply the value of every setting that affects the meaning of a query.

    :return: settings of the cluster that are ignored because the definition does not set them.
    """
    ours = {**DEFAULTS, **FIXED, TIME_ZONE: plan.timezone}
    already = settings.set_by_anybody()
    odd = {name: value for name, value in already.items() if decides_rows(name) and name not in plan.settings}
    of_spark = settings.modifiable(odd)
    # Others belong to extensions of the cluster. Settings under spark.sql.legacy. include former names, which Spark still reads
    # but does not list.
    unasked = {name: value for name, value in odd.items() if name in of_spark or name.startswith("spark.sql.legacy.")}
    wanted = {name: value for name, value in ours.items() if name not in plan.settings or name not in DEFAULTS}
    wanted |= {name: value for name, value in UNLESS_TUNED.items() if name not in already}
    known = settings.values(wanted)
    # Spark logs a warning when some settings are set, even to the same value.
    new = {name: value for name, value in wanted.items() if known.get(name) != value}
    settings.change(new, defaults=unasked.keys() - ours.keys())
    return {name: value for name, value in unasked.items() if ours.get(name) != value}


_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"

_NO_QUERIES = (f"{_LOGICAL}.Command", f"{_LOGICAL}.ParsedStatement", f"{_LOGICAL}.InsertIntoDir")
"""Spark's plans with side effects, rejected anywhere in a query, because ``FROM t INSERT INTO u SELECT *`` nests them."""

LEAVES = frozenset(
    {
        "LocalRelation",
        "OneRowRelation",
        "ResolvedInlineTable",
        "UnresolvedInlineTable",
        "UnresolvedRelation",
        "UnresolvedTableValuedFunction",
    }
)
"""Permitted leaf nodes of a query: values, functions such as ``range``, and relations, whose names are checked."""


WINDOWS = "WithWindowDefinition"
"""The node of a WINDOW clause, whose subqueries are not its children before analysis."""

_OWN_ALIAS = own_alias("", "")

_SUBQUERY = re.compile(r"#\d+ \[")
"""A subquery in the text of an expression."""

_EVERYTHING = 2_000_000_000
"""Maximum number of fields in the text of an expression."""


def check_query(spark: SparkSession, query: str, views: Collection[str]) -> None:
    """See :meth:`Driver.check_query`."""
    parsed = spark._jsparkSession.sessionState().sqlParser().parsePlan(query)  # there is no public API for it
    classes = [spark.sparkContext._jvm.java.lang.Class.forName(name) for name in _NO_QUERIES]  # type: ignore[union-attr]
    legal = frozenset(view.lower() for view in views)
    for node, named in _nodes(parsed, frozenset()):
        kind = str(node.nodeName())
        if any(each.isInstance(node) for each in classes):
            raise ValueError(f"for Spark the query is {kind}, and a query only reads")
        if kind == "PlanWithUnresolvedIdentifier":
            raise ValueError("IDENTIFIER(...) hides which table the query reads; name the table in FROM")
        if kind == WINDOWS:
            check_windows(str(node.simpleString(_EVERYTHING)))
        if kind == "UnresolvedRelation":
            check_name(list(_elements(node.multipartIdentifier())), legal | named)
        elif node.children().isEmpty() and kind not in LEAVES:
            raise ValueError(f"for Spark the query reads {kind}, and a query reads declared tables only")


def check_name(names: Sequence[str], legal: Collection[str]) -> None:
    """Check the name of a relation.

    :param legal: permitted names, in lower case.
    :raises ValueError: when it is not permitted.
    """
    if len(names) != 1 or names[0].lower() not in legal:
        # With Spark's own error class, which can be looked up.
        raise ValueError(
            f"[TABLE_OR_VIEW_NOT_FOUND] for Spark the query reads {'.'.join(names)}, which is none of its declared tables; Spark "
            "takes its text otherwise than the definitions do"
        )


def check_columns(spark: SparkSession, query: str, sources: Sequence[SourceBinding]) -> None:
    """Check that no column shadows a table whose qualified name precedes a column in a subquery.

    Spark resolves ``sales.orders.amount`` first against the columns of the inner tables. In ``query`` the table has another
    alias.

    :param sources: the tables that the query reads, registered as views.
    :raises ValueError: names such a column.
    """
    text = query.lower()
    if _OWN_ALIAS not in text:
        return
    catalogs = {TableIdentifier.parse(source.identifier).catalog.lower() for source in sources}
    for source in sources:
        for column in spark.table(source.view).schema.fields:
            name, parts = column.name.lower(), "|".join(_parts(column.dataType))
            own = [f"`{_escaped(name)}__(?:{parts})_*`", *([f"`(?:{parts})__[^`]+`"] if name in catalogs else [])]
            if parts and any(re.search(alias, text) for alias in own):
                raise ValueError(
                    f"a column of {source.identifier} is named {column.name}, as the database or catalog of a table is that the "
                    "query names before a column; within a subquery Spark takes the column; give the table an alias in FROM"
                )


def at_schedule_time(spark: SparkSession, plan: RefreshPlan, frame: DataFrame) -> DataFrame:
    """The rows of a query with the plan's values of its functions of time, with the same columns.

    A name that is a column of a source, or of a part of one, keeps its meaning for Spark.

    :param frame: the query as it is written.
    :raises ValueError: when it has other columns then.
    """
    if not plan.times:
        return frame
    columns = {name for source in plan.sources for name in _names(spark.table(source.view).schema)}
    query = plan.query
    for time in reversed(plan.times):
        if not (time.is_name and query[time.start : time.end].lower() in columns):
            query = f"{query[: time.start]}{time.sql}{query[time.end :]}"
    before = [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]
    try:
        bound = spark.sql(query)
        kinds = [field.dataType.simpleString() for field in bound.schema.fields]
    except AnalysisException as error:
        raise ValueError(f"{_otherwise(plan)}: {message(error)}") from error
    if kinds != [kind for _, kind in before]:
        raise ValueError(f"{_otherwise(plan)}, so that it has other types: {', '.join(kinds)}")
    return bound.toDF(*(name for name, _ in before))


def _otherwise(plan: RefreshPlan) -> str:
    values = ", ".join(f"{name} is {sql}" for name, sql in named_times(plan.query, plan.times).items())
    return f"the query cannot be read for its schedule time, when {values}; give the columns that name a time an alias"


def _names(kind: T.DataType) -> set[str]:
    """The names of columns and their fields, in lower case."""
    if isinstance(kind, T.StructType):
        return {name for field in kind.fields for name in ({field.name.lower()} | _names(field.dataType))}
    if isinstance(kind, T.MapType):
        return _names(kind.keyType) | _names(kind.valueType)
    return _names(kind.elementType) if isinstance(kind, T.ArrayType) else set()


def _parts(kind: T.DataType) -> list[str]:
    """Patterns of the field names that may follow a column and a dot; empty for a type without fields."""
    if isinstance(kind, T.StructType):
        return [_escaped(field.name.lower()) for field in kind.fields]
    return _parts(kind.elementType) if isinstance(kind, T.ArrayType) else ["[^`]+"] if isinstance(kind, T.MapType) else []


def _escaped(name: str) -> str:
    return re.escape(name.replace("`", "``"))


def check_windows(definitions: str) -> None:
    """Check the text of a WINDOW clause.

    :raises ValueError: when it contains a subquery, because its relations are not visible.
    """
    if _SUBQUERY.search(definitions):
        raise ValueError("a subquery in a WINDOW clause hides what the query reads; write it in the OVER (...) that uses it")


def _nodes(node: Any, named: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
    """Every node of a plan and its subqueries, with the names of the common table expressions in scope."""
    stack = [(node, named)]
    while stack:
        node, named = stack.pop()
        yield node, named
        if str(node.nodeName()) == "UnresolvedWith":
            recursive = node.productArity() > 2 and bool(node.allowRecursion())  # Spark 3.5 has none
            for relation in _elements(node.cteRelations()):
                name = str(relation._1()).lower()
                stack.append((relation._2(), named | {name} if recursive else named))
                named |= {name}
        stack.extend((child, named) for child in (*_elements(node.children()), *_elements(node.subqueries())))


def _elements(sequence: Any) -> Iterator[Any]:
    for number in range(sequence.size()):
        yield sequence.apply(number)


_CALLS = {"UnresolvedFunction": "nameParts", "UnresolvedTableValuedFunction": "name"}
"""Nodes that call a function, with the attribute that holds its name."""


def check_allowed(spark: SparkSession, plan: RefreshPlan) -> None:
    """See :meth:`Driver.check_allowed`. The error has line and column of the query."""
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
