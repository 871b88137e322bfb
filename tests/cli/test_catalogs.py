"""What catalogs hold, looked at and changed from the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.source_changes import DirtyPartitions
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import open_workspace
from tests.cli.conftest import Run

Look = Callable[..., Any]


@pytest.fixture
def look(dynamic_tables: Run) -> Look:
    def run(*argv: str) -> Any:
        ran = dynamic_tables(*argv, "-o", "json")
        assert (ran.code, ran.err) == (0, "")
        return json.loads(ran.out)

    return run


@pytest.fixture
def lake(look: Look, project: Path) -> Look:
    """A catalogs file whose default is ``lake.sales``, with what the definitions make."""
    (project / "dags" / "catalogs.yaml").write_text(
        "catalogs: [{name: lake, type: sql, is-default: true, default-database: sales}, {name: scratch, type: memory}]"
    )
    look("create")
    return look


def names(listed: list[dict[str, str]]) -> dict[str, str]:
    return {entry["identifier"]: entry["kind"] for entry in listed}


def test_catalogs_of_a_file(lake: Look) -> None:
    assert lake("catalogs") == [
        {"name": "lake", "type": "sql", "is_default": True, "writable": True, "problem": None},
        {"name": "scratch", "type": "memory", "is_default": False, "writable": True, "problem": None},
    ]


def test_catalogs_that_definitions_mention(look: Look, project: Path) -> None:
    assert [entry["name"] for entry in look("catalogs")] == ["lake"]
    assert not (project / "airflow").exists(), "listing them connects to none"


def test_databases_and_tables(lake: Look) -> None:
    assert names(lake("databases")) == {"lake.sales": "database"}
    assert names(lake("databases", "scratch")) == {"scratch.default": "database"}
    both = {"lake.sales.daily_revenue": "dynamic table", "lake.sales.total": "dynamic table"}
    assert names(lake("tables")) == names(lake("tables", "sales")) == names(lake("tables", "lake.sales")) == both
    assert lake("tables", "scratch.default") == lake("views") == lake("functions") == []


def test_a_database_is_made_described_and_dropped(lake: Look, dynamic_tables: Run) -> None:
    made = lake("create-database", "raw", "--comment", "As it came", "--property", "owner=ada", "--property", "sla=a=b")
    assert made == [{"identifier": "lake.raw", "outcome": "created"}]
    assert lake("describe", "raw") == {
        "identifier": "lake.raw",
        "kind": "database",
        "value": {"comment": "As it came", "properties": {"owner": "ada", "sla": "a=b"}},
        "statistics": None,
    }
    again = dynamic_tables("create-database", "lake.raw")
    assert (again.code, again.err) == (1, "Database raw already exists in catalog lake.\n")
    lake("create-database", "raw", "--if-not-exists")
    assert lake("drop-database", "raw") == [{"identifier": "lake.raw", "outcome": "dropped"}]
    assert dynamic_tables("drop-database", "raw").code == 1
    lake("drop-database", "raw", "--if-exists")


@pytest.mark.parametrize("name", ["`..`", "`a\nb`", "`a\u202eb`", "x" * 255])
def test_what_is_no_name_is_not_made(lake: Look, dynamic_tables: Run, name: str) -> None:  # noqa: ARG001
    for command in (
        ("create-database", f"lake.{name}"),
        ("create-view", f"lake.sales.{name}", "--query", "SELECT 1 AS one"),
        ("create-function", f"lake.sales.{name}", "--language", "java", "--as", "com.example.Function"),
    ):
        made = dynamic_tables(*command)
        assert (made.code, made.err.count("\n")) == (1, 1)
        assert any(words in made.err for words in ("is no name", "may not hold the invisible character", "at most 128 bytes"))


def test_a_database_with_content_is_dropped_by_cascade_only(lake: Look, dynamic_tables: Run) -> None:
    refused = dynamic_tables("drop-database", "sales")
    assert (refused.code, refused.err) == (1, "Database sales in catalog lake is not empty.\n")
    lake("drop-database", "sales", "--cascade")
    assert lake("databases") == [{"identifier": "lake.sales", "kind": "database"}], "the default database is made anew"
    assert lake("tables") == []


def test_a_view_is_made_described_replaced_and_dropped(lake: Look, dynamic_tables: Run, project: Path) -> None:
    (project / "best.sql").write_text("SELECT * FROM daily_revenue\nORDER BY revenue DESC;")
    lake("create-view", "best", "-f", "best.sql", "--comment", "Best days")
    described = lake("describe", "best")
    assert described["kind"] == "view"
    assert described["value"]["original_query"] == "SELECT * FROM daily_revenue\nORDER BY revenue DESC;"
    assert "`lake`.`sales`.`daily_revenue` AS `daily_revenue`" in described["value"]["expanded_query"]
    assert names(lake("views")) == {"lake.sales.best": "view"}
    assert dynamic_tables("create-view", "best", "--query", "SELECT 1 AS one").code == 1
    lake("create-view", "best", "--query", "SELECT 1 AS one", "--replace")
    assert lake("describe", "best")["value"]["original_query"] == "SELECT 1 AS one"
    assert lake("drop-view", "lake.sales.best") == [{"identifier": "lake.sales.best", "outcome": "dropped"}]
    refused = dynamic_tables("drop-view", "total")
    assert (refused.code, refused.err) == (1, "lake.sales.total is a table, not a view.\n")
    lake("drop-view", "best", "--if-exists")
    assert dynamic_tables("drop-view", "best").code == 1


def test_mistakes_in_a_view_have_their_place(dynamic_tables: Run, lake: Look, project: Path) -> None:  # noqa: ARG001
    (project / "bad.sql").write_text("SELECT a\nFROM WHERE")
    ran = dynamic_tables("create-view", "v", "-f", "bad.sql")
    assert ran.code == 1
    assert ran.err.startswith("bad.sql:2:6: bad SQL")
    assert dynamic_tables("create-view", "v", "--query", "DROP TABLE t").err.startswith("query:1:1: a query must be a SELECT")
    missing = dynamic_tables("create-view", "v", "-f", "missing.sql")
    assert (missing.code, "missing.sql cannot be read: No such file" in missing.err) == (1, True)
    for wrong in ([], ["--query", "SELECT 1 AS a", "-f", "bad.sql"]):
        assert dynamic_tables("create-view", "v", *wrong).code == 2


def test_a_function_is_made_described_replaced_and_dropped(lake: Look, dynamic_tables: Run) -> None:
    python = ("--language", "python", "--as", "shop:net", "--returns", "decimal(10,2)", "--property", "py_files=s3://a/b.zip")
    assert lake("create-function", "Net", *python) == [{"identifier": "lake.sales.Net", "outcome": "created"}]
    described = lake("describe", "NET")
    assert (described["kind"], described["value"]) == (
        "function",
        {"name": "shop:net", "language": "python", "properties": {"py_files": "s3://a/b.zip", "returns": "decimal(10,2)"}},
    )
    assert names(lake("functions", "sales")) == {"lake.sales.net": "function"}
    java = ("--language", "java", "--as", "com.example.Net")
    assert dynamic_tables("create-function", "net", *java).code == 1
    lake("create-function", "net", *java, "--replace")
    assert lake("describe", "net")["value"]["name"] == "com.example.Net"
    wrong = dynamic_tables("create-function", "f", "--language", "python", "--as", "shop.net")
    assert (wrong.code, wrong.err) == (1, "'shop.net' names no Python function; write module:callable.\n")
    lake("drop-function", "NET")
    lake("drop-function", "net", "--if-exists")
    assert dynamic_tables("drop-function", "net").code == 1


def test_a_dynamic_table_is_described_with_its_statistics(lake: Look, dynamic_tables: Run) -> None:
    described = lake("describe", "daily_revenue")
    assert (described["identifier"], described["kind"]) == ("lake.sales.daily_revenue", "dynamic table")
    assert described["value"]["freshness"] == "1 day"
    assert described["value"]["refresh_handler"]["job_detail"]["schedulerType"] == "airflow"
    assert described["statistics"] == {"rows": None, "bytes": None, "files": None, "columns": {}}
    assert lake("partitions", "daily_revenue", "--partition", "ds=2024-01-01") == []
    refused = dynamic_tables("partitions", "total")
    assert (refused.code, refused.err) == (1, "Table sales.total in catalog lake is not partitioned.\n")
    assert "is not partitioned" in dynamic_tables("partitions", "total", "--status").err


def test_what_does_not_exist(lake: Look, dynamic_tables: Run) -> None:  # noqa: ARG001
    for argv, words in (
        (("describe", "nothing"), "There is no table, view, function or database nothing"),
        (("describe", "lake.sales.nothing"), "There is no table, view, function or database lake.sales.nothing"),
        (("databases", "moon"), "There is no catalog moon; known are lake, scratch."),
        (("tables", "lake.moon"), "Database moon does not exist in catalog lake."),
        (("tables", "a.b.c"), "a database has at most two"),
        (("partitions", "moon"), "Table (or view) sales.moon does not exist"),
        (("drop-function", "a.b.c.d"), "has 4 parts"),
    ):
        ran = dynamic_tables(*argv)
        assert (ran.code, ran.out) == (1, "")
        assert words in ran.err
        assert ran.err.count("\n") == 1


def test_tables_for_a_person(lake: Look, dynamic_tables: Run) -> None:
    lake("create-function", "net", "--language", "java", "--as", "com.example.Net")
    for argv, words in (
        (("catalogs",), "lake"),
        (("tables",), "dynamic table"),
        (("describe", "daily_revenue"), "freshness"),
        (("describe", "net"), "com.example.Net"),
        (("describe", "sales"), "database"),
    ):
        ran = dynamic_tables(*argv)
        assert ran.code == 0
        assert words in ran.out


@pytest.mark.large
@pytest.mark.spark
@pytest.mark.usefixtures("java")
def test_a_refresh_reads_a_view_and_calls_a_function(lake: Look, dynamic_tables: Run, project: Path) -> None:
    (project / "shop.py").write_text("def twice(x):\n    return None if x is None else 2 * x\n")
    code = (
        "--language",
        "python",
        "--as",
        "shop:twice",
        "--returns",
        "bigint",
        "--property",
        f"py_files=file://{project}/shop.py",
    )
    lake("create-function", "twice", *code)
    lake("create-view", "big_orders", "--query", "SELECT ds, twice(amount) AS amount FROM lake.raw.orders WHERE amount > 5")
    file = project / "dags" / "definitions" / "sales.yaml"
    text = file.read_text().replace("dynamic_tables:\n", "  - {name: big_orders, format: view}\ndynamic_tables:\n")
    file.write_text(text.replace("FROM raw.orders GROUP", "FROM big_orders GROUP"))
    ran = dynamic_tables("refresh", "daily_revenue", "--full-refresh", "--master", "local[1]", "-o", "json")
    assert ran.code == 0, ran.err
    assert list(json.loads(ran.out)["sources"]) == ["lake.raw.orders"]
    shown = lake("show", "daily_revenue", "--rows", "10")
    assert sorted((row["ds"], row["revenue"]) for row in shown["first_rows"]) == [("2024-01-01", 14), ("2024-01-02", 22)]
    assert [(found["spec"], found["statistics"]["rows"]) for found in lake("partitions", "daily_revenue")] == [
        ({"ds": "2024-01-01"}, 1),
        ({"ds": "2024-01-02"}, 1),
    ]
    made = lake("partitions", "daily_revenue", "--status", "--partition", "ds=2024-01-02")
    assert [(one["name"], one["exists"], one["version"], one["quarantined"]) for one in made] == [
        ("ds=2024-01-02", True, 1, False)
    ]
    assert dynamic_tables("partitions", "daily_revenue", "--status").out.count("ds=2024-01-0") == 2
    with open_workspace(embedded_settings(os.environ)) as workspace:
        found = DirtyPartitions(PartitionSet.of([{"ds": "2024-01-02"}]), 1)
        workspace.ledger.record_dirty(TableIdentifier("lake", "sales", "daily_revenue"), found, workspace.now(), since=0)
    assert [one["dirty"] for one in lake("partitions", "daily_revenue", "--status")] == [False, True]
    columns = lake("describe", "daily_revenue")["statistics"]["columns"]
    assert (columns["revenue"]["nulls"], columns["revenue"]["minimum"], columns["revenue"]["maximum"]) == (0, "14", "22")
    assert "2024-01-02" in dynamic_tables("describe", "daily_revenue").out
