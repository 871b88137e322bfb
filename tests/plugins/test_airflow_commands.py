"""``airflow dynamic-tables`` has the commands of ``dynamic-tables``, and their exit codes."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from airflow.cli import cli_parser
from airflow.cli.cli_config import DefaultHelpParser, GroupCommand

from airflow_dynamic_tables.cli.command_index import all_commands, sections
from airflow_dynamic_tables.cli.main import main
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState, Stage
from airflow_dynamic_tables.plugins.commands import get_cli_commands
from airflow_dynamic_tables.runners.spark_submit import SparkSubmitRunner
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.workspace import open_workspace
from tests.support.pyarrow_job import write_numbers
from tests.support.statsd import statsd_server

DAY = datetime(2024, 1, 1, tzinfo=UTC)
NUMBERS = TableIdentifier("lake", "sales", "numbers")


@pytest.fixture
def parser() -> DefaultHelpParser:
    parser = DefaultHelpParser(prog="airflow")
    (group,) = get_cli_commands()
    cli_parser._add_command(parser.add_subparsers(dest="command"), group)
    return parser


def test_every_command_is_there() -> None:
    (group,) = get_cli_commands()
    assert [command.name for command in group.subcommands] == [command.name for command in all_commands()]
    assert [command.name for command in group.subcommands if isinstance(command, GroupCommand)] == ["db", "spark"]


def test_both_helps_have_the_same_order(parser: DefaultHelpParser, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser.parse_args(["dynamic-tables", "--help"])
    airflows = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--help"])
    ours = capsys.readouterr().out
    names = [command.name for command in all_commands()]
    assert _commands_of(airflows, names) == _commands_of(ours, names) == names
    for title, section in sections(all_commands()).items():
        assert f"{title}: {', '.join(command.name for command in section)}" in " ".join(airflows.split())


def _commands_of(text: str, names: list[str]) -> list[str]:
    return [word for word in re.findall(r"^ {4}(\S+)", text, re.MULTILINE) if word in names]


def test_a_mistake_in_the_definitions_is_exit_code_1(
    parser: DefaultHelpParser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.yaml").write_text("dynamic_tables:\n- name: a\n  freshness: 1 day\n  query: SELEC 1\n")
    arguments = parser.parse_args(["dynamic-tables", "validate", "--without-spark", "--definitions", str(tmp_path)])
    with pytest.raises(SystemExit) as exit_:
        arguments.func(arguments)
    assert exit_.value.code == 1
    assert f"{tmp_path}/broken.yaml:4:16: bad SQL" in capsys.readouterr().out


def test_success_returns(parser: DefaultHelpParser, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = parser.parse_args(["dynamic-tables", "schema"])
    assert arguments.func(arguments) is None
    assert '"$schema"' in capsys.readouterr().out


def test_modes_are_those_of_the_dags(
    parser: DefaultHelpParser, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.yaml").write_text("dynamic_tables:\n- {name: a, freshness: 1 hour, query: SELECT 1 AS x}\n")
    monkeypatch.setenv("AIRFLOW__DYNAMIC_TABLES__FRESHNESS_THRESHOLD", "1 day")
    command = ["plan", "--output", "json", "--definitions", str(tmp_path), "--schedule-time", "2024-01-01 00:00:00"]
    arguments = parser.parse_args(["dynamic-tables", *command])
    assert arguments.func(arguments) is None
    airflows = json.loads(capsys.readouterr().out)
    monkeypatch.setenv("DYNAMIC_TABLES_FRESHNESS_THRESHOLD", "2 hours")
    assert main(command) == 0
    ours = json.loads(capsys.readouterr().out)
    assert [plan["mode_reason"] for plan in (*airflows, *ours)] == [
        f"freshness 1 hour is below the threshold of {threshold}" for threshold in ("1 day", "2 hours")
    ]


STREAM = """\
sources:
- {name: raw.events, format: json, path: events, schema: "id BIGINT, ts TIMESTAMP", watermark: {column: ts, delay: 1 minute}}
dynamic_tables:
- {name: lake.web.seen, freshness: 1 minute, spark: {conn_id: warm}, query: "SELECT id FROM raw.events"}
"""


@pytest.mark.parametrize("command", ["validate --without-spark", "plan"])
@pytest.mark.parametrize("is_server", [True, False, None])
def test_a_stream_on_a_connection_to_a_server_is_a_mistake(
    parser: DefaultHelpParser,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    is_server: bool | None,
) -> None:
    (tmp_path / "a.yaml").write_text(STREAM)
    if is_server is not None:
        connection = {"conn_type": "spark_connect" if is_server else "spark", "host": "local"}
        monkeypatch.setenv("AIRFLOW_CONN_WARM", json.dumps(connection))
    arguments = parser.parse_args(["dynamic-tables", *command.split(), "--definitions", str(tmp_path)])
    if not is_server:
        assert arguments.func(arguments) is None
        return
    with pytest.raises(SystemExit) as exit_:
        arguments.func(arguments)
    assert exit_.value.code == 1
    said = "".join(capsys.readouterr())
    assert f"{tmp_path}/a.yaml:4:1: lake.web.seen is kept fresh by a stream (" in said
    assert "connection 'warm' leads to a Spark Connect server; name one of type spark under spark.conn_id" in said


def ledger_of_the_dags(folder: Path) -> str:
    url = f"sqlite:///{folder}/shared/state.db"
    refresh = Refresh("t1", NUMBERS, RefreshAction.FULL, "asked for", RefreshState.RUNNING, schedule_time=DAY, started_at=DAY)
    with open_workspace(WorkspaceSettings(url, f"file://{folder}/shared/warehouse")) as workspace:
        workspace.ledger.open_stage(Stage("t1", NUMBERS, "file:///nowhere", "somebody", "", DAY, DAY))
        workspace.ledger.record(refresh)
    return url


@pytest.fixture
def run(
    parser: DefaultHelpParser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Runs ``airflow dynamic-tables ...`` in a folder of its own, without any state; what it printed."""
    (tmp_path / "tables.yaml").write_text("dynamic_tables: [{name: lake.sales.numbers, freshness: 1 day, query: SELECT 1 AS x}]")
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "home"))
    for name in ("DEFINITIONS", "CATALOGS", "DATABASE_URL", "WAREHOUSE"):
        monkeypatch.delenv(f"DYNAMIC_TABLES_{name}", raising=False)

    def run(*argv: str) -> str:
        definitions = ("--definitions", str(tmp_path / "tables.yaml"), "--output", "json")
        arguments = parser.parse_args(["dynamic-tables", *argv, *definitions])
        arguments.func(arguments)
        return capsys.readouterr().out

    return run


def test_the_state_is_that_of_the_connection(run: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {"conn_type": "dynamic_tables", "extra": {"database_url": ledger_of_the_dags(tmp_path)}}
    monkeypatch.setenv("AIRFLOW_CONN_DYNAMIC_TABLES_DEFAULT", json.dumps(connection))
    assert [refresh["token"] for refresh in json.loads(run("history"))] == ["t1"]
    assert [table["last_refresh"] for table in json.loads(run("list"))] == ["RUNNING"]
    assert not (tmp_path / "home" / "dynamic_tables" / "state.db").exists()


def test_the_connection_is_the_one_that_airflow_is_configured_with(
    run: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = {"conn_type": "dynamic_tables", "extra": {"database_url": ledger_of_the_dags(tmp_path)}}
    monkeypatch.setenv("AIRFLOW_CONN_TABLES_OF_SALES", json.dumps(connection))
    monkeypatch.setenv("AIRFLOW__DYNAMIC_TABLES__CONNECTION", "tables_of_sales")
    assert [refresh["token"] for refresh in json.loads(run("history"))] == ["t1"]


def test_an_option_wins_over_the_connection(run: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = {"conn_type": "dynamic_tables", "extra": {"database_url": f"sqlite:///{tmp_path}/elsewhere.db"}}
    monkeypatch.setenv("AIRFLOW_CONN_DYNAMIC_TABLES_DEFAULT", json.dumps(elsewhere))
    url = ledger_of_the_dags(tmp_path)
    assert [refresh["token"] for refresh in json.loads(run("history", "--database-url", url))] == ["t1"]
    assert not (tmp_path / "elsewhere.db").exists()


def test_without_a_connection_the_state_is_embedded(run: Callable[..., str], tmp_path: Path) -> None:
    assert json.loads(run("history")) == []
    assert (tmp_path / "home" / "dynamic_tables" / "state.db").is_file()


def test_the_log_of_airflow_is_not_in_the_output(run: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    """Airflow 3.2 logs to stdout, and so does 3.3 for commands without ``--output``."""
    handler = logging.StreamHandler(sys.stdout)
    logging.getLogger().addHandler(handler)
    try:
        assert json.loads(run("history")) == []
        logging.getLogger("alembic").error("said by a library")
    finally:
        logging.getLogger().removeHandler(handler)
    said = capsys.readouterr()
    assert (said.out, "said by a library\n" in said.err) == ("", True)


def test_whoever_looks_at_tables_does_not_wait_for_arrow(tmp_path: Path) -> None:
    """It takes half of the time in which the command starts."""
    (tmp_path / "tables.yaml").write_text("dynamic_tables: [{name: lake.sales.numbers, freshness: 1 day, query: SELECT 1 AS x}]")
    program = (
        "import sys; from airflow_dynamic_tables.cli.main import main\n"
        "for command in ('create', 'list', 'show'):\n"
        "    assert main([command, *(['numbers'] if command == 'show' else []), '--definitions', sys.argv[1]]) == 0\n"
        "print('pyarrow.parquet' in sys.modules)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "tables.yaml")]
    environ = {**os.environ, "AIRFLOW_HOME": str(tmp_path / "home"), "DYNAMIC_TABLES_CACHE": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    assert done.stdout.splitlines()[-1] == "False"


def test_what_needs_the_definitions_alone_asks_for_no_connection(
    run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__DYNAMIC_TABLES__CONNECTION", "nowhere")
    assert json.loads(run("plan"))[0]["identifier"] == "lake.sales.numbers"


def test_writes_of_commands_are_counted(run: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSubmitRunner, "run", lambda _self, plan, _environment: write_numbers(plan))
    with statsd_server(monkeypatch) as received:
        run("list")
        run("refresh", "numbers")
        run("refresh", "numbers", "--full")
        run("rollback", "numbers", "--to", "1")
        writes = [line.removeprefix("airflow.dynamic_tables.writes.") for line in received() if ".writes." in line]
    assert writes == [f"lake__sales__numbers.{action}.committed:1|c" for action in ("INITIALIZE", "FULL", "ROLLBACK")]
