"""What a refresh asks of the ledger after 20,000 refreshes of its table, against after 20: CPU of this process.

Ten seconds of freshness make 20,000 in little more than two days. ``BENCH_DATABASE`` names a PostgreSQL database that may be
emptied, where the server computes, so there it is the time that counts; without it the ledgers are files of SQLite.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from measure import compare, interleave
from sqlalchemy import insert, select

from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.database.tables import refreshes, stages
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState, Stage, StageState
from airflow_dynamic_tables.ledger.sql import SqlLedger

ROUNDS = 21
MANY, FEW = 20_000, 20
CADENCE = timedelta(seconds=10)
URL = os.environ.get("BENCH_DATABASE")
CLOCK = time.perf_counter if URL else time.process_time


def main() -> None:
    """Fill the history of two tables, refresh both in turn, print."""
    with tempfile.TemporaryDirectory() as folder:
        sides: dict[str, Callable[[], float]] = {}
        for name, count in (("many", MANY), ("few", FEW)):
            database = Database(URL or f"sqlite:///{folder}/{name}.db")
            database.upgrade()
            ledger = SqlLedger(database)
            table = TableIdentifier("lake", "bench", f"{name}_{uuid4().hex}")
            _fill(database, ledger, table, count)
            sides[name] = _turn(ledger, table)
        measured = interleave(ROUNDS, **sides)
    compare(f"the ledger's part of a refresh after {MANY}", measured["many"], measured["few"], f"after {FEW}", 1.5)


def _fill(database: Database, ledger: SqlLedger, table: TableIdentifier, count: int) -> None:
    """Refreshes as a loop makes them, the last one just now: many like the first one, which the ledger wrote itself."""
    now = datetime.now(UTC)
    _refresh(ledger, table, now - count * CADENCE)
    with database.transaction() as connection:
        for rows, at in ((stages, "opened_at"), (refreshes, "started_at")):
            (first,) = connection.execute(select(rows).where(rows.c.table_name == str(table))).mappings()
            of_each = [{"token": f"{table}-{number}", at: now - (count - number) * CADENCE} for number in range(1, count)]
            ordinals = [{"ordinal": number + 1} if rows is stages else {} for number in range(1, count)]
            connection.execute(insert(rows), [{**first, **one, **two} for one, two in zip(of_each, ordinals, strict=True)])


def _refresh(ledger: SqlLedger, table: TableIdentifier, now: datetime) -> None:
    token = str(uuid4())
    ledger.open_stage(Stage(token, table, "file:///stage", owner="loop", process="p", opened_at=now, lease_until=now + CADENCE))
    ledger.record(Refresh(token, table, RefreshAction.FULL, "scheduled", RefreshState.RUNNING, now, now))
    ledger.move_stage(token, (StageState.OPEN,), StageState.COMMITTED, {"state": RefreshState.SUCCEEDED, "finished_at": now})


def _turn(ledger: SqlLedger, table: TableIdentifier) -> Callable[[], float]:
    """What a turn asks and tells, and what ``list`` asks of one table."""

    def measured() -> float:
        started = CLOCK()
        ledger.last_stage(table, but_of="compaction")
        ledger.list_stages(table)
        ledger.list_refreshes(table, limit=50)
        _refresh(ledger, table, datetime.now(UTC))
        ledger.list_refreshes(table, limit=1)
        return CLOCK() - started

    return measured


if __name__ == "__main__":
    main()
