"""``sql`` in a folder where nothing is yet: it needs no definitions until a statement declares something."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_dynamic_tables.cli.shell import GRAMMAR
from tests.cli.commands.statements.conftest import CTRL_D, ENTER, Typed
from tests.cli.conftest import Run

CREATE = "CREATE DYNAMIC TABLE lake.shop.t FRESHNESS = '1 day' AS SELECT 1 AS x"


@pytest.fixture
def empty(project: Path, dynamic_tables: Run, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: ARG001 - begins in the project
    """An empty folder, the current one; the state is beside it."""
    folder = project / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_the_first_table_makes_the_folder_of_the_definitions(empty: Path, dynamic_tables: Run) -> None:
    ran = dynamic_tables("sql", "-e", "CREATE DATABASE lake.shop; SHOW DATABASES IN lake; SHOW DYNAMIC TABLES IN lake.shop")
    assert (ran.code, ran.err) == (0, "")
    assert list(empty.iterdir()) == []
    ran = dynamic_tables("sql", "-e", CREATE)
    folder = empty / "dags" / "definitions"
    assert ran.code == 0
    assert f"Created the folder {folder}, which holds the definitions." in ran.err
    assert (folder / "lake.shop.t.sql").exists()
    assert dynamic_tables("validate", "--without-spark").code == 0
    ran = dynamic_tables("sql", "-e", "DROP DYNAMIC TABLE lake.shop.t; DROP DATABASE lake.shop")
    assert (ran.code, ran.err) == (0, "")


def test_a_table_that_is_refused_leaves_no_folder(empty: Path, dynamic_tables: Run) -> None:
    for wrong in (CREATE.replace("1 day", "7 hours"), CREATE.replace("SELECT 1 AS x", "SELECT * FROM missing")):
        ran = dynamic_tables("sql", "-e", wrong)
        assert (ran.code, "-e:1:" in ran.err) == (1, True)
        assert list(empty.iterdir()) == []
    ran = dynamic_tables("sql", "-e", "DROP DYNAMIC TABLE lake.shop.t")
    assert (ran.code, ran.err) == (1, "There is no dynamic table lake.shop.t.\n")


def test_a_folder_that_is_named_has_to_exist(empty: Path, dynamic_tables: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "No definitions at" in dynamic_tables("sql", "-e", CREATE, "--definitions", "dagz").err
    monkeypatch.setenv("DYNAMIC_TABLES_DEFINITIONS", str(empty / "dagz"))
    assert "No definitions at" in dynamic_tables("sql", "-e", CREATE).err
    assert "No definitions at" in dynamic_tables("validate").err


@pytest.mark.usefixtures("empty")
def test_other_commands_still_need_definitions(dynamic_tables: Run) -> None:
    assert "No definitions at" in dynamic_tables("validate").err
    assert "No definitions at" in dynamic_tables("apply").err


def test_the_catalogs_file_is_the_same_before_and_after(empty: Path, dynamic_tables: Run) -> None:
    (empty / "dags").mkdir()
    (empty / "catalogs.yaml").write_text("catalogs: [{name: other, type: memory}]")  # beside no folder of definitions
    (empty / "dags" / "catalogs.yaml").write_text("catalogs: [{name: lake, type: sql, default-database: shop}]")
    assert dynamic_tables("sql", "-e", "CREATE DYNAMIC TABLE t FRESHNESS = '1 day' AS SELECT 1 AS x").code == 0
    assert (empty / "dags" / "definitions" / "lake.shop.t.sql").exists()


def test_the_shell_says_where_short_names_are_and_that_any_catalog_name_may_be_used(typed: Typed) -> None:
    ran = typed(f"help{ENTER}{CTRL_D}")
    assert "There is no catalogs.yaml: any name is an embedded catalog. USE lake.sales; sets the one of short names." in ran.err


def test_help_of_a_statement_is_its_grammar(typed: Typed) -> None:
    asked = ("help create view;", "? alter", "help desc", "help  nothing", "help select")
    ran = typed("".join(f"{each}{ENTER}" for each in asked) + CTRL_D)
    assert ran.code == 0
    assert [line for line in ran.out.splitlines() if not line.startswith(" ")] == [
        "CREATE VIEW [IF NOT EXISTS] name [COMMENT 'text'] AS query",
        "ALTER DYNAMIC TABLE name",
        "{DESCRIBE | DESC} [EXTENDED] name",
        "There is no statement NOTHING; help lists them.",
        "{SELECT | WITH | FROM | VALUES | TABLE | MAP | REDUCE} ...: a query of Spark SQL that only reads",
    ]


def test_the_grammar_of_the_shell_is_that_of_the_docs() -> None:
    page = (Path(__file__).parents[4] / "docs" / "sql.md").read_text()
    assert f"```text\n{GRAMMAR}\n```" in page
