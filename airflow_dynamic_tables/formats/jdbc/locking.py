"""Locking a table for itself without making its readers wait for long, and whose snapshots are too old to see what comes."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from airflow_dynamic_tables.clients.postgres.locks import LOCK_NOT_AVAILABLE
from airflow_dynamic_tables.clients.postgres.names import TableName
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, PostgresError

_POLITE = 0.1
"""Seconds that a table is waited for at once: everybody who comes meanwhile waits, too."""

_PAUSE = 0.3
"""Seconds after which it is tried again, about."""

_XIDS = 2**32

_OLD = """
SELECT pid, usename AS name, application_name AS application, backend_xmin::text::bigint AS xmin FROM pg_stat_activity
WHERE backend_xmin IS NOT NULL AND datname = current_database() AND pid <> pg_backend_pid()
"""


@dataclass(frozen=True, slots=True)
class Horizon:
    """A moment in the life of a server: all that was committed before has a smaller number than ``xid``."""

    xid: int

    @classmethod
    def now(cls, database: OpenDatabase) -> Horizon:
        """This moment; to be asked before the transaction writes."""
        (row,) = database.rows("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xid")
        return cls(row.xid)

    def older_snapshots(self, database: OpenDatabase) -> list[str]:
        """Who may have a snapshot from before, and would see an incomplete table where a stage takes the place of one."""
        database.run("SELECT pg_stat_clear_snapshot()")
        rows = database.rows(_OLD)
        return [
            f"pid {row.pid} (user {row.name}, application {row.application or 'without a name'})"
            for row in rows
            if 0 < (self.xid - row.xmin) % _XIDS < _XIDS // 2
        ]


def lock_for_itself(database: OpenDatabase, table: TableName, patience: float) -> None:
    """Lock a table so that nobody reads it; given up between two tries, so that whoever wants to read it does.

    :param patience: seconds until it is given up at all.
    :raises PostgresError: when it was not free for a moment.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            with database.savepoint():
                database.run(f"SET LOCAL lock_timeout = {int(_POLITE * 1000)}")
                database.run(f"LOCK TABLE {table.quoted} IN ACCESS EXCLUSIVE MODE")
        except PostgresError as error:
            if error.sqlstate != LOCK_NOT_AVAILABLE or time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE * random.uniform(0.5, 1.5))
        else:
            return
