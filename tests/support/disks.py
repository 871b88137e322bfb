"""Disks in tests: none is waited for, because no test takes the power away, and files can be limited in size."""

from __future__ import annotations

import resource
import sqlite3
import sys
from contextlib import suppress

from sqlalchemy import Engine, event


def wait_for_no_disk() -> None:
    """Let SQLite write in this process as PostgreSQL does in the tests: half the time of many tests would be ``fsync``."""
    event.listen(Engine, "connect", _write_at_ease)


def _write_at_ease(connection: object, _record: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        with suppress(sqlite3.Error):  # whoever uses the connection is told
            connection.execute("PRAGMA synchronous = OFF")


def limit_files(size: int) -> None:
    """Let this process write at most ``size`` bytes into a file, and no compiled modules: Python would leave them incomplete."""
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
