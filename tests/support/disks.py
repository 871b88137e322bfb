"""No test takes the power away, so none has to wait for a disk: what a process has written survives its end all the same."""

from __future__ import annotations

import sqlite3
from contextlib import suppress

from sqlalchemy import Engine, event


def wait_for_no_disk() -> None:
    """Let SQLite write in this process as PostgreSQL does in the tests: half the time of many tests would be ``fsync``."""
    event.listen(Engine, "connect", _write_at_ease)


def _write_at_ease(connection: object, _record: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        with suppress(sqlite3.Error):  # whoever uses the connection is told
            connection.execute("PRAGMA synchronous = OFF")
