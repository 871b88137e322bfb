"""The task that checks the freshness of all tables, whether they are refreshed or not."""

from __future__ import annotations

import importlib
import os
import re
import textwrap
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException
from sqlalchemy import update

from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.database.tables import watched_tables
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.dags.callbacks import late_callbacks_of
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.operators.freshness import FreshnessOperator
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import open_workspace
from tests.support.statsd import statsd_server

ALERTS = """
from airflow.sdk import BaseNotifier

CALLS = []
BROKEN = []


def page(context):
    if BROKEN:
        raise ValueError("no network")
    CALLS.append(("page", context["dynamic_table"].identifier))


async def wait(context): ...


class Chat(BaseNotifier):
    template_fields = ("text",)

    def __init__(self, text):
        super().__init__()
        self.text = text

    def notify(self, context):
        CALLS.append(("chat", self.text))
"""

CALLBACKS = """on_late_callback:
  - CALLED:page
  - {notifier: "CALLED:Chat", arguments: {text: "{{ dynamic_table.identifier }}: {{ dynamic_table.lag_seconds }}"}}
"""

TABLES = """
dynamic_tables:
- {name: lake.sales.late, freshness: 1 hour, query: SELECT 1 AS x}
- {name: lake.sales.fresh, freshness: 1 hour, query: SELECT 1 AS x}
- {name: lake.sales.never, freshness: 1 hour, query: SELECT 1 AS x}
- {name: lake.sales.elsewhere, freshness: 1 hour, scheduler: dolphinscheduler, query: SELECT 1 AS x}
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    path = tmp_path / "tables.yaml"
    path.write_text(TABLES)
    return path


def refreshed(name: str, fresh_until: datetime) -> None:
    """Record a refresh that made a table fresh up to a time."""
    now = datetime.now(UTC)
    with open_workspace(embedded_settings(os.environ)) as workspace:
        table = TableIdentifier("lake", "sales", name)
        done = Refresh(f"{name}-{now.isoformat()}", table, RefreshAction.FULL, "", RefreshState.SUCCEEDED, fresh_until, now)
        workspace.ledger.record(replace(done, finished_at=now, data_timestamp=fresh_until, version=1, snapshot="1"))


def check(path: Path) -> list[str]:
    context: Any = {}
    return FreshnessOperator(task_id="check", definitions_path=path).execute(context)


def test_gauges_of_every_table(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC)
    refreshed("late", now - timedelta(hours=5))
    refreshed("fresh", now - timedelta(minutes=1))
    with statsd_server(monkeypatch) as received:
        assert check(path) == ["lake.sales.late"]
        lines = received()
    gauges = dict(line.removeprefix("airflow.dynamic_tables.").removesuffix("|g").split(":") for line in lines)
    assert {name: value for name, value in gauges.items() if name.startswith("late.")} == {
        "late.lake__sales__late": "1",
        "late.lake__sales__fresh": "0",
        "late.lake__sales__never": "0",
    }
    assert int(gauges["lag.lake__sales__late"]) in range(5 * 3600, 5 * 3600 + 60)
    assert 3600 <= int(gauges["allowed_lag.lake__sales__late"]) <= 7200
    assert "lag.lake__sales__never" not in gauges
    assert gauges["quarantined.lake__sales__fresh"] == gauges["missing_partitions.lake__sales__fresh"] == "0"


@pytest.fixture
def alerts(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Callbacks of all tables; they are in a module of their own, because those of other tests stay imported."""
    name = f"alerts_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(ALERTS)
    monkeypatch.syspath_prepend(tmp_path)
    path.write_text("defaults:\n" + textwrap.indent(CALLBACKS.replace("CALLED", name), "  ") + TABLES)
    return importlib.import_module(name)


def test_a_late_table_is_notified_once_until_it_is_fresh_again(path: Path, alerts: Any) -> None:
    now = datetime.now(UTC)
    refreshed("late", now - timedelta(hours=5))
    assert check(path) == ["lake.sales.late"]
    (page, (chat, text)) = alerts.CALLS
    assert (page, chat) == (("page", "lake.sales.late"), "chat")
    assert re.fullmatch(r"lake\.sales\.late: 180\d\d", text)
    assert check(path) == ["lake.sales.late"]
    assert len(alerts.CALLS) == 2, "another process, such as that of the next minute, notified again"
    refreshed("late", now - timedelta(minutes=1))
    assert check(path) == []
    refreshed("late", now - timedelta(hours=5))  # another engine went back
    check(path)
    assert len(alerts.CALLS) == 4


def test_a_table_that_was_never_refreshed_is_late_after_its_first_tick(path: Path, alerts: Any) -> None:
    refreshed("late", datetime.now(UTC))
    refreshed("fresh", datetime.now(UTC))
    assert check(path) == []
    watched_for("never", timedelta(hours=3))
    assert check(path) == ["lake.sales.never"]
    assert alerts.CALLS[0] == ("page", "lake.sales.never")


def watched_for(name: str, time: timedelta) -> None:
    """Let a table be watched for some time, as if the DAG had run since."""
    with Database(embedded_settings(os.environ).database_url).transaction() as connection:
        of = watched_tables.c.table_name == f"lake.sales.{name}"
        assert connection.execute(update(watched_tables).where(of).values(since=datetime.now(UTC) - time)).rowcount == 1


def test_a_callback_that_fails_is_called_again_and_hides_no_other(
    path: Path, alerts: Any, caplog: pytest.LogCaptureFixture
) -> None:
    refreshed("late", datetime.now(UTC) - timedelta(hours=5))
    alerts.BROKEN.append(True)
    with pytest.raises(AirflowException, match=r"Callbacks of late tables failed: lake\.sales\.late"):
        check(path)
    assert "no network" in caplog.text
    assert [kind for kind, _ in alerts.CALLS] == ["chat"]
    alerts.BROKEN.clear()
    check(path)
    assert [kind for kind, _ in alerts.CALLS] == ["chat"], "the claim holds for some minutes"
    with open_workspace(embedded_settings(os.environ)) as workspace:
        table = TableIdentifier.parse("lake.sales.late")
        key = next(iter(late_callbacks_of(load_definitions(path).tables[table])))
        later = datetime.now(UTC) + timedelta(minutes=6)
        assert workspace.ledger.claim_notice(table, key, later, later)
        assert workspace.ledger.claim_notice(table, key, later, later + timedelta(minutes=5))
        assert not workspace.ledger.claim_notice(table, key, later, later + timedelta(minutes=5)), "two schedulers at once"


def test_an_async_callback_is_refused(path: Path, alerts: Any) -> None:
    table = f"{{name: a.b.c, freshness: 1 day, query: SELECT 1 AS x, on_late_callback: {alerts.__name__}:wait}}"
    path.write_text(f"dynamic_tables:\n- {table}\n")
    (waiting,) = load_definitions(path).tables.values()
    with pytest.raises(ConfigurationError, match="is async, and a task calls it; name a function"):
        late_callbacks_of(waiting)
