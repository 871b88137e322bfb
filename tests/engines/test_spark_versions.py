"""Other versions of Spark than the pinned one pass the same tests, in a process of their own.

The job, its queries and its commits run with PySpark and Spark of that version; over Spark Connect only the server is of that
version, because our client is the pinned one. Tests of what a version lacks are marked ``since``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_dynamic_tables.clients.files import exists, read_text, write_text
from airflow_dynamic_tables.clients.spark_parser import SparkParser
from airflow_dynamic_tables.core.refresh.plan import RefreshResult, SourceBinding
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_sound_definitions
from airflow_dynamic_tables.exceptions import ConfigurationError, JobFailedError
from airflow_dynamic_tables.runners.registry import runner_for
from tests.support.connect_server import running_connect_server
from tests.support.downloads import jars, spark_home
from tests.support.jobs import make_plan
from tests.support.spark import SMALL
from tests.support.suite import part_of_commit

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800), pytest.mark.usefixtures("java")]

VERSIONS = ("3.5", "4.0", "4.1", "4.3")

BASE = ("--part", "base")

SUBJECTS = {
    "the job": ("tests/jobs", *BASE),
    "runners": ("tests/contracts/runners", "tests/runners/test_spark_submit.py", *BASE),
    "SQL": (
        "tests/clients/test_spark_parser.py",
        "tests/definitions/queries/test_corpus.py",
        "tests/definitions/queries/test_judging.py",
    ),
    "refreshes": (
        *BASE,
        "tests/cli/test_refresh.py",
        *(f"tests/services/refresh/test_{name}.py" for name in ("delta_refreshes", "hive_refreshes", "hive_sources")),
        *(f"tests/services/refresh/test_{name}.py" for name in ("server_tables", "three_catalogs")),
    ),
    "streams": ("tests/services/continuous/streams", *BASE),
}
OVER_CONNECT = ("tests/contracts/runners", "tests/jobs/test_explained.py", "tests/runners/test_spark_connect.py", *BASE)

_ROOT = Path(__file__).parents[2]
_SECONDS = 1700


def test_the_version_in_turn_submits_a_job(tmp_path: Path) -> None:
    settings = _settings(VERSIONS[part_of_commit() % len(VERSIONS)])
    planned = make_plan(tmp_path, "WITH n AS (SELECT id FROM range(5)) SELECT id % 2 AS k, id FROM n", partition_keys=("k",))
    write_text(planned.plan_location, planned.to_json())
    runner_for(settings, "local[2]", print).run(planned, {})
    result = RefreshResult.from_json(read_text(planned.result_location))
    assert (result.rows, result.partitions) == (5, ({"k": "0"}, {"k": "1"}))


@pytest.mark.large
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_version_runs_our_jobs(version: str, subject: str) -> None:
    home = spark_home(version)
    # PySpark leaves sockets open before 4.2, and 3.5 imports distutils.
    quiet = ("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
    warnings = [option for each in quiet for option in ("-W", each)] if version in ("3.5", "4.0", "4.1") else []
    _pass(home, *SUBJECTS[subject], *warnings, PYTHONPATH=str(home.parent))


@pytest.mark.large
@pytest.mark.parametrize("version", VERSIONS[1:])
def test_a_server_of_a_version_runs_our_jobs(version: str) -> None:
    _pass(spark_home(version), *OVER_CONNECT, "-k", "connect or explained", PYTHONPATH="")


@pytest.mark.large
@pytest.mark.parametrize(
    ("version", "query"),
    [
        ("3.5", "FROM VALUES (1) AS t(a) |> WHERE a = 1"),
        ("3.5", "SELECT CAST(NULL AS VARIANT) AS v"),
        ("4.0", "SELECT TIME'10:00:00' AS t"),
        ("4.1", "SELECT a FROM VALUES (1) AS t(a) QUALIFY row_number() OVER (ORDER BY a) = 1"),
    ],
)
def test_validate_names_the_version_that_cannot_parse_a_query(version: str, query: str, tmp_path: Path) -> None:
    (tmp_path / "query.sql").write_text(query)
    (tmp_path / "t.yaml").write_text("dynamic_tables: [{name: t, freshness: 1 day, query_file: query.sql}]")
    parser = SparkParser.installed({**os.environ, "SPARK_HOME": str(spark_home(version))})
    assert parser is not None
    with parser:
        _, mistakes = load_sound_definitions(tmp_path, cache=Cache(None), spark=parser)
    (mistake,) = map(str, mistakes)
    assert re.search(rf"query\.sql:1:\d+: bad SQL: Spark {re.escape(version)}\.\d+ cannot parse this: \[", mistake)


@pytest.mark.large
def test_a_job_names_the_version_that_lacks_a_type(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"v": 1}')
    source = SourceBinding("raw.o", "o", "json", "v1", (f"file://{tmp_path}/a.json",), schema="v VARIANT")
    planned = make_plan(tmp_path, "SELECT 1 AS x FROM o", source)
    write_text(planned.plan_location, planned.to_json())
    with pytest.raises(JobFailedError, match=r'source raw\.o: Spark 3\.5\.\d+: .* Unsupported data type "VARIANT"'):
        runner_for(_settings("3.5"), "local[2]", print).run(planned, {})


@pytest.mark.large
def test_a_server_of_spark_3_5_is_refused(tmp_path: Path) -> None:
    with running_connect_server(spark_home("3.5"), jars("spark-connect-3.5")) as server:
        running = runner_for(SparkSettings(), server.url, print)
        with pytest.raises(ConfigurationError, match=r"is Spark 3\.5\.\d+, which does not understand .* connect to Spark 4\.0"):
            running.run(make_plan(tmp_path, "SELECT 1 AS x"), {})


NOT_IN = {
    "4.0": ("SELECT cast(parse_json('{\"a\": 1}'):a AS INT) AS a", "SELECT cast(TIME'10:00:00' AS STRING) AS t"),
    "4.1": ("SELECT a FROM VALUES (1) AS t(a) QUALIFY row_number() OVER (ORDER BY a) = 1",),
}


@pytest.mark.large
@pytest.mark.parametrize("version", NOT_IN)
def test_a_server_that_cannot_parse_a_query_is_named_with_its_version(version: str, tmp_path: Path) -> None:
    with running_connect_server(spark_home(version)) as server:
        for query in NOT_IN[version]:
            planned = make_plan(tmp_path, query)
            with pytest.raises(JobFailedError, match=rf"^Spark {re.escape(version)}\.\d+: \["):
                runner_for(SparkSettings(), server.url, print).run(planned, {})
            assert not exists(planned.data_location)


@pytest.mark.large
def test_a_server_that_cannot_plan_a_query_is_named_with_its_version(tmp_path: Path) -> None:
    """Spark 4.0 can parse WITH RECURSIVE; its planning ends with an internal error."""
    query = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r"
    planned = make_plan(tmp_path, query)
    named = pytest.raises(JobFailedError, match=r"^Spark 4\.0\.\d+: \[INTERNAL_ERROR")
    with running_connect_server(spark_home("4.0")) as server, named:
        runner_for(SparkSettings(), server.url, print).run(planned, {})
    assert not exists(planned.result_location)


def _settings(version: str) -> SparkSettings:
    return SparkSettings(conf={**SMALL, "spark.sql.shuffle.partitions": "2"}, env_vars={"SPARK_HOME": str(spark_home(version))})


def _pass(home: Path, *options: str, **environment: str) -> None:
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options)
    # Not as in CI, where nothing may skip: a process has the Spark or the client of a version, not both.
    environ = {**os.environ, "CI": "", "SPARK_HOME": str(home), **environment}
    done = subprocess.run(command, cwd=_ROOT, env=environ, capture_output=True, text=True, timeout=_SECONDS, check=False)
    said = done.stdout[-20_000:] + done.stderr[-2_000:]
    assert done.returncode == 0, said
    assert re.search(r"\b[1-9]\d* passed", said), said
