"""What a turn asks of the ledger costs no more after a year of turns: every question about one table is answered by an index."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.ledger.base import StageState
from airflow_dynamic_tables.ledger.sql import SqlLedger
from tests.contracts.ledger.test_ledger import NOON, REFRESH, STAGE, TABLE


class Plans:
    """How SQLite goes about every statement."""

    def __init__(self, database: Database) -> None:
        self.bad: list[tuple[str, str]] = []
        event.listen(database.engine, "before_cursor_execute", self._explain)

    def _explain(self, _connection: Any, cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        if many or not statement.startswith(("SELECT", "UPDATE", "DELETE")):
            return
        for *_, step in cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall():
            # Who asks for the latest ones must not wait until all are sorted; unfinished stages are few.
            is_scan = step.startswith("SCAN dt_") and "USING INDEX" not in step
            if is_scan or ("LIMIT" in statement and step == "USE TEMP B-TREE FOR ORDER BY"):
                self.bad.append((step, statement))


@pytest.fixture
def database(tmp_path: Path, empty_state: Path) -> Iterator[Database]:
    made = Database(f"sqlite:///{shutil.copy(empty_state, tmp_path)}")
    yield made
    made.close()


def test_a_refresh_looks_through_no_history(database: Database) -> None:
    ledger = SqlLedger(database)
    plans = Plans(database)
    ledger.open_stage(STAGE)
    ledger.record(REFRESH)
    ledger.record_source_states(TABLE, REFRESH.token, {})
    ledger.renew_lease(STAGE.token, NOON + timedelta(minutes=9))
    ledger.move_stage(STAGE.token, (StageState.OPEN,), StageState.COMMITTING, {"rows": 1})
    ledger.move_stage(STAGE.token, (StageState.COMMITTING,), StageState.COMMITTED, {"version": 8})
    ledger.extend(replace(REFRESH, token="t1-unchanged", action=RefreshAction.NO_DATA))
    ledger.source_states(REFRESH.token)
    ledger.last_stage(TABLE, but_of=("compaction",))
    ledger.list_stages(TABLE, (StageState.QUARANTINED,))
    ledger.list_refreshes(TABLE, limit=50)
    ledger.list_refreshes(limit=20)
    ledger.latest([TABLE])
    ledger.held([REFRESH.token])
    ledger.list_jobs()
    ledger.get_refresh(REFRESH.token)
    ledger.published_partitions(TABLE)
    ledger.list_due_reports(NOON)
    assert plans.bad == []
