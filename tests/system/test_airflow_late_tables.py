"""A late table is notified once by a running Airflow, although its DAG is paused and was never run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.dag_factory import FRESHNESS_DAG
from tests.support.airflow import Stack, until

pytestmark = [pytest.mark.system, pytest.mark.postgres]

CHAT = """
import time
from pathlib import Path

from airflow.sdk import BaseNotifier


class Chat(BaseNotifier):
    template_fields = ("text",)

    def __init__(self, text):
        super().__init__()
        self.text = text

    def notify(self, context):
        with (Path(__file__).parents[1] / "late.txt").open("a") as file:
            file.write(f"{self.text} at {time.time()}\\n")
"""

TABLES = """
dynamic_tables:
  - name: lake.lateness.paused
    freshness: 1 minute
    refresh_mode: full
    query: SELECT 1 AS x
    on_late_callback: {notifier: "late_chat:Chat", arguments: {text: "{{ dynamic_table.identifier }} by {{ dag.dag_id }}"}}
"""

TABLE = TableIdentifier("lake", "lateness", "paused")
LONGEST = timedelta(minutes=2)
"""The longest time from the limit of a table to the notice."""

DAG = "dynamic_table__lake__lateness__paused"


@pytest.fixture
def told(stack: Stack) -> Iterator[Path]:
    airflow = stack.airflow
    (airflow.home / "dags" / "late_chat.py").write_text(CHAT)
    airflow.define("lateness.yaml", TABLES)
    until("DAGs", lambda: stack.get("/dags", dag_id_pattern=FRESHNESS_DAG)["total_entries"])
    stack.unpause(FRESHNESS_DAG)
    yield airflow.home / "late.txt"
    stack.pause(FRESHNESS_DAG)
    (airflow.definitions / "lateness.yaml").unlink()
    airflow.parse()


@pytest.mark.large
def test_a_table_of_a_paused_dag_is_notified_once(stack: Stack, told: Path) -> None:
    until("notice", told.exists)
    ended = len(stack.runs(FRESHNESS_DAG, state="success"))
    until("checks after the notice", lambda: len(stack.runs(FRESHNESS_DAG, state="success")) >= ended + 2)
    (notice,) = told.read_text().splitlines()
    text, _, sent_at = notice.partition(" at ")
    assert text == f"{TABLE} by {FRESHNESS_DAG}"
    with stack.airflow.workspace() as workspace:
        limit = workspace.ledger.watched()[TABLE].late_from
    assert limit is not None
    assert timedelta() <= datetime.fromtimestamp(float(sent_at), UTC) - limit <= LONGEST
    assert stack.runs(FRESHNESS_DAG, state="failed") == []
    assert stack.runs(DAG) == []
