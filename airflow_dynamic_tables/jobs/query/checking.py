"""Checking: what Spark's own parser takes a text for is one query, and reads nothing but what it may read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812 - pyspark's own habit

from airflow_dynamic_tables.core.identifiers import TableIdentifier, own_alias
from airflow_dynamic_tables.core.refresh.plan import SourceBinding

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"

_NO_QUERIES = (f"{_LOGICAL}.Command", f"{_LOGICAL}.ParsedStatement", f"{_LOGICAL}.InsertIntoDir")
"""Spark's classes of what does something; anywhere in a query, for ``FROM t INSERT INTO u SELECT *`` is a tree of them."""

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
"""What the rows of a query may come from: values, functions such as ``range``, and relations, which have names."""


WINDOWS = "WithWindowDefinition"
"""The node of a WINDOW clause, whose subqueries are no parts of it to Spark until it is analysed."""

_OWN_ALIAS = own_alias("", "")

_SUBQUERY = re.compile(r"#\d+ \[")
"""What a subquery is in the text of an expression."""

_EVERYTHING = 2_000_000_000
"""Parts of an expression that its text may have."""


def check_query(spark: SparkSession, query: str, views: Collection[str]) -> None:
    """Check a query as Spark reads it, which may be otherwise than the definitions did.

    :param views: names of the temporary views that it may read.
    :raises ValueError: when it is no query, or reads something else; names that.
    """
    parsed = spark._jsparkSession.sessionState().sqlParser().parsePlan(query)  # there is no API for it
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
    """Check the parts of the name of what is read.

    :param legal: in lower case.
    :raises ValueError: when it is none of these.
    """
    if len(names) != 1 or names[0].lower() not in legal:
        # By Spark's own name for it, which tells whoever looks it up what it is about.
        raise ValueError(
            f"[TABLE_OR_VIEW_NOT_FOUND] for Spark the query reads {'.'.join(names)}, which is none of its declared tables; Spark "
            "takes its text otherwise than the definitions do"
        )


def check_columns(spark: SparkSession, query: str, sources: Sequence[SourceBinding]) -> None:
    """Check that no column takes the place of a table whose full name stands before a column in a query within the query.

    Spark looks for ``sales.orders.amount`` among the columns of the inner tables first, and in ``query`` it is called otherwise.

    :param sources: what it reads, registered as views.
    :raises ValueError: when there is one; names it.
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


def _parts(kind: T.DataType) -> list[str]:
    """Patterns of the names that may stand behind the dot after a column; none behind one without parts."""
    if isinstance(kind, T.StructType):
        return [_escaped(field.name.lower()) for field in kind.fields]
    return _parts(kind.elementType) if isinstance(kind, T.ArrayType) else ["[^`]+"] if isinstance(kind, T.MapType) else []


def _escaped(name: str) -> str:
    return re.escape(name.replace("`", "``"))


def check_windows(definitions: str) -> None:
    """Check the text of a WINDOW clause.

    :raises ValueError: when there is a subquery in it, for nobody sees what that reads.
    """
    if _SUBQUERY.search(definitions):
        raise ValueError("a subquery in a WINDOW clause hides what the query reads; write it in the OVER (...) that uses it")


def _nodes(node: Any, named: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
    """Every node of a plan and of the subqueries in it, each with the names of the common table expressions that it sees."""
    stack = [(node, named)]
    while stack:
        node, named = stack.pop()
        yield node, named
        if str(node.nodeName()) == "UnresolvedWith":
            recursive = bool(node.allowRecursion())
            for relation in _elements(node.cteRelations()):
                name = str(relation._1()).lower()
                stack.append((relation._2(), named | {name} if recursive else named))
                named |= {name}
        stack.extend((child, named) for child in (*_elements(node.children()), *_elements(node.subqueries())))


def _elements(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala ``Seq``."""
    for number in range(sequence.size()):
        yield sequence.apply(number)
