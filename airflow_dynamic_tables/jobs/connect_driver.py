"""Driver for a Spark Connect server: without a JVM, files are accessed by this process and queries are parsed by SQL.

A query is checked by its explanation. EXPLAIN executes nothing. The statement contains the query twice as a common table
expression, where the grammar requires a query and accepts no command. The explanation ends in an error before Spark evaluates
anything: an undefined window is detected before names are resolved.
"""

from __future__ import annotations

import re
import sys
import threading
import warnings
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from inspect import unwrap
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.connect.proto import ConfigRequest, KeyValue

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.refresh.permissions import EVERYTHING, JAVA_CALLS, Ability, ability_of
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.jobs.driver import Driver
from airflow_dynamic_tables.jobs.messages import refused
from airflow_dynamic_tables.jobs.query import LEAVES, WINDOWS, SessionSettings, check_name, check_windows

REDACTION = "spark.sql.redaction.string.regex"
"""The setting by which Spark redacts its records of queries."""

_NOTHING_IS_CUT = {
    "spark.sql.debug.maxToStringFields": "2000000000",
    "spark.sql.maxPlanStringLength": "2147483632",
    # A deployment may redact parts of plans, and with them names of relations.
    REDACTION: "(?!)",
}
"""Session settings during the explanation: a truncated plan could not be checked."""

_HIDDEN = "*********(redacted)"
"""Spark's text in the place of a redacted one."""

_NODE = re.compile(r"^(?P<prefix>(?:[: ] {2})*)(?:\+- |:- )[!'~]?(?P<kind>\w+)")
"""The first line of a node. A string literal with line breaks may look like one, too."""

_INDENT = 3
"""Indentation of a node relative to its parent."""

_RELATION = re.compile(r"'UnresolvedRelation \[(?P<name>[^\[\],\n]+)\], \[\], false")
_ALIAS = re.compile(r"[!'~]?SubqueryAlias (?:(?P<plain>[^`\n]+)|`(?P<quoted>[^`\n]+)`)")
_JAVA_CALL = re.compile(rf"(?:{'|'.join(JAVA_CALLS)})(?:\(|\])|WithUnresolvedIdentifier", re.IGNORECASE)
_PLACE = re.compile(r"\(line (\d+), pos (\d+)\)")

_NOT_CHECKED = "cannot be checked over Spark Connect: {}; write it otherwise, or refresh this table through spark-submit"


def redaction(spark: SparkSession) -> str | None:
    """The pattern of texts that a server redacts.

    :return: empty without one; ``None`` when the server hides the pattern, because it contains a word such as password.
    """
    shown = str(spark.sql(f"SET {REDACTION}").collect()[0]["value"])
    if shown == _HIDDEN:  # by SQL always, by the API since Spark 4.0.5, 4.1.4 and 4.3.0
        return spark.conf.get(REDACTION, "") or None
    return "" if shown == "<undefined>" else shown


@dataclass(slots=True)
class _Node:
    """A node of the parsed plan with its text; ``inner`` are the trees of its subqueries."""

    kind: str
    depth: int
    text: str
    children: list[_Node] = field(default_factory=list)
    inner: list[_Node] = field(default_factory=list)


class ExplainedQueries:
    """Parsed plans of queries in a session; every text is explained once."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._known: dict[str, tuple[_Node, str]] = {}

    def check_query(self, query: str, views: Collection[str]) -> None:
        """See :meth:`Driver.check_query`."""
        root, _ = self._parsed(query)
        legal = frozenset(view.lower() for view in views)
        for node, named, own in _nodes(root):
            if node.kind == "PlanWithUnresolvedIdentifier":
                raise ValueError("IDENTIFIER(...) hides which table the query reads; name the table in FROM")
            if node.kind == WINDOWS:
                check_windows(node.text)
            if node.kind == "UnresolvedRelation":
                _check_relation(node, legal | named | {name for name in own if not self._exists(name)})
            elif not node.children and node.kind not in LEAVES:
                raise ValueError(f"for Spark the query reads {node.kind}, and a query reads declared tables only")

    def check_allowed(self, plan: RefreshPlan) -> None:
        """See :meth:`Driver.check_allowed`. A text in the query that looks like a call counts as one."""
        if plan.allowed == EVERYTHING:
            return
        for function in plan.functions:
            if why := plan.allowed.refusal(ability_of(function.language)):
                raise ValueError(f"function {function.identifier}: {why}")
        for query in (plan.query, *(f"SELECT (\n{item.predicate}\n)" for item in plan.expectations if item.predicate)):
            root, text = self._parsed(query)
            kinds = {node.kind for node, _, _ in _nodes(root)}
            needed = {Ability.TRANSFORM} if "ScriptTransformation" in kinds else set()
            needed |= {Ability.JAVA_CALLS} if _JAVA_CALL.search(text) else set()
            for ability in sorted(needed):
                if why := plan.allowed.refusal(ability):
                    raise ValueError(why)

    @cached_property
    def _redaction(self) -> str | None:
        return redaction(self._spark)

    def _exists(self, name: str) -> bool:
        """Return whether the name of a possibly recursive query would be a table if it is not recursive, which the text omits."""
        return self._spark.catalog.tableExists(quote(name))

    def _parsed(self, query: str) -> tuple[_Node, str]:
        if query not in self._known:
            self._known[query] = self._explained(query)
        return self._known[query]

    def _explained(self, query: str) -> tuple[_Node, str]:
        # Random names, so that no query can contain a text that looks like its end.
        shallow, deep, end = (f"{name}_{uuid4().hex}" for name in ("shallow", "deep", "end"))
        statement = (
            f"EXPLAIN EXTENDED WITH {shallow} AS (\n{query}\n), {deep} AS (SELECT * FROM (\n{query}\n)) "
            f"SELECT count(1) OVER {end} FROM {shallow} WINDOW other AS ()"
        )
        try:
            with self._whole():
                text = str(self._spark.sql(statement).collect()[0][0])
        except AnalysisException as error:  # includes parser errors
            raise ValueError(refused(self._spark.version, _as_of_the_query(str(error), query))) from None
        if _HIDDEN in text:
            raise ValueError(_not_checked(f"the server's {REDACTION} hides parts of it"))
        _, found_shallow, rest = text.partition(f"SubqueryAlias {shallow}\n")
        first, found_deep, rest = rest.partition(f"SubqueryAlias {deep}\n")
        second, found_end, _ = rest.partition(f"WindowSpecReference({end})")
        if not (found_shallow and found_deep and found_end):
            raise ValueError(_not_checked("Spark's explanation of it is not whole"))
        # The frame consists of half a line after the first copy, and two nodes each above and below the second one.
        return _tree(_lines(first.rpartition("\n")[0]), _lines(second)[2:-2]), first

    @contextmanager
    def _whole(self) -> Iterator[None]:
        settings = ConnectSettings(self._spark)
        before = {name: value for name, value in settings.set_by_anybody().items() if name in _NOTHING_IS_CUT}
        changed = dict(_NOTHING_IS_CUT)
        if self._redaction is None:
            del changed[REDACTION]  # it could not be restored
        try:
            settings.change(changed)
            yield
        finally:
            settings.change(before, defaults=changed.keys() - before.keys())


def _as_of_the_query(message: str, query: str) -> str:
    """Convert a parser error of the enclosing statement, in which the query begins in the second line, to one of the query."""
    words = message.partition("\n\n== SQL")[0].partition("\n\nJVM stacktrace:")[0].strip()
    place = _PLACE.search(words)
    if place is None:
        return words
    line, position = int(place[1]) - 1, int(place[2])
    lines = query.split("\n")
    shown = "\n".join((*lines[:line], f"{'-' * position}^^^", *lines[line:]))
    return f"{words[: place.start()]}(line {line}, pos {position}){words[place.end() :]}\n\n== SQL ==\n{shown}"


def _not_checked(why: str) -> str:
    return f"the query {_NOT_CHECKED.format(why)}"


def _lines(text: str) -> list[_Node]:
    nodes: list[_Node] = []
    for line in text.split("\n"):
        if begun := _NODE.match(line):
            nodes.append(_Node(begun["kind"], len(begun["prefix"]) // _INDENT, line[len(begun["prefix"]) + _INDENT :]))
        elif nodes:
            nodes[-1].text += f"\n{line}"
    return nodes


def _tree(shallow: list[_Node], deep: list[_Node]) -> _Node:
    """Build the tree of a query that is printed at two depths. A literal that looks like a node is not indented further."""
    if not shallow or len(shallow) != len(deep):
        raise ValueError(_not_checked("a text in it looks like a plan"))
    shift = deep[0].depth - shallow[0].depth
    for node, lower in zip(shallow, deep, strict=True):
        if shift <= 0 or (node.kind, node.depth + shift) != (lower.kind, lower.depth):
            raise ValueError(_not_checked("a text in it looks like a plan"))
    way = [shallow[0]]
    for node in shallow[1:]:
        while way and way[-1].depth >= node.depth:
            way.pop()
        if not way or node.depth - way[-1].depth > 2:
            raise ValueError(_not_checked("its plan is no tree"))
        above = way[-1]
        (above.children if node.depth == above.depth + 1 else above.inner).append(node)
        way.append(node)
    return shallow[0]


def _nodes(root: _Node) -> Iterator[tuple[_Node, frozenset[str], frozenset[str]]]:
    """Every node, with the names of the common table expressions in scope, and of those that contain it.

    The text omits whether one of the latter is RECURSIVE, so that its own name is in scope.
    """
    stack = [(root, frozenset[str](), frozenset[str]())]
    while stack:
        node, named, own = stack.pop()
        yield node, named, own
        inner = node.inner
        if node.kind == "CTE":
            for relation in inner:
                alias = _ALIAS.fullmatch(relation.text)
                name = frozenset({(alias["plain"] or alias["quoted"]).lower()} if alias else ())
                stack.append((relation, named, own | name))
                named |= name
            inner = []
        stack.extend((child, named, own) for child in (*node.children, *inner))


def _check_relation(node: _Node, legal: Collection[str]) -> None:
    relation = _RELATION.fullmatch(node.text)
    names = [relation["name"]] if relation else node.text.partition("[")[2].partition("]")[0].split(", ")
    check_name(names, legal)
    if relation is None:
        raise ValueError(_not_checked(f"it reads {names[0]} with options, or as a stream"))


_ADDING = threading.Lock()
"""PySpark removes missing folders from Python's import caches, which is not thread-safe."""


class ConnectDriver(Driver):
    """Spark behind a Spark Connect session. Subclasses access the files of the process that runs the job.

    :param passwords: by the names of environment variables in the plan.
    """

    def __init__(self, spark: SparkSession, passwords: Mapping[str, str], tell: Callable[[str], None]) -> None:
        self._spark = spark
        self._passwords = passwords
        self._tell = tell
        self._queries = ExplainedQueries(spark)

    @cached_property
    def application_id(self) -> str:
        """The server's application id, shared by all its sessions."""
        return self._spark.conf.get("spark.app.id", "") or ""

    @property
    def settings(self) -> SessionSettings:
        return ConnectSettings(self._spark)

    @abstractmethod
    def local_copy(self, uri: str) -> Path:
        """A local copy of a file with the same name. It is deleted when the job ends, and its modules are unloaded."""

    def check_query(self, query: str, views: Collection[str]) -> None:
        self._queries.check_query(query, views)

    def check_allowed(self, plan: RefreshPlan) -> None:
        self._queries.check_allowed(plan)

    def count_files(self, frame: DataFrame) -> int:
        """Count distinct files; a server does not report more.

        That is sufficient: a plan names every file once, and a pattern of :func:`~airflow_dynamic_tables.jobs.files.exactly`
        matches no other file, so for a file that is read twice another one would be missing.
        """
        # Bypasses PySpark's unbounded cache, which would keep the frame and its session alive forever.
        return len(unwrap(type(frame).inputFiles)(frame))

    @property
    def how_to_add_jars(self) -> str:
        return "name its jar in the definition, for example spark: {jars: /usr/share/java/postgresql.jar}"

    def add_python_file(self, uri: str) -> None:
        copy = self.local_copy(uri)
        sys.path.insert(0, str(copy.parent if copy.suffix == ".py" else copy))
        with _ADDING:
            self._spark.addArtifacts(str(copy), pyfile=True)

    def add_jar(self, uri: str) -> None:
        """See :meth:`Driver.add_jar`. ADD JAR would apply to the entire server, which keeps the first class of a name."""
        self._spark.addArtifacts(str(self.local_copy(uri)))

    def password(self, variable: str) -> str | None:
        return self._passwords.get(variable)

    def tell(self, line: str) -> None:
        self._tell(line)


class ConnectSettings(SessionSettings):
    """The settings of a session on a server."""

    def __init__(self, spark: SparkSession) -> None:
        self._client: Any = spark.client

    def set_by_anybody(self) -> dict[str, str]:
        return dict(self._answer(ConfigRequest.Operation(get_all=ConfigRequest.GetAll())).pairs)

    def values(self, names: Collection[str]) -> dict[str, str | None]:
        return self._asked(ConfigRequest.Operation(get_option=ConfigRequest.GetOption(keys=names)), names)

    def modifiable(self, names: Collection[str]) -> frozenset[str]:
        answers = self._asked(ConfigRequest.Operation(is_modifiable=ConfigRequest.IsModifiable(keys=names)), names)
        return frozenset(name for name, answer in answers.items() if answer == "true")

    def change(self, values: Mapping[str, str], defaults: Collection[str] = ()) -> None:
        pairs = [KeyValue(key=name, value=value) for name, value in values.items()]
        for operation, names in (
            (ConfigRequest.Operation(unset=ConfigRequest.Unset(keys=defaults)), defaults),
            (ConfigRequest.Operation(set=ConfigRequest.Set(pairs=pairs)), values),
        ):
            for warning in self._answer(operation).warnings if names else ():
                warnings.warn(warning, stacklevel=2)

    def _asked(self, operation: ConfigRequest.Operation, names: Collection[str]) -> dict[str, str | None]:
        """Query settings of the server; no names need no call. Warnings are ignored, because a query is not a use."""
        return dict(self._answer(operation).pairs) if names else {}

    def _answer(self, operation: ConfigRequest.Operation) -> Any:
        return self._client.config(operation)
