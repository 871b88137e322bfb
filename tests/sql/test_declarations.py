"""What statements declare stands in the folder of the definitions, and their catalog knows it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable, JobState
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import (
    ConfigurationError,
    ConflictError,
    DefinitionError,
    SchemaEvolutionError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedError,
)
from airflow_dynamic_tables.services.project import Project
from airflow_dynamic_tables.services.workspace import Workspace
from airflow_dynamic_tables.sql import declarations
from airflow_dynamic_tables.sql.session import SqlSession
from tests.sql.conftest import Say, fields

NUMBERS = "CREATE DYNAMIC TABLE numbers FRESHNESS = INTERVAL '1' DAY AS SELECT 1 AS x"
NAME = TableIdentifier("lake", "sales", "numbers")


def _entry(workspace: Workspace, name: TableIdentifier = NAME) -> CatalogDynamicTable:
    entry = workspace.catalog(name.catalog).get_table(name.path)
    assert isinstance(entry, CatalogDynamicTable)
    return entry


def _defined(project: Project, name: TableIdentifier = NAME) -> DynamicTable:
    return project.load()[0].tables[name]


def test_a_created_table_is_declared_in_a_file_and_registered(
    say: Say, folder: Path, project: Project, workspace: Workspace
) -> None:
    (answer,) = say(f"{NUMBERS}; -- that was it")
    assert answer.rows == (("lake.sales.numbers", "created"),)
    file = folder / "lake.sales.numbers.sql"
    assert file.read_text() == NUMBERS.replace("numbers", "lake.sales.numbers") + ";\n"
    assert _defined(project).path == file
    assert _entry(workspace).refresh_handler.job_state is JobState.INITIALIZING


def test_names_in_files_are_full_whatever_the_session_uses(say: Say, folder: Path, session: SqlSession) -> None:
    say("CREATE DATABASE raw; USE raw; CREATE DYNAMIC TABLE n FRESHNESS = '1 day' AS SELECT 1 AS x")
    say("CREATE DYNAMIC TABLE sales.m FRESHNESS = '1 day' AS SELECT n.x FROM n JOIN raw.n AS other USING (x)")
    assert (session.catalog, session.database) == ("lake", "raw")
    text = (folder / "lake.sales.m.sql").read_text()
    assert "DYNAMIC TABLE lake.sales.m " in text
    assert "SELECT n.x FROM lake.raw.n JOIN lake.raw.n AS other" in text


def test_a_table_that_exists_is_left_alone_or_refused(say: Say, folder: Path) -> None:
    say(NUMBERS)
    with pytest.raises(TableAlreadyExistsError, match=r"lake\.sales\.numbers exists: it is declared at .*numbers\.sql:1\."):
        say(NUMBERS)
    (answer,) = say(NUMBERS.replace("TABLE", "TABLE IF NOT EXISTS").replace("1 AS x", "2 AS x"))
    assert answer.rows == (("lake.sales.numbers", "exists"),)
    assert "2 AS x" not in (folder / "lake.sales.numbers.sql").read_text()


def test_create_or_alter_makes_a_table_what_it_says(say: Say, project: Project, workspace: Workspace) -> None:
    statement = NUMBERS.replace("CREATE", "CREATE OR ALTER")
    changed = statement.replace("DAY", "HOUR")
    outcomes = [say(text)[0].rows[0][1] for text in (statement, statement, changed, changed)]
    assert outcomes == ["created", "unchanged", "altered", "unchanged"]
    assert _defined(project).freshness.text == _entry(workspace).freshness == "1 hour"


def test_altering_changes_the_declaration_and_what_is_registered(say: Say, project: Project, workspace: Workspace) -> None:
    say(NUMBERS)
    for action in (
        "SET FRESHNESS = INTERVAL '2' HOUR",
        "SET REFRESH_MODE = FULL",
        "SET ('versions_to_keep' = '7', 'a.b' = 'c')",
        "RESET ('a.b')",
        "AS SELECT 3 AS x",
    ):
        assert say(f"ALTER DYNAMIC TABLE numbers {action}")[0].rows == (("lake.sales.numbers", "altered"),)
    table = _defined(project)
    assert (table.freshness.text, table.declared_mode.value, table.query) == ("2 hours", "FULL", "SELECT 3 AS x")
    assert (table.retention.versions_to_keep, dict(table.options)) == (7, {})
    entry = _entry(workspace)
    assert (entry.freshness, entry.original_query) == ("2 hours", "SELECT 3 AS x")


def test_what_yaml_declares_is_changed_there(say: Say, folder: Path) -> None:
    file = folder / "sales.yaml"
    file.write_text("dynamic_tables:\n- {name: numbers, freshness: 1 day, query: SELECT 1 AS x}\n")
    for statement in ("ALTER DYNAMIC TABLE numbers SET FRESHNESS = '1 hour'", NUMBERS.replace("CREATE", "CREATE OR ALTER")):
        with pytest.raises(ConfigurationError, match=r"is declared at .*sales\.yaml:2, .* then say dynamic-tables apply"):
            say(statement)
    assert [path.name for path in folder.iterdir() if path.suffix == ".sql"] == []


def test_a_change_of_columns_that_needs_a_rebuild_is_refused_and_nothing_is_left_of_it(say: Say, folder: Path) -> None:
    say(f"{NUMBERS}; ALTER DYNAMIC TABLE numbers REFRESH")
    before = (folder / "lake.sales.numbers.sql").read_bytes()
    with pytest.raises(SchemaEvolutionError, match="then say dynamic-tables apply --refresh"):
        say("ALTER DYNAMIC TABLE numbers AS SELECT 1 AS other")
    assert (folder / "lake.sales.numbers.sql").read_bytes() == before


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("CREATE DYNAMIC TABLE t FRESHNESS = '7 hours' AS SELECT 1 AS x", r"^-e:1:36: no cron"),
        ("\nCREATE DYNAMIC TABLE t\nFRESHNESS = '1 day'\nAS SELECT a.x\n FROM numbers, nowhere a", r"^-e:5:16: .*nowhere"),
        ("CREATE DYNAMIC TABLE t PARTITIONED BY (ds) FRESHNESS = '1 day' AS SELECT 1 AS x", r"^-e:1:40: "),
        ("ALTER DYNAMIC TABLE numbers SET FRESHNESS = '7 hours'", r"^-e:1:1: then .*lake\.sales\.numbers\.sql:1:\d+: "),
        ("DROP DYNAMIC TABLE numbers", r"^-e:1:1: then .*lake\.sales\.reader\.sql:1:\d+: "),
        ("ALTER DYNAMIC TABLE numbers RENAME TO others", r"^-e:1:1: then .*lake\.sales\.reader\.sql:1:\d+: "),
    ],
)  # fmt: skip
def test_what_would_break_definitions_is_told_where_it_was_said_and_changes_nothing(
    say: Say, folder: Path, statement: str, told: str
) -> None:
    say(f"{NUMBERS}; CREATE DYNAMIC TABLE reader FRESHNESS = '1 day' AS SELECT x FROM numbers")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(DefinitionError, match=told):
        say(statement)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_what_is_broken_already_is_in_nobodys_way(say: Say, folder: Path) -> None:
    (folder / "broken.yaml").write_text("dynamic_tables: [}")
    assert say(NUMBERS)[0].rows == (("lake.sales.numbers", "created"),)
    assert fields(say("DROP DYNAMIC TABLE numbers")[0])["dropped"] is True


def test_broken_defaults_keep_new_tables_out(say: Say, folder: Path) -> None:
    (folder / "defaults.yaml").write_text("defaults: {retries: many}\n")
    for statement in (NUMBERS, f"EXPLAIN {NUMBERS}"):
        with pytest.raises((ConfigurationError, DefinitionError), match="defaults"):
            say(statement)
    assert list(folder.glob("*.sql")) == []


def test_a_declaration_that_cannot_be_registered_is_taken_back(say: Say, folder: Path) -> None:
    say("CREATE VIEW taken AS SELECT 1 AS x")
    with pytest.raises(TableAlreadyExistsError, match="is no dynamic table"):
        say("CREATE DYNAMIC TABLE taken FRESHNESS = '1 day' AS SELECT 1 AS x")
    say(NUMBERS)
    before = (folder / "lake.sales.numbers.sql").read_bytes()
    say("ALTER DYNAMIC TABLE numbers REFRESH")
    with pytest.raises(SchemaEvolutionError):
        say("ALTER DYNAMIC TABLE numbers SET ('format' = 'parquet', 'atomicity' = 'none')")
    assert (folder / "lake.sales.numbers.sql").read_bytes() == before
    assert {path.name for path in folder.glob("*.sql")} == {"lake.sales.numbers.sql"}


def test_a_dropped_table_is_gone_from_its_file_and_its_catalog(say: Say, folder: Path) -> None:
    file = folder / "several.sql"
    kept = "CREATE DYNAMIC TABLE lake.sales.kept FRESHNESS = '1 day' AS SELECT 1 AS x;\n"
    file.write_text(f"-- two of them\n{kept}{NUMBERS.replace('numbers', 'lake.sales.numbers')};\n")
    assert fields(say("DROP DYNAMIC TABLE numbers")[0])["dropped"] is True
    assert file.read_text() == f"-- two of them\n{kept}"
    say("DROP DYNAMIC TABLE kept")
    assert not file.exists()
    with pytest.raises(TableNotFoundError, match=r"There is no dynamic table lake\.sales\.numbers"):
        say("DROP DYNAMIC TABLE numbers")
    assert fields(say("DROP DYNAMIC TABLE IF EXISTS numbers")[0])["dropped"] is False


def test_a_table_that_is_not_declared_any_more_is_dropped_and_can_be_declared_again(say: Say, folder: Path) -> None:
    say(NUMBERS)
    (folder / "lake.sales.numbers.sql").unlink()
    with pytest.raises(TableNotFoundError, match="not declared any more"):
        say("ALTER DYNAMIC TABLE numbers SET FRESHNESS = '1 hour'")
    with pytest.raises(TableAlreadyExistsError, match="its catalog has it"):
        say(NUMBERS)
    assert say(NUMBERS.replace("CREATE", "CREATE OR ALTER"))[0].rows[0][1] == "unchanged"
    (folder / "lake.sales.numbers.sql").unlink()
    assert fields(say("DROP DYNAMIC TABLE numbers")[0])["dropped"] is True


def test_a_renamed_table_keeps_its_rows_and_its_versions(say: Say, folder: Path, project: Project, workspace: Workspace) -> None:
    say(f"{NUMBERS}; ALTER DYNAMIC TABLE numbers REFRESH")
    new = TableIdentifier("lake", "sales", "others")
    with pytest.raises(UnsupportedError, match="within its database"):
        say("ALTER DYNAMIC TABLE numbers RENAME TO other.database")
    assert list(project.load()[0].tables) == [NAME]
    assert say("ALTER DYNAMIC TABLE numbers RENAME TO others")[0].rows == (("lake.sales.numbers", "lake.sales.others"),)
    assert list(project.load()[0].tables) == [new]
    assert "renamed_from" not in (folder / "lake.sales.numbers.sql").read_text()
    assert say("SELECT x FROM others LIMIT 9")[0].rows == ((1,), (2,), (3,))
    assert not workspace.catalog("lake").table_exists(NAME.path)
    say(f"{NUMBERS}; ALTER DYNAMIC TABLE numbers SET FRESHNESS = '1 hour'")
    assert sorted(project.load()[0].tables) == [NAME, new]
    with pytest.raises(TableAlreadyExistsError, match="choose another name"):
        say("ALTER DYNAMIC TABLE numbers RENAME TO others")


def test_a_rename_that_was_cut_short_is_ended_by_the_next_refresh(
    say: Say, folder: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(f"{NUMBERS}; ALTER DYNAMIC TABLE numbers REFRESH")
    monkeypatch.setattr(declarations, "rename", lambda *_: os._exit(0))
    if (child := os.fork()) == 0:
        say("ALTER DYNAMIC TABLE numbers RENAME TO others")
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert "renamed_from" in (folder / "lake.sales.numbers.sql").read_text()
    refreshed = fields(say("ALTER DYNAMIC TABLE others REFRESH")[0])
    assert (refreshed["state"], refreshed["version"]) == ("SUCCEEDED", 2)
    assert not workspace.catalog("lake").table_exists(NAME.path)


def test_a_table_is_dropped_with_its_files(say: Say, workspace: Workspace) -> None:
    say(f"{NUMBERS}; ALTER DYNAMIC TABLE numbers REFRESH")
    files = Path(str(_entry(workspace).location).removeprefix("file://"))
    assert list(files.rglob("*.parquet"))
    dropped = fields(say("DROP DYNAMIC TABLE numbers PURGE")[0])
    assert (dropped["dropped"], dropped["location"]) == (True, None)
    assert not list(files.rglob("*.parquet"))


def test_who_changes_a_file_by_hand_meanwhile_loses_nothing(
    say: Say, folder: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(NUMBERS)
    file = folder / "lake.sales.numbers.sql"
    by_hand = file.read_text() + "-- by hand\n"
    load = Project.load_draft

    def meanwhile(self: Project, drafts: dict[Path, bytes | None]) -> object:
        file.write_text(by_hand)
        return load(self, drafts)

    monkeypatch.setattr(Project, "load_draft", meanwhile)
    with pytest.raises(ConflictError, match="Another process changed"):
        say("ALTER DYNAMIC TABLE numbers SET FRESHNESS = '1 hour'")
    assert file.read_text() == by_hand
    assert _defined(project).freshness.text == "1 day"


def test_a_line_end_and_a_mark_of_windows_stay(say: Say, folder: Path) -> None:
    file = folder / "windows.sql"
    declared = "\ufeff-- one\r\nCREATE DYNAMIC TABLE lake.sales.numbers\r\nFRESHNESS = '1 day'\r\nAS SELECT 1 AS x;\r\n"
    file.write_bytes(declared.encode())
    say("ALTER DYNAMIC TABLE numbers SET FRESHNESS = '1 hour'")
    assert file.read_bytes().decode() == declared.replace("1 day", "1 hour")


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (f"{NUMBERS} -- \udc80", "is not UTF-8 text"),
        (f"{NUMBERS}\rWHERE true", "has a carriage return that is no line end"),
        (NUMBERS.replace("1 AS x", f"'{'x' * 1_000_000}' AS x"), "has more than 1,000,000 bytes"),
        (NUMBERS.replace("1 AS x", f"'{'x' * 999_800}' AS x"), "the query"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(say: Say, folder: Path, statement: str, told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        say(statement)
    assert list(folder.glob("*.sql")) == []


def test_a_statement_changes_its_own_table_among_several_in_a_line(say: Say, folder: Path, project: Project) -> None:
    text = "; ".join(f"CREATE DYNAMIC TABLE lake.{name}.t FRESHNESS = '1 day' AS SELECT 1 AS x" for name in "abc")
    (folder / "line.sql").write_text(text)
    say("ALTER DYNAMIC TABLE b.t SET FRESHNESS = '1 hour'; DROP DYNAMIC TABLE c.t")
    declared = {name.database: table.freshness.text for name, table in project.load()[0].tables.items()}
    assert declared == {"a": "1 day", "b": "1 hour"}


def test_a_declaration_with_a_mistake_is_not_taken_for_missing(say: Say, folder: Path) -> None:
    file = folder / "lake.sales.numbers.sql"
    file.write_text(NUMBERS.replace("'1' DAY", "'7' HOUR"))
    for statement in ("ALTER DYNAMIC TABLE numbers SET FRESHNESS = '1 hour'", "DROP DYNAMIC TABLE numbers"):
        with pytest.raises(TableNotFoundError, match=r"look at their mistakes first: .*numbers\.sql:1:\d+: no cron"):
            say(statement)
    with pytest.raises(DefinitionError):
        say(NUMBERS)
    assert file.read_text() == NUMBERS.replace("'1' DAY", "'7' HOUR")
