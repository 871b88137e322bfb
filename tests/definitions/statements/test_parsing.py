"""Statements from text: what each means, where its parts stand, and exactly what is said of sixty wrong ones and more."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.definitions.statements import values
from airflow_dynamic_tables.definitions.statements.parsing import is_complete, is_query, parse_script, pointed

WRONG = (Path(__file__).parent / "wrong_statements.txt").read_text(encoding="utf-8").strip().split("\n\n")
FILE = Path("file.sql")


def parsed(text: str) -> list[values.Statement]:
    script = parse_script(text, FILE)
    assert script.mistakes == ()
    return list(script.statements)


def create(text: str) -> values.CreateDynamicTable:
    [statement] = parsed(text)
    assert isinstance(statement, values.CreateDynamicTable)
    return statement


@pytest.mark.parametrize("example", WRONG, ids=lambda example: example.split("\n")[0][:60])
def test_answer_to_wrong_statement(example: str) -> None:
    statement, _, answer = example.rpartition("\n--> ")
    script = parse_script(statement, FILE)
    assert [str(mistake) for mistake in script.mistakes] == [f"{FILE}:{answer}"]
    assert script.statements == ()


def test_at_least_sixty_wrong_statements() -> None:
    assert len(set(WRONG)) >= 60


def test_every_clause_of_create() -> None:
    text = """
        create or alter materialized table `my lake`.sales.`daily ``revenue` (ds, revenue comment 'it''s \\'all\\'')
        WITH ('partition.fields.ds.date-formatter' = 'yyyy-MM-dd', 'timezone' = "Europe/Berlin") -- a comment; no end
        partitioned by (ds, `the country`)
        Freshness = interval 12 hours
        COMMENT 'Revenue /* per */ day'
        REFRESH_MODE = Full /* and; so; /* on */ */
        AS SELECT ds, sum(x) AS revenue FROM orders GROUP BY ds
    """
    statement = create(text)
    assert statement.name.parts == ("my lake", "sales", "daily `revenue")
    assert statement.or_alter
    assert not statement.if_not_exists
    assert [(item.name.value, item.comment and item.comment.value) for item in statement.columns] == [
        ("ds", None),
        ("revenue", "it's 'all'"),
    ]
    assert statement.options is not None
    assert statement.options.as_dict() == {"partition.fields.ds.date-formatter": "yyyy-MM-dd", "timezone": "Europe/Berlin"}
    assert [key.value for key in statement.partitioned_by] == ["ds", "the country"]
    assert statement.freshness is not None
    assert statement.freshness.value == "INTERVAL '12' HOUR"
    assert text[statement.freshness.start : statement.freshness.end] == "interval 12 hours"
    assert statement.refresh_mode is not None
    assert statement.refresh_mode.value == "full"
    assert statement.comment is not None
    assert statement.comment.value == "Revenue /* per */ day"
    assert statement.query.value == "SELECT ds, sum(x) AS revenue FROM orders GROUP BY ds"
    assert text[statement.query.start : statement.query.end] == statement.query.value
    assert text[statement.as_at :].startswith("AS SELECT")


def test_scripts_are_split_at_semicolons_that_are_none_of_a_text() -> None:
    queries = [
        "SELECT ';', \"a;b\", `c;d`, 'it''s;', 'a\\';b', r'\\', $$;$$, $x$ ; $$ ; $x$ FROM t",
        "-- why; indeed\nSELECT 1 /* ; /* ; */ ; */",
        "SELECT 2 -- no end; here",
        "(SELECT 3)",
    ]
    text = "\n;;\n".join(queries)
    assert [statement.text.value for statement in parsed(text) if isinstance(statement, values.Query)] == [
        queries[0],
        "SELECT 1 /* ; /* ; */ ; */",
        "SELECT 2 -- no end; here",
        "(SELECT 3)",
    ]


def test_comments_between_as_and_the_query_are_part_of_the_query() -> None:
    text = "CREATE DYNAMIC TABLE a AS\n-- all of it\nSELECT 1 AS b -- one\n, 2 AS c -- two\n;"
    assert create(text).query.value == "-- all of it\nSELECT 1 AS b -- one\n, 2 AS c -- two"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ALTER DYNAMIC TABLE a SUSPEND", values.Suspend),
        ("ALTER MATERIALIZED TABLE a RESUME", values.Resume),
        ("ALTER DYNAMIC TABLE a RESUME WITH ('x' = '1')", values.Resume),
        ("ALTER DYNAMIC TABLE a REFRESH", values.RefreshTable),
        ("ALTER DYNAMIC TABLE a REFRESH PARTITION (ds = '2024-01-01', hour = 7)", values.RefreshTable),
        ("ALTER DYNAMIC TABLE a REFRESH PARTITION (ds = '2024-01-01') TO (ds = '2024-01-31')", values.RefreshTable),
        ("ALTER DYNAMIC TABLE a SET FRESHNESS = '30 minutes'", values.SetFreshness),
        ("ALTER DYNAMIC TABLE a SET REFRESH_MODE = CONTINUOUS", values.SetRefreshMode),
        ("ALTER DYNAMIC TABLE a SET ('x' = '1', 'y' = '2')", values.SetOptions),
        ("ALTER DYNAMIC TABLE a RESET ('x', 'y')", values.ResetOptions),
        ("ALTER DYNAMIC TABLE a RENAME TO b.c", values.RenameTo),
        ("ALTER DYNAMIC TABLE a AS FROM b SELECT c", values.AlterQuery),
        ("DROP DYNAMIC TABLE IF EXISTS a PURGE", values.DropDynamicTable),
        ("SHOW DYNAMIC TABLES IN a.b NOT LIKE 'x%'", values.Show),
        ("SHOW DATABASES", values.Show),
        ("SHOW CREATE DYNAMIC TABLE a", values.ShowCreate),
        ("DESC EXTENDED a.b.c", values.Describe),
        ("EXPLAIN CREATE DYNAMIC TABLE a AS SELECT 1", values.Explain),
        ("EXPLAIN ALTER DYNAMIC TABLE a AS SELECT 1", values.Explain),
        ("EXPLAIN SELECT 1", values.Explain),
        ("USE a.b", values.Use),
        ("USE CATALOG a", values.Use),
        ("CREATE DATABASE IF NOT EXISTS a COMMENT 'x' WITH ('y' = 'z')", values.CreateDatabase),
        ("DROP DATABASE IF EXISTS a.b CASCADE", values.DropDatabase),
        ("CREATE VIEW a COMMENT 'x' AS SELECT 1 AS b", values.CreateView),
        ("DROP VIEW a", values.DropView),
        ("CREATE FUNCTION a AS 'module:f' LANGUAGE PYTHON WITH ('returns' = 'int')", values.CreateFunction),
        ("DROP FUNCTION IF EXISTS a", values.DropFunction),
        ("WITH a AS (SELECT 1 AS b) SELECT b FROM a LIMIT 3", values.Query),
    ],
)
def test_statement_begins_and_ends_where_it_is_written(text: str, kind: type[values.Statement]) -> None:
    script = f"-- before\n{text}  ;-- after\n;SELECT 1"
    statement, _ = parsed(script)
    assert type(statement) is kind
    assert script[statement.start : statement.end] == text


def test_parts_of_statements() -> None:
    use, all_of, refresh, function = parsed(
        "USE b; USE CATALOG a; ALTER DYNAMIC TABLE a REFRESH PARTITION (ds = '1', h = 7); "
        "CREATE FUNCTION f AS 'm:f' LANGUAGE Python"
    )
    assert isinstance(use, values.Use)
    assert (use.catalog, use.database) == (None, "b")
    assert isinstance(all_of, values.Use)
    assert (all_of.catalog, all_of.database) == ("a", None)
    assert isinstance(refresh, values.RefreshTable)
    assert refresh.partition is not None
    assert refresh.partition.as_dict() == {"ds": "1", "h": "7"}
    assert isinstance(function, values.CreateFunction)
    assert (function.implementation.value, function.language) == ("m:f", "python")


def test_a_wrong_statement_hides_no_other() -> None:
    script = parse_script("SELECT 1; DROP; SELECT 2;\nALTER x;\nUSE a", FILE)
    assert [type(statement) for statement in script.statements] == [values.Query, values.Query, values.Use]
    assert [(mistake.line, mistake.column) for mistake in script.mistakes] == [(1, 15), (2, 7)]


def test_caret_stands_under_the_place() -> None:
    text = "CREATE DYNAMIC TABLE a\n\tFRESHNES = '1 day'\nAS SELECT 1"
    [mistake] = parse_script(text, FILE).mistakes
    assert pointed(text, mistake).split("\n")[1:] == ["  \tFRESHNES = '1 day'", "  \t^"]


def test_caret_of_a_long_line_shows_its_neighbourhood_and_no_secret() -> None:
    text = f"CREATE DYNAMIC TABLE a WITH ('x' = '{'y' * 1000}', 'password' = 'hidden', 'x' = 'z') AS SELECT 1"
    [mistake] = parse_script(text, FILE).mistakes
    _, line, caret = pointed(text, mistake).split("\n")
    assert "hidden" not in line
    assert len(line) < 200
    assert line[len(caret) - 1 :].startswith("'x' = 'z'")


def test_mistake_beyond_the_text_is_shown() -> None:
    assert pointed("", Mistake(FILE, 9, 9, "x")).split("\n")[1:] == ["  ", "  ^"]


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("-- nothing", True),
        ("SELECT 1;", True),
        ("SELECT 1; -- why", True),
        ("SELECT 1", False),
        ("SELECT ';", False),
        ("SELECT 1 /* ;", False),
        ("SELECT $$ ;", False),
        ("SELECT `;", False),
        ("SELECT 1; SELECT", False),
    ],
)
def test_whether_more_is_to_be_typed(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


def test_a_query_is_told_from_statements() -> None:
    assert is_query("-- why\nselect 1")
    assert is_query("/* x */ (SELECT 1)")
    assert not is_query("CREATE DYNAMIC TABLE a AS SELECT 1")
    assert not is_query("-- SELECT 1")


@pytest.mark.parametrize("garbage", ["'", "`", "/*", "$$", "$a$b", "a.", "(", "'\\", "''", "CREATE ", "\\u", "SELECT ';"])
def test_garbage_is_read_once(garbage: str) -> None:
    script = parse_script(garbage * (30_000 // len(garbage)), FILE)
    assert len(script.statements) + len(script.mistakes) > 0
