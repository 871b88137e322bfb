"""What a person sees of expectations, and how they decide over what is in quarantine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_dynamic_tables.runners.spark_submit import SparkSubmitRunner
from tests.support.pyarrow_job import write_numbers

NUMBERS = """
defaults: {catalog: lake, database: sales}
dynamic_tables:
  - name: numbers
    freshness: 1 hour
    query: SELECT 1 AS x
    expectations:
      - {name: small, predicate: x < 100, action: warn}
      - {row_count: {max_decrease: 50%}}
"""

Write = Callable[..., None]


@pytest.fixture
def written(project: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Say what the job of the next refreshes writes; there is no Spark in these tests."""
    (project / "dags" / "definitions" / "sales.yaml").write_text(NUMBERS)

    def write(*numbers: int, **violations: int) -> None:
        monkeypatch.setattr(SparkSubmitRunner, "run", lambda _self, plan, _environment: write_numbers(plan, numbers, violations))

    return write


@pytest.fixture
def token(dynamic_tables: Any, written: Write) -> str:
    """Of a refresh in quarantine: one row in the place of four."""
    written(1, 2, 3, 400, small=1)
    first = dynamic_tables("refresh", "numbers")
    assert "lake.sales.numbers: small: 1 rows violate it." in first.err.splitlines()
    written(5)
    second = dynamic_tables("refresh", "numbers")
    assert second.code == 1
    assert second.out == ""
    return str(second.err.split("dynamic-tables abort ")[1].split()[0])


def rows(dynamic_tables: Any) -> list[int]:
    assert "enabled" in dynamic_tables("show", "numbers").out.split(), "no refresh is RUNNING"
    return [row["x"] for row in json.loads(dynamic_tables("show", "numbers", "--rows", "9", "-o", "json").out)["first_rows"]]


def test_what_is_in_quarantine_is_published(dynamic_tables: Any, token: str) -> None:
    assert rows(dynamic_tables) == [1, 2, 3, 400]
    listed = json.loads(dynamic_tables("history", "-o", "json").out)
    assert (listed[0]["token"], listed[0]["state"]) == (token, "QUARANTINED")
    assert [found["violations"] for found in listed[0]["expectations"]] == [0, 1]
    assert json.loads(dynamic_tables("list", "-o", "json").out)[0]["last_refresh"] == "QUARANTINED"
    for command in (("history",), ("show", "numbers")):
        shown = dynamic_tables(*command).out
        assert "row_count: 1 rows, 4 before (-75%); at least -50% expected" in shown
        assert "small: 1 rows violate it" in shown
    published = json.loads(dynamic_tables("publish", token, "-o", "json").out)
    assert (published["table"], published["version"], published["token"]) == ("lake.sales.numbers", 2, token)
    assert rows(dynamic_tables) == [5]


def test_or_aborted(dynamic_tables: Any, token: str) -> None:
    aborted = dynamic_tables("abort", token)
    assert (aborted.code, aborted.err) == (0, f"Stage {token} is aborted; its files are deleted.\n")
    assert rows(dynamic_tables) == [1, 2, 3, 400]
    (refresh, _) = json.loads(dynamic_tables("history", "-o", "json").out)
    assert refresh["state"] == "REJECTED"
    assert refresh["error"].startswith("aborted by ")
    refused = dynamic_tables("publish", token)
    assert refused.code == 1
    assert "is ABORTED, not in quarantine" in refused.err


def test_a_token_that_nobody_knows(dynamic_tables: Any, project: Path) -> None:
    assert project.is_dir()
    for command in ("publish", "abort"):
        ran = dynamic_tables(command, "nobody")
        assert ran.code == 1
        assert ran.err.startswith("No stage nobody is known; dynamic-tables history lists")


def test_a_history_without_violations_has_no_column_for_them(dynamic_tables: Any, written: Write) -> None:
    written(1)
    dynamic_tables("refresh", "numbers")
    assert "expectations" not in dynamic_tables("history").out
