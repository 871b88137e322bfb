"""ctas: what it makes by a real spark-submit, what it would make, and what it refuses."""

from __future__ import annotations

import json
import shlex
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
    last = ["last refresh", "last action", "last reason", "last started at"]
    assert names == ["identifier", "format", "version", *last, "partition keys", "comment"], "what a table made once has"
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


WRONG = [
    case.split("\n--> ") for case in (Path(__file__).parent / "wrong_ctas.txt").read_text(encoding="utf-8").strip().split("\n\n")
]
"""The arguments, and the exit code with the answer, of which an ellipsis leaves out the end."""


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(("line", "answer"), WRONG, ids=[line for line, _ in WRONG])
def test_wrong_uses_are_refused_before_anything_is_done(
    dynamic_tables: Run, project: Path, line: str, answer: str, dry_run: bool
) -> None:
    ran = dynamic_tables("ctas", *shlex.split(line), *(("--dry-run",) if dry_run else ()))
    expected, is_cut, _ = answer.partition("…")
    told = f"{ran.code} {ran.err}"
    assert told.startswith(expected) if is_cut else told == f"{expected}\n"
    assert not (project / "airflow" / "dynamic_tables" / "warehouse").exists()
