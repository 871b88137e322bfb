"""Who decides what is SQL: Spark's own parser where there is one, and only there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_dynamic_tables.clients.spark_parser import SparkParser
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_sound_definitions
from tests.support.spark_version import SPARK_VERSION

pytestmark = pytest.mark.spark

YAML = """
sources: [{name: t, format: csv, path: /x}]
dynamic_tables: [{name: t0, freshness: 1 day, query_file: query.sql}]
"""

# A query, the mistake without Spark, and with it; places in the file behind "query: ".
QUERIES = {
    "fine": ("SELECT 1 AS a", None, None),
    "ours_reads_too_much": (
        "SELECT 128Y AS a FROM t",
        None,
        "1:17: bad SQL: Spark VERSION cannot parse this: [INVALID_NUMERIC_LITERAL_RANGE] Numeric literal 128",
    ),
    "ours_reads_a_slice": (
        "SELECT a[1:2] AS a FROM t",
        None,
        ("1:21: {} '2'" if SPARK_VERSION >= (4, 1) else "1:20: {} ':'").format(
            "bad SQL: Spark VERSION cannot parse this: [PARSE_SYNTAX_ERROR] Syntax error at or near"
        ),
    ),
    "nobody_reads_it": (
        "SELEC 1",
        "1:16: bad SQL: unexpected '1'",
        "1:10: bad SQL: Spark VERSION cannot parse this: [PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'",
    ),
    "only_spark_reads_it": (
        "/*/**/*/ SELECT 'a' AS b",
        "1:19: bad SQL: DIV is incomplete",
        "1:19: Spark can parse this query, but the tables it reads cannot be told; write this part another way (DIV",
    ),
    "we_know_better": ("SELECT {{ ds }} AS b", "1:17: templates are not rendered", "1:17: templates are not rendered"),
}


@pytest.fixture(scope="module")
def spark_parser(java: None) -> Iterator[SparkParser]:  # noqa: ARG001 - it must be there
    parser = SparkParser.installed()
    assert parser is not None
    with parser:
        yield parser


def _mistakes(query: str, folder: Path, cache: Cache, spark: SparkParser | None) -> list[str]:
    file = folder / "query.sql"
    (folder / "t.yaml").write_text(YAML)
    file.write_text(" " * 9 + query)
    _, mistakes = load_sound_definitions(folder, cache=cache, spark=spark)
    return [str(mistake).removeprefix(f"{file}:") for mistake in mistakes]


@pytest.mark.sampled
@pytest.mark.parametrize(("query", "without", "with_spark"), QUERIES.values(), ids=QUERIES)
def test_spark_decides_where_it_is_installed(
    query: str, without: str | None, with_spark: str | None, spark_parser: SparkParser, tmp_path: Path
) -> None:
    for spark, mistake in ((None, without), (spark_parser, with_spark), (None, without)):
        found = _mistakes(query, tmp_path, Cache(tmp_path / "cache"), spark)
        assert len(found) == (mistake is not None)
        expected = (mistake or "").replace("VERSION", spark_parser.version)
        assert all(text.startswith(expected) for text in found)


def test_spark_is_asked_once_about_a_text(spark_parser: SparkParser, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    first = _mistakes("SELECT a[1:2] AS a FROM t", tmp_path, cache, spark_parser)
    assert len(first) == 1
    spark_parser.close()
    spark_parser.refusal = pytest.fail  # type: ignore[method-assign, assignment]
    try:
        assert _mistakes("SELECT a[1:2] AS a FROM t", tmp_path, cache, spark_parser) == first
    finally:
        del spark_parser.refusal
