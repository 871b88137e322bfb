"""A PostgreSQL server of the test run's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from tests.support.ports import free_port

DRIVER = Path("/usr/share/java/postgresql.jar")
"""PostgreSQL's JDBC driver, where Debian's libpostgresql-jdbc-java puts it."""


_TEMPORARY = tempfile.gettempdir()
"""Where servers keep their data; a test may choose another temporary folder later, which the user of a server cannot enter."""

_GUARDED = "guarded"
"""The user who needs a password; the others do not."""


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A PostgreSQL server of the test run's own, on the loopback interface."""

    binaries: Path
    port: int
    folder: Path

    def create_database(self, name: str, template: str = "template1", encoding: str = "UTF8") -> str:
        """Make a database, empty or as the template is, to which nobody may be connected meanwhile.

        :return: its URL, without a driver.
        """
        url = f"postgresql://postgres@127.0.0.1:{self.port}/{name}"
        # Not by createdb: hundreds of tests make one, and each would fork a process that has grown large.
        with psycopg.connect(url, dbname="postgres", autocommit=True) as connection:
            made = "CREATE DATABASE {} TEMPLATE {}" + (" ENCODING {} LOCALE 'C'" if encoding != "UTF8" else "")
            names = (sql.Identifier(name), sql.Identifier(template))
            connection.execute(sql.SQL(made).format(*names, *((encoding,) if encoding != "UTF8" else ())))
        return url

    def create_user(self, password: str) -> str:
        """Make the one user of whom the server wants a password, or give the user that one.

        :return: the user's name.
        """
        where = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres")
        made = f"DO $$ BEGIN CREATE ROLE {_GUARDED} LOGIN SUPERUSER; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
        changed = f"ALTER ROLE {_GUARDED} PASSWORD '{password}'"
        psql = (str(self.binaries / "psql"), *where, "-d", "template1", "-v", "ON_ERROR_STOP=1")
        _as_postgres(*psql, "-c", made, "-c", changed)
        return _GUARDED

    def start(self) -> None:
        """Start it, again if it was stopped."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder}"
        # With the hundreds of databases of a run, autovacuum would start a process ten times a second.
        options += " -c fsync=off -c full_page_writes=off -c autovacuum=off -c max_connections=200"
        self._control("-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        """Stop it at once, as a crash would; what was committed stays."""
        self._control("-m", "immediate", "stop")

    def _control(self, *command: str) -> None:
        _as_postgres(str(self.binaries / "pg_ctl"), "-D", str(self.folder / "data"), "-w", *command)


@contextmanager
def running_postgres(binaries: Path) -> Iterator[PostgresServer]:
    """Start a server on a free port; its data are gone afterwards."""
    server = PostgresServer(binaries, free_port(), Path(tempfile.mkdtemp(prefix="postgres-", dir=_TEMPORARY)))
    if os.geteuid() == 0:
        shutil.chown(server.folder, "postgres")
    _as_postgres(str(binaries / "initdb"), "-D", str(server.folder / "data"), "-A", "trust", "-U", "postgres", "--no-sync")
    rules = server.folder / "data" / "pg_hba.conf"
    rules.write_text(f"host all {_GUARDED} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")  # the first that fits counts
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


def postgres_binaries() -> Path | None:
    """Where initdb is: on the path, or where Debian puts it."""
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)


def _as_postgres(*command: str) -> None:
    user = "postgres" if os.geteuid() == 0 else None
    done = subprocess.run(command, user=user, cwd="/", capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
