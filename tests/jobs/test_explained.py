"""Where there is no JVM, the text of EXPLAIN says what the parser's tree says, or the query is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.refresh.permissions import Allowed
from airflow_dynamic_tables.jobs.connect_driver import ExplainedQueries
from airflow_dynamic_tables.jobs.query import check_allowed, check_query
from tests.jobs.conftest import Plan
from tests.jobs.query.test_checking import HIDDEN, NO_QUERIES, QUERIES, READS, known
from tests.jobs.query.test_permissions import CALLS, CLOSED, HARMLESS, SCRIPTS
from tests.support.connect_server import ConnectServer

pytestmark = pytest.mark.spark

FORGED = [
    "SELECT '\n:  :     +- CTE [secret]\n:  :        :  +- ''SubqueryAlias secret\n:  :        :     +- X' FROM secret",
    "SELECT a AS `x\n+- 'UnresolvedRelation [t], [], false` FROM secret",
    "SELECT a FROM t WHERE b = '\n   +- OneRowRelation'",
    "WITH `t], [], false` AS (SELECT * FROM secret) SELECT * FROM `t], [], false`",
    "WITH `parquet, /x` AS (SELECT 1) SELECT * FROM parquet.`/x`",
    "SELECT 1) UNION ALL SELECT * FROM (secret",
    "SELECT 1 -- \\",
    "secret",
    "RESET secret",
]
"""Texts that try to look otherwise in an explanation than they are."""

HARD = [
    "SELECT sum(id) OVER w FROM t WINDOW w AS (ORDER BY (SELECT max(a) FROM secret))",
    "SELECT sum(a) OVER (ORDER BY (SELECT max(a) FROM secret)) FROM t",
    "WITH a AS (WITH secret AS (SELECT 1) TABLE secret) SELECT * FROM a, secret",
    "SELECT * FROM VALUES (1, (SELECT max(a) FROM secret)) AS v(a, b)",
    "SELECT * FROM t VERSION AS OF (SELECT 1 FROM secret)",
    "SELECT * FROM f(TABLE(SELECT * FROM secret) PARTITION BY a)",
    "SELECT a FROM t GROUP BY a HAVING (SELECT 1 FROM secret) = 1",
    "SELECT * FROM t WITH (a = 1)",
    "SELECT * FROM STREAM t",
]
FINE = [
    "SELECT split(a, '\n') FROM t -- a comment",
    "SELECT sum(a) OVER w FROM t WINDOW w AS (PARTITION BY b)",
    "WITH A AS (SELECT 1), `a b` AS (TABLE a) SELECT * FROM `a b` JOIN u USING (x) EXCEPT SELECT 1",
]


@pytest.fixture(scope="module")
def session(connect_server: ConnectServer) -> Iterator[SparkSession]:
    from pyspark.sql.connect.session import SparkSession as ConnectSession  # only with its extras

    made = ConnectSession.builder.remote(connect_server.url).create()
    made.conf.set("spark.sql.variable.substitute", "false")
    made.range(1).createOrReplaceTempView("secret")
    yield cast(SparkSession, made)
    made.stop()


@pytest.fixture
def explained(session: SparkSession) -> ExplainedQueries:
    return ExplainedQueries(session)


@pytest.mark.sampled
@pytest.mark.parametrize("query", known([*QUERIES, *FINE]))
def test_what_reads_its_own_views(spark: SparkSession, explained: ExplainedQueries, query: str) -> None:
    check_query(spark, query, ["t", "U"])
    explained.check_query(query, ["t", "U"])


@pytest.mark.parametrize("query", ["BEGIN SELECT 1; END", *(text for text, _ in NO_QUERIES), *READS, *HIDDEN, *FORGED, *HARD])
def test_what_does_more(explained: ExplainedQueries, query: str) -> None:
    for text in (query, f"SELECT * FROM ({query}) AS q", f"WITH q AS ({query}) SELECT 1 FROM t"):
        with pytest.raises(ValueError, match=r".") as caught:
            explained.check_query(text, ["t"])
        assert "deep_" not in str(caught.value)


FRAMES = [
    "SELECT * FROM ({}) AS q",
    "WITH q AS ({}) SELECT * FROM q, t",
    "SELECT (SELECT max(1) FROM ({}) AS s) AS x FROM t",
    "SELECT 1 AS x FROM t WHERE EXISTS ({})",
    "{} UNION ALL {}",
    "SELECT max(a) OVER (ORDER BY (SELECT 1 FROM ({}))) FROM t",
    "FROM t |> WHERE a IN ({})",
    "SELECT /*+ REPARTITION(2) */ * FROM LATERAL ({}) AS q",
    "WITH RECURSIVE t AS ({}) SELECT * FROM t",
]
"""What texts are put into when they are spoiled; more than one level deep, as chance has it."""

PIECES = ["t", "secret", "`t`", "(", ")", "'", '"', "`", "--", "/*", "*/", ";", "$$", "{x}", ":p", "\n", "\n+- ", "-- \\\n"]
PIECES += ["EXPLAIN", "OVER w", "STREAM", "IDENTIFIER('t')", "WITH secret AS (TABLE t)", "VERSION AS OF 1", "USING 'cat'"]
PIECES += ["reflect('java.lang.System', 'gc')"]
TEXTS = [*QUERIES, *FINE, *(text for text, _ in NO_QUERIES), *READS, *HIDDEN, *FORGED, *HARD, *SCRIPTS, *CALLS, *HARMLESS]


def spoiled(number: int) -> str:
    """A text of the corpora that somebody put together otherwise; the same number always gives the same."""
    chance = Random(number)
    text = chance.choice(TEXTS)
    for _ in range(chance.randint(0, 4)):
        words = re.split(r"(\s+|[(),'])", text)
        place = chance.randrange(len(words))
        match chance.randint(0, 3):
            case 0:
                text = chance.choice(FRAMES).replace("{}", text)
            case 1:
                text = "".join([*words[:place], chance.choice(PIECES), " ", *words[place:]])
            case 2:
                text = "".join([*words[:place], *words[place + 1 :]])
            case _:
                text = "".join([*words[:place], chance.choice(re.split(r"\s+", chance.choice(TEXTS))), *words[place + 1 :]])
    return text


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 800, 100))
def test_nothing_passes_that_the_tree_does_not_let_pass(
    spark: SparkSession, explained: ExplainedQueries, plan: Plan, first: int
) -> None:
    stricter = 0
    for text in map(spoiled, range(first, first + 100)):
        by_tree = _passes(partial(check_query, spark, text, ["t", "U"]))
        by_text = _passes(partial(explained.check_query, text, ["t", "U"]))
        assert by_tree or not by_text, text
        stricter += by_tree and not by_text
        if by_tree:
            closed = plan(text, allowed=CLOSED)
            allowed_by_tree = _passes(partial(check_allowed, spark, closed))
            assert allowed_by_tree or not _passes(partial(explained.check_allowed, closed)), text
    assert stricter < 20


def _passes(check: Callable[[], None]) -> bool:
    try:
        check()
    except (ValueError, PySparkException):
        return False
    return True


def test_a_window_hides_no_table_from_the_tree_either(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="a subquery in a WINDOW clause"):
        check_query(spark, HARD[0], ["t"])


def test_a_name_that_is_a_table_is_not_its_own_recursion(session: SparkSession, explained: ExplainedQueries) -> None:
    query = "WITH RECURSIVE own_name AS (SELECT 1 UNION ALL TABLE own_name) TABLE own_name"
    explained.check_query(query, [])
    session.range(1).createOrReplaceTempView("own_name")
    with pytest.raises(ValueError, match="own_name, which is none"):
        explained.check_query(query, [])
    session.catalog.dropTempView("own_name")


def test_a_mistake_has_its_place_in_the_query(explained: ExplainedQueries) -> None:
    with pytest.raises(ValueError, match=r"^Spark [0-9.]+: \[PARSE_SYNTAX_ERROR\] .*\(line 2, pos 14\)\n\n== SQL ==\nSELECT 1\n"):
        explained.check_query("SELECT 1\nFROM t GRUPPE BY x", ["t"])


def test_words_that_a_deployment_hides_are_seen(session: SparkSession) -> None:
    session.conf.set("spark.sql.redaction.string.regex", "hidden|(?s)Unresolved.*")
    with pytest.raises(ValueError, match="hidden, which is none"):
        ExplainedQueries(session).check_query("SELECT * FROM hidden", ["t"])
    assert session.conf.get("spark.sql.redaction.string.regex") == "hidden|(?s)Unresolved.*"
    session.conf.unset("spark.sql.redaction.string.regex")


def test_words_that_a_server_does_not_tell_stay_hidden(session: SparkSession) -> None:
    # Spark 4.0.5, 4.1.4 and 4.3.0 do not tell the values of settings with such words in them.
    session.conf.set("spark.sql.redaction.string.regex", "password|(?s)Unresolved.*")
    with pytest.raises(
        ValueError, match=r"hidden, which is none|the server's spark.sql.redaction.string.regex hides parts of it"
    ):
        ExplainedQueries(session).check_query("SELECT * FROM hidden", ["t"])
    explained = session.sql("EXPLAIN EXTENDED SELECT 'my password'").collect()[0][0]
    assert "my *********(redacted)" in explained
    session.conf.unset("spark.sql.redaction.string.regex")


@pytest.mark.parametrize("query", known([*SCRIPTS, *CALLS]))
def test_what_is_not_allowed(explained: ExplainedQueries, plan: Plan, query: str) -> None:
    with pytest.raises(ValueError, match="is not allowed here"):
        explained.check_allowed(plan(query, allowed=CLOSED))


@pytest.mark.parametrize("query", HARMLESS)
def test_what_only_looks_like_it(explained: ExplainedQueries, plan: Plan, query: str) -> None:
    explained.check_allowed(plan(query, allowed=CLOSED))


def test_nothing_is_computed_before_it_is_refused(session: SparkSession, explained: ExplainedQueries, plan: Plan) -> None:
    query = "SELECT x FROM VALUES (reflect('java.lang.System', 'exit', 1)) AS v(x)"
    with pytest.raises(ValueError, match="calling Java"):
        explained.check_allowed(plan(query, allowed=Allowed(java_calls=False)))
    assert session.range(1).count() == 1
