"""Spark's own parser, asked by way of Java alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.clients.spark_parser import Refusal, SparkParser
from airflow_dynamic_tables.exceptions import ConfigurationError
from tests.support.spark_version import SPARK_VERSION, since

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def parser(java: None) -> Iterator[SparkParser]:  # noqa: ARG001 - it must be there
    installed = SparkParser.installed()
    assert installed is not None
    with installed as opened:
        yield opened


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("query", "place", "words"),
    [
        ("SELECT a INTO x FROM t", (0, 14), "[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'"),
        ("SELECT\n  '🙂', 128Y", (1, 7), "[INVALID_NUMERIC_LITERAL_RANGE] Numeric literal 128 is outside"),
        ("SELECT * REPLACE (1 AS a) FROM t", (0, 17), "Syntax error at or near '('"),
        ("SELECT a FROM t FETCH FIRST 1 ROWS ONLY", (0, 22), "Syntax error at or near 'FIRST'"),
        ("SELECT a FROM t UNION BY NAME SELECT b FROM u", (0, 22), "Syntax error"),
        ("SELECT interval 'x' day", (0, 16), "invalid value: x"),
        (
            "WITH a AS (SELECT 1), a AS (SELECT 2) SELECT 1",
            (0, 0),
            "[DUPLICATED_CTE_NAMES]" if SPARK_VERSION >= (4,) else "duplicate names",
        ),
        ("SELECT date 'mar 11 2016'", (0, 7), "mar 11 2016"),
        ("SELECT 1 /* a", None, "[UNCLOSED_BRACKETED_COMMENT]"),
    ],
)
def test_what_spark_refuses_has_a_place_and_its_words(
    query: str, place: tuple[int, int] | None, words: str, parser: SparkParser
) -> None:
    refusal = parser.refusal(query)
    assert refusal is not None
    assert refusal.place == place
    assert words in refusal.message
    assert "SQLSTATE" not in refusal.message
    assert "\n" not in refusal.message


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1;",
        "TABLE t",
        pytest.param("SELECT v:a.b::INT FROM t", marks=since(4, 1)),
        "/*/**/*/ SELECT 1",
        pytest.param("FROM t |> DROP a", marks=since(4, 0)),
        "SELECT a FROM t DISTRIBUTE BY a",
        "SELECT '${env:HOME}'",
    ],
)
def test_what_spark_can_parse_is_not_refused(query: str, parser: SparkParser) -> None:
    assert parser.refusal(query) is None


def test_a_session_of_the_same_process_is_not_asked(spark: SparkSession, parser: SparkParser) -> None:
    used = [spark.range(number)._jdf for number in range(200)]  # so that the names of its objects are those of the parser's, too
    refusals = [parser.refusal(query) for query in ("SELECT interval 'x' day", "SELEC", "SELECT 128Y") for _ in range(20)]
    assert None not in refusals
    assert used


@pytest.mark.large
def test_it_parses_again_after_it_was_closed(java: None) -> None:  # noqa: ARG001
    parser = SparkParser.installed()
    assert parser is not None
    for _ in range(2):
        with parser:
            assert isinstance(parser.refusal("SELEC"), Refusal)


def test_a_java_that_does_not_start_is_told(java: None, tmp_path: Path) -> None:  # noqa: ARG001
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(shutil.which("false") or "")
    parser = SparkParser.installed({"JAVA_HOME": str(tmp_path)})
    assert parser is not None
    with pytest.raises(ConfigurationError, match="Spark's parser does not answer"):
        parser.refusal("SELECT 1")


def test_without_java_or_spark_there_is_no_parser(tmp_path: Path) -> None:
    assert SparkParser.installed({"PATH": str(tmp_path)}) is None
    assert SparkParser.installed({"SPARK_HOME": str(tmp_path)}) is None


@pytest.mark.large
@since(4, 2)  # QUALIFY, recursion, pipes and collations
def test_the_analyzer_says_what_a_session_says(spark: SparkSession, parser: SparkParser) -> None:
    given = "WITH t AS (SELECT s.* FROM (SELECT CAST(NULL AS STRUCT<ds string, n int, st struct<`a b`: array<int>>>) AS s)) "
    for query in (
        "SELECT ds, sum(n) AS s, st.`a b`[0] AS first, n / 2 FROM t GROUP BY ALL",
        "SELECT *, row_number() OVER (PARTITION BY ds ORDER BY n) AS r FROM t QUALIFY r = 1",
        "WITH RECURSIVE r AS (SELECT n FROM t UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT * FROM r",
        "FROM t |> AGGREGATE count(*) AS c GROUP BY ds |> WHERE c > 1",
        "SELECT ds, '${ds}' AS text FROM t CLUSTER BY ds",
        "SELECT a.ds FROM t a WHERE EXISTS (SELECT 1 FROM t b WHERE b.n = a.n) UNION SELECT 'x'",
        "SELECT explode(st.`a b`) AS e, date_trunc('day', now()) AS at FROM t LATERAL VIEW posexplode(st.`a b`) AS p, v",
        "SELECT * FROM t PIVOT (sum(n) FOR ds IN ('a', 'b'))",
        "SELECT to_json(st), window(to_timestamp(ds), '1 hour').start, 'x' COLLATE UTF8_LCASE AS c FROM t",
    ):
        asked = f"{given}(\n{query}\n)"
        assert parser.returned(asked, {}) == spark.sql(asked)._jdf.schema().json(), query


@since(4, 0)
def test_settings_decide_what_a_query_means(parser: SparkParser) -> None:
    query = "SELECT N + '1' AS x FROM (SELECT 1 AS n)"
    assert '"type":"long"' in str(parser.returned(query, {}))
    assert '"type":"double"' in str(parser.returned(query, {"spark.sql.ansi.enabled": "false"}))
    refused = parser.returned(query, {"spark.sql.caseSensitive": "true"})
    assert isinstance(refused, Refusal)
    assert refused.place == (0, 7)
    assert refused.message.endswith("`N` cannot be resolved. Did you mean one of the following? [`n`]")


VARIANT = pytest.param("SELECT v:a::int FROM (SELECT parse_json('1') v)", marks=since(4, 1))


@pytest.mark.parametrize("query", ["SELECT mine(1)", "SELECT lake.mine(1)", "SELECT * FROM nothing", VARIANT])
def test_what_takes_a_session_is_not_refused(query: str, parser: SparkParser) -> None:
    assert parser.returned(query, {}) is None
