"""refresh with a real spark-submit: versions, partitions, failures, interruption."""

import json
import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.cli.conftest import Run, Terminal

pytestmark = pytest.mark.spark

FAILING = """\
  - name: fragile
    freshness: 1 day
    query: SELECT ds, if(amount < 100, amount, CAST(raise_error('an amount is too large') AS BIGINT)) AS amount FROM raw.orders
"""

SLOW = """\
  - name: slow
    freshness: 1 day
    query: SELECT count(*) AS numbers FROM range(0, 10000000000, 1, 1000) WHERE hash(id) <> 7
"""


def _orders(project: Path, ds: str, amounts: list[int]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = project / "data" / "orders" / f"ds={ds}"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"customer": ["ada"] * len(amounts), "amount": amounts}), folder / "part.parquet")


def _rows(dynamic_tables: Run, table: str) -> list[dict[str, object]]:
    shown = json.loads(dynamic_tables("show", table, "--rows", "100", "-o", "json").out)
    return sorted(shown["first_rows"], key=str)


@pytest.mark.large
def test_verify_exits_with_1_unless_all_is_equal(dynamic_tables: Run, project: Path) -> None:
    for file in project.glob("data/orders/*/*.parquet"):
        os.utime(file, (1e9, 1e9))  # a file that was just written may change once more
    for day in (2, 3):
        assert dynamic_tables("refresh", "daily_revenue", "--schedule-time", f"2024-01-0{day} 00:00:00").code == 0
    ran = dynamic_tables("verify", "daily_revenue", "--partitions", "all", "--seed", "7", "-o", "json")
    assert (ran.code, ran.err) == (0, "Partitions verified with seed 7: equal: 2.\n")
    assert [(one["partition"], one["verdict"], one["rows"]) for one in json.loads(ran.out)] == [
        ("ds=2024-01-01", "EQUAL", 1),
        ("ds=2024-01-02", "EQUAL", 1),
    ]
    _orders(project, "2024-01-01", [100])
    ran = dynamic_tables("verify", "daily_revenue", "--partitions", "9")
    assert ran.code == 1
    assert "UNVERIFIED" in ran.out
    assert dynamic_tables("verify", "daily_revenue", "--partitions", "none").code == 2


@pytest.mark.large
def test_verify_without_a_table_is_for_those_whose_turn_is_today(dynamic_tables: Run, project: Path) -> None:
    for file in project.glob("data/orders/*/*.parquet"):
        os.utime(file, (1e9, 1e9))
    assert (dynamic_tables("verify", "-o", "json").out, dynamic_tables("verify", "--seed", "1").code) == ("[]\n", 2)
    sales = project / "dags" / "definitions" / "sales.yaml"
    sales.write_text(sales.read_text().replace("- name: daily_revenue\n", "- name: daily_revenue\n    verify_every: 1 day\n"))
    ran = dynamic_tables("verify")
    assert ran.code == 0
    assert "Skipped: " in ran.err
    assert dynamic_tables("refresh", "daily_revenue", "--schedule-time", "2024-01-02 00:00:00").code == 0
    ran = dynamic_tables("verify", "-o", "json")
    assert [(one["partition"], one["verdict"]) for one in json.loads(ran.out)] == [("ds=2024-01-01", "EQUAL")]
    _orders(project, "2024-01-01", [100])
    assert dynamic_tables("verify").code == 0, "it cannot be verified"


@pytest.mark.large
def test_a_sample_shows_what_a_changed_query_does(dynamic_tables: Run, project: Path) -> None:
    assert dynamic_tables("refresh", "daily_revenue", "--schedule-time", "2024-01-02 00:00:00").code == 0
    sales = project / "dags" / "definitions" / "sales.yaml"
    sales.write_text(sales.read_text().replace("sum(amount) AS revenue FROM raw", "2 * sum(amount) AS revenue FROM raw"))
    sample = ("plan", "daily_revenue", "--sample", "ds=2024-01-01")
    ran = dynamic_tables(*sample, "--exit-code")
    assert ran.code == 1, ran.err
    assert [line.split() for line in ran.out.split("only before:")[1].splitlines() if "2024" in line] == [
        ["2024-01-01", "12"],
        ["2024-01-01", "24"],
    ]
    ran = dynamic_tables(*sample, "-o", "json")
    assert (ran.code, json.loads(ran.out)["added_rows"]) == (0, [{"ds": "2024-01-01", "revenue": "24"}])
    assert dynamic_tables("plan", "--sample", "all").code == 2


@pytest.mark.large
def test_refreshes_from_first_version_to_partition(dynamic_tables: Run, project: Path) -> None:
    first = dynamic_tables("refresh", "daily_revenue", "--schedule-time", "2024-01-02 00:00:00", "-o", "json")
    assert first.code == 0, first.err
    made = json.loads(first.out)
    assert (made["version"], made["rows"], made["state"], made["action"]) == (1, 1, "SUCCEEDED", "INITIALIZE")
    assert first.err == ""
    assert _rows(dynamic_tables, "daily_revenue") == [{"ds": "2024-01-01", "revenue": 12}]

    _orders(project, "2024-01-01", [100])
    second = dynamic_tables("refresh", "daily_revenue", "--schedule-time", "2024-01-03 00:00:00")
    assert second.code == 0, second.err
    assert "ds=2024-01-02" in second.out
    assert _rows(dynamic_tables, "daily_revenue") == [{"ds": "2024-01-01", "revenue": 12}, {"ds": "2024-01-02", "revenue": 11}]

    third = dynamic_tables("refresh", "daily_revenue", "--partition", "ds=2024-01-01", "-o", "json")
    assert json.loads(third.out)["version"] == 3
    assert _rows(dynamic_tables, "daily_revenue") == [{"ds": "2024-01-01", "revenue": 100}, {"ds": "2024-01-02", "revenue": 11}]

    shown = json.loads(dynamic_tables("show", "daily_revenue", "--version", "1", "-o", "json").out)
    assert shown["first_rows"] == [{"ds": "2024-01-01", "revenue": 12}]
    assert [version["number"] for version in shown["versions"]] == [3, 2, 1]
    unknown = dynamic_tables("rollback", "daily_revenue", "--to", "9")
    assert unknown.code == 1
    assert unknown.err == "Version 9 of lake.sales.daily_revenue is not kept (any more); kept are: 1, 2, 3.\n"
    back = json.loads(dynamic_tables("rollback", "daily_revenue", "--to", "2", "-o", "json").out)
    assert (back["table"], back["action"], back["version"]) == ("lake.sales.daily_revenue", "ROLLBACK", 4)
    assert _rows(dynamic_tables, "daily_revenue") == [{"ds": "2024-01-01", "revenue": 12}, {"ds": "2024-01-02", "revenue": 11}]
    history = json.loads(dynamic_tables("history", "daily_revenue", "-o", "json").out)
    assert [refresh["action"] for refresh in history] == ["ROLLBACK", "PARTITIONS", "PARTITIONS", "INITIALIZE"]
    assert "ROLLBACK" in dynamic_tables("history").out
    assert dynamic_tables("rollback", "daily_revenue", "--to", "3").code == 0

    cascade = dynamic_tables("refresh", "daily_revenue", "--partition", "ds=2024-01-02", "--downstream", "-o", "json")
    assert cascade.code == 0, cascade.err
    assert [(step["table"], step["outcome"], step["version"]) for step in json.loads(cascade.out)] == [
        ("lake.sales.daily_revenue", "REFRESHED", 6),
        ("lake.sales.total", "REFRESHED", 1),
    ]
    child = json.loads(dynamic_tables("history", "total", "-o", "json").out)[0]
    assert child["sources"].keys() == {"lake.sales.daily_revenue"}
    assert _rows(dynamic_tables, "total") == [{"revenue": 111}]

    older = dynamic_tables("refresh", "total", "--schedule-time", "2024-01-01 00:00:00")
    assert (older.code, older.out) == (0, "")
    assert older.err.splitlines()[-1].startswith("Skipped: lake.sales.total is already fresh up to ")

    history = json.loads(dynamic_tables("history", "daily_revenue", "-o", "json").out)
    assert [entry["version"] for entry in history] == [6, 5, 4, 3, 2, 1]
    assert history[3]["partitions"] == [{"ds": "2024-01-01"}]
    assert {"begin", "spark", "commit"} <= history[3]["seconds"].keys()


@pytest.mark.large
def test_a_failing_query_leaves_the_last_version(dynamic_tables: Run, project: Path) -> None:
    file = project / "dags" / "definitions" / "sales.yaml"
    file.write_text(file.read_text() + FAILING)
    assert dynamic_tables("refresh", "fragile").code == 0
    before = _rows(dynamic_tables, "fragile")

    _orders(project, "2024-01-02", [1000])
    failed = dynamic_tables("refresh", "fragile")
    assert (failed.code, failed.out) == (1, "")
    [error] = failed.err.splitlines()
    assert "an amount is too large" in error
    assert "java." not in error

    assert _rows(dynamic_tables, "fragile") == before
    history = json.loads(dynamic_tables("history", "fragile", "-o", "json").out)
    assert [entry["state"] for entry in history] == ["FAILED", "SUCCEEDED"]
    assert "an amount is too large" in history[0]["error"]
    assert not list((project / "airflow").rglob(f"*{history[0]['token']}*"))


@pytest.mark.large
def test_ctrl_c_aborts_the_stage(
    dynamic_tables: Run, terminal: Callable[..., AbstractContextManager[Terminal]], project: Path
) -> None:
    file = project / "dags" / "definitions" / "sales.yaml"
    file.write_text(file.read_text() + SLOW)
    with terminal("refresh", "slow", "--master", "local[1]") as command:
        command.wait_for("Starting Spark …")
        command.wait_for("Spark runs the query …")
        command.wait_for(r"Spark runs the query, [1-9]\d* of 1000 tasks are done …")
        command.process.send_signal(signal.SIGINT)
        ran = command.ended()
    assert ran.code == 130, ran.err
    assert ran.err.splitlines()[-1].endswith("Interrupted.")
    history = json.loads(dynamic_tables("history", "slow", "-o", "json").out)
    assert [entry["state"] for entry in history] == ["ABORTED"]
    assert not list((project / "airflow").rglob(f"*{history[0]['token']}*"))


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["daily_revenue", "--partition", "hh=01"], 1, "does not fit the partition keys ds"),
        (["total", "--partition", "ds=2024-01-01"], 1, "the table is not partitioned"),
        (["total"], 1, "lake.sales.daily_revenue has no version yet"),
        (["daily_revenue", "--partition", "ds=2024-01-01", "--full-refresh"], 2, "exclude each other"),
        (["daily_revenue", "--scheduled", "--downstream"], 2, "exclude each other"),
        (["daily_revenue", "--dirty", "--scheduled"], 2, "exclude each other"),
        (["daily_revenu"], 1, "did you mean lake.sales.daily_revenue?"),
    ],
)
def test_what_cannot_be_refreshed(dynamic_tables: Run, argv: list[str], code: int, message: str) -> None:
    ran = dynamic_tables("refresh", *argv)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err.splitlines()[-1]
    assert "Traceback" not in ran.err


def test_dirty_partitions_of_a_table_that_has_none(dynamic_tables: Run) -> None:
    ran = dynamic_tables("refresh", "daily_revenue", "--dirty")
    assert ran.code == 0, ran.err
    assert ran.err.splitlines()[-1] == "Skipped: no partition is known to be dirty"


def test_a_missing_java_and_a_missing_spark_say_what_to_do(
    dynamic_tables: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(project / "nowhere"))
    assert "openjdk-17" in dynamic_tables("refresh", "daily_revenue").err.splitlines()[-1]
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("SPARK_HOME", str(project / "nowhere"))
    monkeypatch.setenv("PATH", "/usr/bin")
    assert "spark-submit was not found" in dynamic_tables("refresh", "daily_revenue").err.splitlines()[-1]
    assert [entry["state"] for entry in json.loads(dynamic_tables("history", "-o", "json").out)] == ["FAILED", "FAILED"]
