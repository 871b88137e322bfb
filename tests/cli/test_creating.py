"""ctas: what it makes by a real spark-submit, what it would make, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

TOTALS = "SELECT customer, sum(amount) AS total FROM lake.raw.orders GROUP BY customer"


@pytest.mark.large
@pytest.mark.spark
def test_a_table_is_made_listed_replaced_and_dropped(dynamic_tables: Run, project: Path) -> None:
    made = dynamic_tables("ctas", "lake.sales.totals", "--query", TOTALS, "--comment", "Who bought", "-o", "json")
    assert made.code == 0, made.err
    created = json.loads(made.out)
    assert (created["table"], created["outcome"], created["version"], created["rows"]) == ("lake.sales.totals", "created", 1, 2)
    described = json.loads(dynamic_tables("describe", "lake.sales.totals", "-o", "json").out)
    assert (described["kind"], described["value"]["comment"]) == ("table", "Who bought")
    there = dynamic_tables("ctas", "lake.sales.totals", "--query", TOTALS, "--if-not-exists")
    assert (there.code, there.out) == (0, "lake.sales.totals is there already; it stays as it is.\n")

    (project / "next.sql").write_text("SELECT customer, 2 * total AS twice\nFROM lake.sales.totals")
    replaced = dynamic_tables(
        *("ctas", "lake.sales.totals", "--query-file", "next.sql", "--partitioned-by", "customer", "--replace", "-o", "json")
    )
    assert replaced.code == 0, replaced.err
    assert json.loads(replaced.out)["version"] == 2
    described = json.loads(dynamic_tables("describe", "lake.sales.totals", "-o", "json").out)
    assert [column["name"] for column in described["value"]["columns"]] == ["customer", "twice"]
    assert described["value"]["partition_keys"] == ["customer"]

    never = dynamic_tables("ctas", "lake.sales.never", "--query", "SELECT raise_error('no') AS x")
    assert never.code == 1
    assert "no" in never.err
    assert [table["identifier"] for table in json.loads(dynamic_tables("tables", "lake.sales", "-o", "json").out)] == [
        "lake.sales.totals"
    ]
    shown = dynamic_tables("show", "lake.sales.totals").out.partition("\n\n")[0]
    names = [line.split("  ")[0] for line in shown.splitlines()]
    assert names == ["identifier", "format", "version", "last refresh", "partition keys", "comment"], "what a table made once has"
    dropped = dynamic_tables("drop", "lake.sales.totals", "--yes")
    assert (dropped.code, "still defined" in dropped.err, "before a new table" in dropped.err) == (0, False, False)
    assert json.loads(dynamic_tables("tables", "lake.sales", "-o", "json").out) == []


def test_a_dry_run_says_what_would_be_done_and_does_nothing(dynamic_tables: Run, project: Path) -> None:
    ran = dynamic_tables(
        "ctas", "lake.sales.totals", "--query", TOTALS, "--partitioned-by", "customer", "--dry-run", "-o", "json"
    )
    assert ran.code == 0, ran.err
    assert json.loads(ran.out) == {
        "table": "lake.sales.totals",
        "purpose": "CREATE_TABLE_AS",
        "would_be": "created",
        "why": "there is no lake.sales.totals yet",
        "format": "iceberg",
        "partition_keys": ["customer"],
        "reads": ["lake.raw.orders"],
        "statement": "SELECT customer, sum(amount) AS total FROM `lake`.`raw`.`orders` AS `orders` GROUP BY customer",
    }
    assert not (project / "airflow" / "dynamic_tables" / "warehouse").exists()


WRONG = {
    "no query": (("lake.a.b",), 2, "Give the query by --query or by --query-file, and not by both."),
    "two queries": (
        ("lake.a.b", "--query", "x", "--query-file", "y"),
        2,
        "Give the query by --query or by --query-file, and not by both.",
    ),
    "two purposes": (
        ("lake.a.b", "--query", "SELECT 1 AS x", "--replace", "--if-not-exists"),
        2,
        "--if-not-exists and --replace contradict each other; give one of them.",
    ),
    "no file": (("lake.a.b", "--query-file", "no.sql"), 1, "no.sql cannot be read: No such file or directory."),
    "four parts": (
        ("a.lake.b.c", "--query", "SELECT 1 AS x"),
        1,
        "'a.lake.b.c' has 4 parts; a table name has at most three: catalog.database.table.",
    ),
    "a name of drafts": (
        ("lake.a.b__new_0123456789abcdef0123456789abcdef", "--query", "SELECT 1 AS x"),
        1,
        "'b__new_0123456789abcdef0123456789abcdef' is a name of tables that are being made; choose another one.",
    ),
    "two statements": (("lake.a.b", "--query", "SELECT 1 AS x; SELECT 2 AS x"), 1, "--query:1:16: "),
    "a statement that writes": (("lake.a.b", "--query", "DELETE FROM raw.orders"), 1, "--query:1:1: "),
    "an empty query": (("lake.a.b", "--query", " "), 1, "--query:1:1: "),
    "an unknown format": (
        ("lake.a.b", "--query", "SELECT 1 AS x", "--format", "icebreg"),
        1,
        "unknown format 'icebreg'; did you mean 'iceberg'?",
    ),
    "a format that cannot be staged": (
        ("lake.a.b", "--query", "SELECT 1 AS x", "--format", "parquet"),
        1,
        "lake.a.b: catalog lake cannot make a table of parquet files in one step, and nobody may see a part of it; use iceberg.",
    ),
    "a key that is not returned": (
        ("lake.a.b", "--query", "SELECT 1 AS country", "--partitioned-by", "contry"),
        1,
        "--partitioned-by:1:1: the query returns no column 'contry'; did you mean 'country'?",
    ),
    "a key twice": (
        ("lake.a.b", "--query", "SELECT 1 AS day", "--partitioned-by", "day,day"),
        1,
        "--partitioned-by:1:5: partition key 'day' is listed twice",
    ),
    "a column twice": (
        ("lake.a.b", "--query", "SELECT 1 AS x, 2 AS X"),
        1,
        "--query:1:1: the query returns column 'x' more than once; give each its own name with AS",
    ),
    "an unknown source": (
        ("lake.a.b", "--query", "SELECT x FROM lake.raw.ordres"),
        1,
        "--query:1:15: unknown table 'lake.raw.ordres'; did you mean 'lake.raw.orders'?",
    ),
    "a dynamic table without a version": (
        ("lake.a.b", "--query", "SELECT revenue FROM lake.sales.total"),
        1,
        "--query:1:21: lake.sales.total has no version yet; refresh it first",
    ),
    "itself": (
        ("lake.a.b", "--query", "SELECT x FROM lake.a.b"),
        1,
        "--query:1:15: 'lake.a.b' is the table that the query is to make; it can read that only to replace it",
    ),
    "a name that is defined": (
        ("lake.sales.total", "--query", "SELECT 1 AS x"),
        1,
        "lake.sales.total is defined as a dynamic table at dags/definitions/sales.yaml:16; refresh that, or choose another name.",
    ),
    "a name of a source": (
        ("lake.raw.orders", "--query", "SELECT 1 AS x", "--replace"),
        1,
        "lake.raw.orders is declared as a source at dags/definitions/sales.yaml:3; choose another name.",
    ),
    "an unknown time zone": (
        ("lake.a.b", "--query", "SELECT 1 AS x", "--timezone", "Mars/Base"),
        1,
        "unknown time zone 'Mars/Base'; write one such as Europe/Berlin.",
    ),
    "a setting that is not the user's": (
        ("lake.a.b", "--query", "SELECT 1 AS x", "--conf", "spark.sql.runSQLOnFiles=true"),
        1,
        "Spark's setting 'spark.sql.runSQLOnFiles' is false in every refresh; leave it out.",
    ),
}


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("case", WRONG)
def test_wrong_uses_are_refused_before_anything_is_done(dynamic_tables: Run, project: Path, case: str, dry_run: bool) -> None:
    arguments, code, message = WRONG[case]
    ran = dynamic_tables("ctas", *arguments, *(("--dry-run",) if dry_run else ()))
    expected = message.replace("PROJECT", str(project))
    assert (ran.code, ran.err.rstrip("\n")[: len(expected)]) == (code, expected)
    if not message.endswith(": "):
        assert ran.err == f"{expected}\n"
    assert not (project / "airflow" / "dynamic_tables" / "warehouse").exists()
