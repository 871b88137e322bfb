"""Queries that nobody here wrote: what Spark can parse is read, with the tables that Spark sees, and expands to legal SQL.

A part of Spark's own tests lies in ``corpus``. The long form reads all of them, TPC-H, TPC-DS and ClickBench, from where they
are published, or from the folder that ``DYNAMIC_TABLES_CORPUS`` names. Nothing is run: Spark's parser is all that it takes.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_dynamic_tables.clients.spark_parser import SparkParser, own_exceptions
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.queries.editing import expand
from airflow_dynamic_tables.definitions.queries.text import Target, analyse
from tests.support.spark_version import SPARK_VERSION
from tests.support.suite import missing_service

pytestmark = pytest.mark.spark

OURS = Path(__file__).with_name("corpus")
SPARK = "https://codeload.github.com/apache/spark/tar.gz/refs/tags/v4.1.0"
SPARK_FOLDERS = ("sql-tests/inputs/", "resources/tpcds/", "resources/tpch/")
CLICKBENCH = "https://raw.githubusercontent.com/ClickHouse/ClickBench/main/spark/queries.sql"

BY_DESIGN = re.compile(
    r"hides which table is read|no parameters|time travel|more than one statement|must be a SELECT|templates are not"
    r"|is given a table|writes nothing|quote|hint|backslash"
)
ODD = re.compile(
    r"IDENTIFIER ?\(|\bUDTF|^(MAP|REDUCE) |\bMAP src|TABLESAMPLE \([-x]|decode\(|LIMIT key >|/\*/|order by y$"
    r"|\) tablesample|window w2 as",
    re.IGNORECASE | re.DOTALL,
)
"""What is legal and nobody writes in a definition, or cannot be analysed."""

QUERY = re.compile(r"(?:\s|\(|/\*.*?\*/)*(SELECT|WITH|FROM|VALUES|TABLE|MAP|REDUCE)\b", re.IGNORECASE | re.DOTALL)
RELATION = re.compile(r"UnresolvedRelation \[(.*?)\]")
NAMES_OF_WITH = re.compile(r"(?:CTE|UnresolvedWith) \[(.*?)\]")


@pytest.fixture(scope="module")
def parser(java: None) -> Iterator[Any]:  # noqa: ARG001 - it must be there
    """Spark's parser itself, whose plans say which tables they read."""
    spark = SparkParser.installed()
    assert spark is not None
    with spark, own_exceptions():
        yield spark._start().jvm.org.apache.spark.sql.catalyst.parser.CatalystSqlParser()


def _statements(text: str) -> Iterator[str]:
    lines = "\n".join(line for line in text.split("\n") if not line.startswith("--"))
    for statement in re.split(r";[ \t]*(?:--[^\n]*)?(?:\n|$)", lines):
        if QUERY.match(statement):
            yield statement.strip()


def _judge(query: str, parser: Any) -> tuple[str, str]:
    """What became of one statement, in one word, and the details."""
    from py4j.protocol import Py4JJavaError

    try:
        parsed = parser.parsePlan(query)
    except Py4JJavaError:
        return "illegal", "passed" if not analyse(query).problems else "refused"
    if "Command" in parsed.getClass().getName() or "Insert" in parsed.getClass().getName():
        return "command", "passed" if not analyse(query).problems else "refused"
    analysis = analyse(query)
    if analysis.problems:
        designed = BY_DESIGN.search(analysis.problems[0].message) or ODD.search(query)
        return ("by design" if designed else "false refusal"), analysis.problems[0].message
    plan = parsed.toString()
    named = {name.strip().lower() for names in NAMES_OF_WITH.findall(plan) for name in names.split(",")}
    seen = {name.replace("`", "").replace(", ", ".").lower() for name in RELATION.findall(plan)} - named
    read = {".".join(part.text for part in item.parts).lower() for item in analysis.references} - named
    if missed := seen - read:  # not the other way: Spark's text of a plan leaves out some subqueries
        return "missed tables", str(missed)
    full = [("c", "d", *(part.text for part in item.parts))[-3:] for item in analysis.references]
    try:
        parser.parsePlan(expand(analysis, [Target(TableIdentifier(*names), "`c`.`d`.`x`") for names in full]))
    except Py4JJavaError as error:
        return "expands wrongly", str(error.java_exception.getMessage())
    return "right", ""


def _count(texts: Iterable[str], parser: Any) -> tuple[Counter[str], list[str]]:
    """How many statements came to what, and those that must not be."""
    counts: Counter[str] = Counter()
    wrong = []
    for query in dict.fromkeys(query for text in texts for query in _statements(text)):
        outcome, details = _judge(query, parser)
        counts[outcome] += 1
        if outcome in ("missed tables", "expands wrongly") or (outcome, details) == ("command", "passed"):
            wrong.append(f"{outcome}: {query}\n  {details}")
        elif outcome == "false refusal":
            wrong.append(f"{details}: {query}")
    return counts, wrong


@pytest.mark.large
def test_a_part_of_sparks_own_queries(parser: Any) -> None:
    counts, wrong = _count((file.read_text() for file in sorted(OURS.glob("*.sql"))), parser)
    assert wrong == []
    assert counts["right"] > (800 if SPARK_VERSION >= (4,) else 700)  # Spark 3.5 has no pipes
    assert counts["by design"] < 20


@pytest.mark.long
def test_all_public_queries(parser: Any, capsys: pytest.CaptureFixture[str]) -> None:
    counts, wrong = _count(_public(), parser)
    with capsys.disabled():
        print(f"\npublic queries: {dict(counts)}\n" + "\n".join(wrong))
    assert counts["right"] > 10_000
    assert counts["missed tables"] == counts["expands wrongly"] == 0
    assert counts["false refusal"] < 20


def _public() -> Iterator[str]:
    if folder := os.environ.get("DYNAMIC_TABLES_CORPUS"):
        yield from (file.read_text() for file in sorted(Path(folder).rglob("*.sql")))
        return
    try:
        with urllib.request.urlopen(CLICKBENCH, timeout=60) as answer:
            yield answer.read().decode()
        with urllib.request.urlopen(SPARK, timeout=600) as answer:
            content = io.BytesIO(answer.read())
    except OSError as error:
        missing_service(f"the public queries cannot be fetched: {error}")
    with tarfile.open(fileobj=content) as archive:
        for member in archive:
            if member.name.endswith(".sql") and any(folder in member.name for folder in SPARK_FOLDERS):
                file = archive.extractfile(member)
                yield file.read().decode() if file else ""
