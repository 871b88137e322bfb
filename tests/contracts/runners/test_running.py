"""The same plan gives the same stage, or the same error, whoever runs it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_dynamic_tables.clients.files import exists, read_text, write_text
from airflow_dynamic_tables.core.refresh.expectations import Action, Expectation, Relationship
from airflow_dynamic_tables.core.refresh.plan import DroppedRows, FunctionBinding, RefreshPlan, RefreshResult, SourceBinding
from airflow_dynamic_tables.core.schema import Column, TableLayout
from airflow_dynamic_tables.core.sinks import Sink
from airflow_dynamic_tables.exceptions import JobFailedError, JobMisfitError
from tests.contracts.runners.conftest import Bench
from tests.support.jobs import jar_of_triple
from tests.support.postgres import PostgresServer
from tests.support.processes import command_lines
from tests.support.spark_version import SPARK_VERSION

pytestmark = pytest.mark.spark

Plan = Callable[..., RefreshPlan]

SECONDS = 120
"""How long a condition may take to come true."""

SLEEPS = "SELECT reflect('java.lang.Thread', 'sleep', bigint(600000)) AS x FROM range(1)"
JOB_START = '"Event":"SparkListenerJobStart"'
SECRET = "h1dden-w0rd"


def rows(result: RefreshResult) -> list[dict[str, object]]:
    tables = [pq.read_table(file.path.removeprefix("file://"), partitioning=None) for file in result.files]
    return sorted(pa.concat_tables(tables).to_pylist(), key=str)


def result_of(plan: RefreshPlan) -> RefreshResult:
    return RefreshResult.from_json(read_text(plan.result_location))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.sampled
def test_rows_types_partitions_and_expectations(bench: Bench, plan: Plan, tmp_path: Path) -> None:
    for number in (1, 2):
        pq.write_table(pa.table({"n": [number, None, -1], "day": [f"d{number}"] * 3}), tmp_path / f"{number}[x].parquet")
    source = SourceBinding("raw.o", "o", "parquet", "v1", tuple(f"file://{tmp_path}/{number}[x].parquet" for number in (1, 2)))
    expectations = (
        Expectation("known", Action.DROP, "n IS NOT NULL"),
        Expectation("positive", Action.WARN, "n > 0"),
        Expectation("huge", Action.FAIL, "n > 100"),
        Expectation("once", Action.WARN, unique=("n",)),
        Expectation("related", Action.WARN, relationship=Relationship(("n", "day"), "raw.o", ("n", "day"))),
        Expectation("unrelated", Action.WARN, relationship=Relationship(("n",), "raw.p", ("n",))),
    )
    pq.write_table(pa.table({"n": [-1]}), tmp_path / "p.parquet")
    other = SourceBinding("raw.p", "p", "parquet", "v1", (f"file://{tmp_path}/p.parquet",))
    planned = plan(
        "SELECT day, n, cast(n AS decimal(9, 2)) AS price, array(n) AS list FROM o",
        source,
        partition_keys=("day",),
        expectations=expectations,
        references=(source, other),
        comments={"n": "a number"},
    )
    dropped = DroppedRows("lake.sales.t__dropped", "d1", f"{planned.stage}_dropped", datetime(2024, 3, 1, 12, 30, tzinfo=UTC))
    planned = replace(planned, dropped=dropped)
    write_text(planned.plan_location, planned.to_json())
    bench.runner().run(planned, {})
    result = result_of(planned)
    kept = rows(result_of(planned.of_dropped(dropped)))
    assert [(row["dropped_by"], row["dropped_at"], row["dropped_for"], row["day"], row["n"]) for row in kept] == [
        (planned.token, dropped.at, ["known"], day, None) for day in ("d1", "d2")
    ]
    assert [(row["day"], row["n"]) for row in rows(result)] == [("d1", -1), ("d1", 1), ("d2", -1), ("d2", 2)]
    assert result.columns == (
        Column("day", "string"),
        Column("n", "bigint", comment="a number"),
        Column("price", "decimal(9,2)"),
        Column("list", "array<bigint>", nullable=False),
    )
    assert (result.rows, result.partitions) == (4, ({"day": "d1"}, {"day": "d2"}))
    violations = {item.name: item.violations for item in result.expectations}
    assert violations == {"known": 2, "positive": 2, "huge": 4, "once": 2, "related": 0, "unrelated": 2}
    assert result.application_id
    assert any(f"Spark application {result.application_id} of " in line for line in bench.lines)
    assert any("4 rows" in line for line in bench.lines)


@pytest.fixture(scope="module")
def shop(postgres: PostgresServer) -> dict[str, str]:
    url = postgres.create_database(f"shop_{uuid4().hex[:8]}")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE orders AS SELECT i AS id, i * 10.5 AS amount FROM generate_series(1, 5) i")
    url = f"jdbc:{url.replace('postgres@', '')}"
    return {"url": url, "dbtable": "orders", "driver": "org.postgresql.Driver", "user": "postgres"}


@pytest.mark.large
@pytest.mark.usefixtures("postgres_driver")
def test_rows_from_a_server_go_into_a_server_and_nobody_reads_its_password(
    bench: Bench, plan: Plan, shop: dict[str, str]
) -> None:
    source = SourceBinding("pg.o", "o", "jdbc", "v1", (), options=shop, password_variable="P_W", has_files=False)
    sink = Sink(shop["url"], shop["driver"], f'"public"."t__{uuid4().hex[:8]}"', shop["user"], "P_W")
    planned = plan("SELECT sum(amount) AS total, TIMESTAMP_NTZ'2024-03-31 02:30:00' AS at FROM o", source, sink=sink)
    bench.runner().run(planned, {"P_W": SECRET})
    result = result_of(planned)
    assert (result.rows, result.files) == (1, ())
    with psycopg.connect(f"{shop['url'].removeprefix('jdbc:')}?user={shop['user']}") as connection:
        assert connection.execute(f"SELECT total::text, at::text FROM {sink.table}").fetchall() == [
            ("157.500000000000000000", "2024-03-31 02:30:00")
        ]
    events = bench.events()
    assert "SparkListenerEnvironmentUpdate" in events
    assert "orders" in events
    assert "t__" in events
    stage = planned.to_json() + read_text(planned.result_location)
    for secret in (SECRET, *bench.secrets):
        assert secret not in events + stage + "".join(bench.lines)


def test_a_job_that_is_stopped_ends_and_leaves_nothing_to_commit(bench: Bench, plan: Plan) -> None:
    planned = plan(SLEEPS)
    running, raised = bench.runner(), list[Exception]()

    def run() -> None:
        try:
            running.run(planned, {"P_W": SECRET})
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    begun = bench.events().count(JOB_START)
    thread.start()
    until(lambda: raised != [] or bench.events().count(JOB_START) > begun)
    lines = "\n".join(command_lines())
    running.stop()
    thread.join(SECONDS)
    running.stop()
    assert [type(error) for error in raised] == [JobFailedError]
    assert not exists(planned.result_location)
    assert not list(Path(planned.stage.removeprefix("file://")).rglob("*.parquet"))
    for secret in (SECRET, *bench.secrets):
        assert secret not in lines + str(raised) + "".join(bench.lines)


BAD_SYNTAX = """\
[PARSE_SYNTAX_ERROR] Syntax error at or near 'BY'. SQLSTATE: 42601 (line 2, pos 22)

== SQL ==
SELECT id
FROM range(3)  GRUPPE BY id
----------------------^^^"""

ERRORS: dict[str, tuple[str, dict[str, Any], str]] = {
    "column": (
        "SELECT nothing FROM range(3)",
        {},
        "with name `nothing` cannot be resolved. Did you mean one of the following? [`id`]. SQLSTATE: 42703; line 1 pos 7",
    ),
    "function": ("SELECT nothing(id) FROM range(3)", {}, "[UNRESOLVED_ROUTINE]"),
    "syntax": ("SELECT id\nFROM range(3)  GRUPPE BY id", {}, BAD_SYNTAX),
    "table": ("SELECT id FROM nowhere", {}, "[TABLE_OR_VIEW_NOT_FOUND] for Spark the query reads nowhere, which is none of its"),
    "division": ("SELECT 1 / (id - 3) AS x FROM range(5)", {}, "[DIVIDE_BY_ZERO] Division by zero."),
    "cast": (
        "SELECT cast(concat('x', id) AS int) AS n FROM range(1)",
        {},
        '[CAST_INVALID_INPUT] The value \'x0\' of the type "STRING" cannot be cast to "INT"',
    ),
    "raised": (
        "SELECT cast(raise_error('too bad') AS int) AS n FROM range(1)",
        {},
        "[USER_RAISED_EXCEPTION] too bad SQLSTATE: P0001",
    ),
    "null key": (
        "SELECT CASE id WHEN 1 THEN 'a' END AS ds, id FROM range(2)",
        {"partition_keys": ("ds",)},
        "partition key 'ds' is null in some rows; give them a value in the query",
    ),
    "no key": ("SELECT 1 AS n", {"partition_keys": ("ds",)}, "the query does not return partition key 'ds'"),
    "predicate": (
        "SELECT 1 AS n",
        {"expectations": (Expectation("odd", Action.FAIL, "m > 0"),)},
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `m` cannot be resolved.",
    ),
    "class": (
        "SELECT f_0(1) AS y",
        {"functions": (FunctionBinding("lake.f", "f_0", "java", "com.example.Missing", "int"),)},
        "com.example.Missing",
    ),
}
"""Plans that fail: query, fields of the plan, and how the message begins, which is the same to the letter for every runner."""

IN_SPARK_3 = {
    "column": "with name `nothing` cannot be resolved. Did you mean one of the following? [`id`].; line 1 pos 7",
    "syntax": BAD_SYNTAX.replace(" SQLSTATE: 42601 ", ""),
    "raised": "too bad",
    "predicate": "function parameter with name `m` cannot be resolved.",
}
"""The messages of Spark 3.5, which tells no SQLSTATE."""

_said: dict[str, str] = {}
"""What the first runner said."""


@pytest.mark.sampled
@pytest.mark.parametrize("name", ERRORS)
def test_what_is_wrong_is_said_in_the_same_words(quick_bench: Bench, plan: Plan, name: str) -> None:
    query, fields, words = ERRORS[name]
    planned = plan(query, **fields)
    with pytest.raises(JobFailedError) as caught:
        quick_bench.runner().run(planned, {})
    said = str(caught.value)
    assert (words if SPARK_VERSION >= (4,) else IN_SPARK_3.get(name, words)) in said
    assert "\tat " not in said
    assert said == _said.setdefault(name, said)
    assert caught.value.application_id
    assert not exists(planned.result_location)


def test_columns_that_do_not_fit_are_refused_before_anything_is_written(quick_bench: Bench, plan: Plan) -> None:
    layout = TableLayout((Column("ds", "string"), Column("amount", "int")), ("ds",))
    planned = plan("SELECT '1' AS ds, cast(raise_error('it runs') AS int) AS cc", partition_keys=("ds",), layout=layout)
    with pytest.raises(
        JobMisfitError, match=r"Column 2 was amount int, but the query returns cc .*dynamic-tables drop"
    ) as caught:
        quick_bench.runner().run(planned, {})
    assert caught.value.application_id
    assert not Path(planned.data_location.removeprefix("file://")).exists()


def test_a_java_class_is_that_of_the_jar_of_its_function(quick_bench: Bench, plan: Plan, tmp_path: Path) -> None:
    # The JVM of the tests has one class of a name, as a spark-submit has; a server outlives the jar of a refresh.
    for factor in (3, 5) if quick_bench.secrets else (3,):
        jar = jar_of_triple(tmp_path, factor)
        triple = FunctionBinding("lake.sales.triple", "triple_0", "java", "com.example.Triple", "bigint", (jar,))
        query = "SELECT triple_0(cast(id AS int)) AS y FROM range(3)"
        planned = plan(query, functions=(triple,), stage=f"file://{tmp_path}/stage/{factor}")
        quick_bench.runner().run(planned, {})
        assert {row["y"] for row in rows(result_of(planned))} == {0, factor, 2 * factor}


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        ("bad.csv", "n\n1\ntwo\n", "two"),
        ("bad.json", '{"n": 1}\n{"n": "two"}\n', "two"),
        ("bad.parquet", "this is not Parquet at all", "is not a Parquet file. Expected magic number at tail"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_cause(
    quick_bench: Bench, plan: Plan, tmp_path: Path, name: str, content: str, cause: str
) -> None:
    (tmp_path / name).write_text(content)
    kind = name.removeprefix("bad.")
    options = {"mode": "FAILFAST", **({"header": "true"} if kind == "csv" else {})}
    source = SourceBinding("raw.o", "o", kind, "v1", (f"file://{tmp_path}/{name}",), schema="n INT", options=options)
    known = (Expectation("known", Action.WARN, "n IS NOT NULL"),)
    with pytest.raises(JobFailedError) as caught:
        quick_bench.runner().run(plan("SELECT n FROM o", source, expectations=known), {})
    said = str(caught.value)
    if SPARK_VERSION >= (4,):  # Spark 3.5 does not name the file
        assert said.startswith("[FAILED_READ_FILE")
        assert name in said
    assert cause in said
    assert "\tat " not in said
    said = said.replace(str(tmp_path), "")
    assert said == _said.setdefault(name, said)
