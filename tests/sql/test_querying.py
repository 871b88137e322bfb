"""``SELECT`` of anything but columns of one table: by Spark, over the current versions, and nothing else than reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark import __version__
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.query_test_plans import QueryTestOutcomes, QueryTestPlans
from airflow_dynamic_tables.core.refresh.permissions import Allowed
from airflow_dynamic_tables.exceptions import DefinitionError
from airflow_dynamic_tables.jobs.main import JvmDriver
from airflow_dynamic_tables.jobs.query_tests import run_query_tests
from airflow_dynamic_tables.sql.session import SqlSession
from tests.sql.conftest import Say

pytestmark = pytest.mark.spark

NUMBERS = "CREATE DYNAMIC TABLE numbers FRESHNESS = INTERVAL '1' DAY AS SELECT 1 AS x; ALTER DYNAMIC TABLE numbers REFRESH"


@pytest.fixture
def session(session: SqlSession, spark: SparkSession) -> SqlSession:
    def query(plans: QueryTestPlans, _environment: Mapping[str, str]) -> QueryTestOutcomes:
        return run_query_tests(spark, plans, JvmDriver(spark))

    session.query = query
    return session


def test_a_query_reads_the_current_versions_of_tables_views_and_sources(say: Say, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "1.csv").write_text("1,ape\n3,cow\n")
    source = f"{{name: raw.orders, format: csv, path: {tmp_path}/orders, schema: 'x INT, animal STRING'}}"
    (folder / "sources.yaml").write_text(f"sources:\n- {source}\n")
    say(NUMBERS)
    say("CREATE VIEW large AS SELECT x FROM numbers WHERE x > 1")
    assert say("SELECT x FROM numbers WHERE x > 1 ORDER BY x DESC")[0].rows == ((3,), (2,))
    assert say("SELECT count(*) AS n FROM numbers")[0].rows == ((3,),)
    assert say("SELECT * FROM large ORDER BY x LIMIT 1")[0].rows == ((2,),)
    (joined,) = say("SELECT * FROM numbers n JOIN raw.orders o ON n.x = o.x ORDER BY animal")
    assert (joined.columns, joined.rows) == (("x", "x", "animal"), ((1, 1, "ape"), (3, 3, "cow")))
    assert say("SELECT x, animal FROM raw.orders")[0].rows == ((1, "ape"), (3, "cow"))
    assert say("WITH c AS (SELECT max(x) AS y FROM numbers) SELECT y FROM c")[0].rows == ((3,),)


def test_values_are_those_that_a_reader_of_a_table_has(say: Say) -> None:
    query = (
        "SELECT NULL AS nothing, true AS yes, 1.50 AS price, 0.5D AS half, TIMESTAMP '2024-01-01 00:00:00Z' AS t, X'00FF' AS b, "
        "DATE '2024-02-29' AS d, array(1, NULL) AS a, named_struct('k', 'v') AS s, CAST(7 AS TINYINT) AS small"
    )
    ((row,),) = (answer.rows for answer in say(query))
    assert row[:5] == (None, True, "1.50", 0.5, datetime(2024, 1, 1, tzinfo=UTC))
    assert row[5:] == (b"\x00\xff", "2024-02-29", ["1", None], {"k": "v"}, 7)


def test_rows_beyond_the_limit_are_left_out_and_a_note_says_so(say: Say) -> None:
    (usual,) = say("SELECT id FROM range(0, 5000)")
    assert (len(usual.rows), usual.note) == (1000, "Only the first 1,000 rows are shown; LIMIT shows up to 10,000.")
    (most,) = say("SELECT id FROM range(0, 20000) LIMIT 15000")
    assert (len(most.rows), most.note) == (10_000, "Only the first 10,000 rows are shown.")
    (asked,) = say("SELECT id FROM range(0, 5000) LIMIT 2000")
    assert (len(asked.rows), asked.note) == (2000, None)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("\n SELECT y + 1 FROM numbers", f"-e:2:2: Spark {__version__}: [UNRESOLVED_COLUMN"),
        ("SELECT 1 FROM nmbers WHERE 1 = 1", "-e:1:15: unknown table 'nmbers'; did you mean 'numbers'?"),
        ("SELECT raise_error('too late')", "-e:1:1: [USER_RAISED_EXCEPTION] too late"),
        ("FROM numbers INSERT INTO numbers SELECT 1", "-e:1:"),
        ("SELECT reflect('java.lang.System', 'currentTimeMillis')", "-e:1:8: "),
        ("SELECT TRANSFORM (x) USING 'cat' FROM numbers", "-e:1:22: "),
    ],
)
def test_what_is_wrong_or_does_more_than_reading_is_told_at_its_place(
    session: SqlSession, say: Say, query: str, told: str
) -> None:
    say(NUMBERS)
    session.workspace = replace(session.workspace, settings=replace(session.workspace.settings, allowed=Allowed(False, False)))
    with pytest.raises(DefinitionError) as refused:
        say(query)
    assert str(refused.value).startswith(told)
