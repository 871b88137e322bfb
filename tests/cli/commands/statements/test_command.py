"""``sql`` carries out statements up to the first that fails, and says which are done."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

CREATE = "CREATE DYNAMIC TABLE lake.sales.t FRESHNESS = '1 day' AS SELECT 1 AS x"


def test_statements_of_the_command_line_a_file_and_standard_input(
    project: Path, dynamic_tables: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dynamic_tables("sql", "-e", CREATE).code == 0
    (project / "more.sql").write_text(
        "-- one more\nCREATE DYNAMIC TABLE lake.sales.u FRESHNESS = '1 day' AS SELECT x FROM lake.sales.t;\n"
    )
    assert dynamic_tables("sql", "-f", "more.sql").code == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("SHOW DYNAMIC TABLES IN lake.sales"))
    shown = dynamic_tables("sql")
    names = [line.split()[0] for line in shown.out.splitlines()[2:]]
    assert (shown.code, names) == (0, [f"lake.sales.{name}" for name in ("daily_revenue", "t", "total", "u")])
    assert "lake.sales.u" in dynamic_tables("list").out
    assert dynamic_tables("sql", "-e", "SHOW TABLES", "-f", "more.sql").code == 2


def test_a_script_stops_at_the_first_error_and_says_what_is_done(project: Path, dynamic_tables: Run) -> None:
    ran = dynamic_tables(
        "sql", "-e", f"{CREATE};\nSHOW DATABASES IN lake;\nDROP DYNAMIC TABLE lake.sales.missing; DROP DATABASE lake.sales"
    )
    assert ran.code == 1
    assert ran.err.splitlines() == [
        "2 statements had already run and were kept (lines 1, 2).",
        "There is no dynamic table lake.sales.missing.",
    ]
    assert "lake.sales.t" in ran.out
    assert (project / "dags" / "definitions" / "lake.sales.t.sql").exists()
    ran = dynamic_tables("sql", "-e", "SHOW CATALOGS; SHOW CATALOGS; DROP DYNAMIC TABLE lake.sales.missing")
    assert ran.err.splitlines()[0] == "2 statements had already run and were kept (line 1)."


def test_a_mistake_of_grammar_anywhere_keeps_all_from_being_done(project: Path, dynamic_tables: Run) -> None:
    ran = dynamic_tables("sql", "-e", f"{CREATE};\nDROP DYNAMIC TABEL t")
    assert ran.code == 1
    assert ran.err.splitlines() == [
        "-e:2:14: expected TABLE, found 'TABEL'; did you mean 'TABLE'?",
        "  DROP DYNAMIC TABEL t",
        f"  {' ' * 13}^",
    ]
    assert list((project / "dags" / "definitions").glob("*.sql")) == []


def test_a_mistake_of_a_declaration_is_shown_where_it_was_said(dynamic_tables: Run) -> None:
    ran = dynamic_tables("sql", "-e", "CREATE DYNAMIC TABLE lake.sales.t\nFRESHNESS = '7 hours'\nAS SELECT 1 AS x")
    assert (ran.code, ran.err.splitlines()[1:]) == (1, ["  FRESHNESS = '7 hours'", f"  {' ' * 12}^"])


@pytest.mark.parametrize("last", ["DESCRIBE lake.sales.t", "DROP DYNAMIC TABLE lake.sales.missing"])
def test_answers_are_one_document(dynamic_tables: Run, last: str) -> None:
    done = json.loads(dynamic_tables("sql", "-o", "json", "-e", f"{CREATE};\n\n{last}").out)
    assert done[0] == {
        "line": 1,
        "statement": CREATE,
        "answer": {"columns": ["identifier", "outcome"], "rows": [["lake.sales.t", "created"]], "note": None},
    }
    assert [each["line"] for each in done] == ([1, 3] if last.startswith("DESCRIBE") else [1])


def test_without_definitions_it_is_said_where_they_are_missing(project: Path, dynamic_tables: Run) -> None:
    ran = dynamic_tables("sql", "-e", CREATE, "--definitions", str(project / "nowhere"))
    assert (ran.code, "No definitions at" in ran.err) == (1, True)
    file = project / "dags" / "definitions" / "sales.yaml"
    ran = dynamic_tables("sql", "-e", CREATE, "--definitions", str(file))
    assert (ran.code, "is no folder, and statements need one" in ran.err) == (1, True)
    assert dynamic_tables("sql", "-f", "missing.sql").code == 1
