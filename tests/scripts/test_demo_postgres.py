"""The server under the demo's Airflow: it outlives no session, and no session that died is in its way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import create_engine, text

from tests.support.suite import missing_service

SCRIPTS = Path(__file__).parents[2] / "scripts"
URL = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"


@pytest.fixture
def demo_postgres(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(SCRIPTS)
    return import_module("demo_postgres")


@pytest.fixture
def home(demo_postgres: Any) -> Iterator[Path]:
    if demo_postgres.postgres_binaries() is None:
        missing_service("PostgreSQL's binaries are needed: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="demo "))
    folder.chmod(0o755)
    yield folder / "home"
    for server in servers(folder / "home"):
        server.kill()
    shutil.rmtree(folder)


def servers(home: Path) -> list[psutil.Process]:
    folder = str(home / "postgres" / "data")
    return [found for found in psutil.process_iter(["cmdline"]) if folder in (found.info["cmdline"] or ())]


def ask(session: dict[str, str], query: str) -> Any:
    engine = create_engine(session[URL])
    with engine.begin() as connection:
        answer = connection.execute(text(query))
        value = answer.scalar() if answer.returns_rows else None
    engine.dispose()
    return value


@pytest.mark.postgres
def test_sessions_share_a_server_and_leave_none(demo_postgres: Any, home: Path) -> None:
    session = demo_postgres.airflow_database
    with session(home) as first:
        ask(first, "CREATE TABLE runs AS SELECT 42 AS number")
        with session(home) as second:
            assert second == first
        assert ask(first, "SELECT number FROM runs") == 42
    assert servers(home) == []

    # The process id of a killed server may be anybody's when the machine, or the container, starts again; or nobody reaps it.
    with subprocess.Popen(["true"]) as zombie:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        for pid in (os.getpid(), zombie.pid):
            left = f"{pid}\n{home}/postgres/data\n0\n5432\n\n127.0.0.1\n"
            (home / "postgres" / "data" / "postmaster.pid").write_text(left)
            with session(home) as beside_a_stale_file:
                assert ask(beside_a_stale_file, "SELECT number FROM runs") == 42

    killed = f"""if True:
        import os, sys
        sys.path.insert(0, {str(SCRIPTS)!r})
        from pathlib import Path
        from demo_postgres import airflow_database
        with airflow_database(Path({str(home)!r})):
            os._exit(9)
    """
    assert subprocess.run([sys.executable, "-c", killed], check=False).returncode == 9
    assert servers(home) != []
    with session(home) as after_the_crash:
        assert ask(after_the_crash, "SELECT number FROM runs") == 42
    assert servers(home) == []


@pytest.mark.postgres
def test_a_server_that_was_not_finished_is_made_again(demo_postgres: Any, home: Path) -> None:
    (home / "postgres" / "data.half").mkdir(parents=True)
    (home / "postgres" / "data.half" / "PG_VERSION").touch()
    with demo_postgres.airflow_database(home) as session:
        assert ask(session, "SELECT 1") == 1


def test_without_postgresql_airflow_is_on_sqlite_and_the_way_is_told(
    demo_postgres: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo_postgres, "postgres_binaries", lambda: None)
    with demo_postgres.airflow_database(tmp_path) as session:
        assert session == {}
    (line,) = capsys.readouterr().out.splitlines()
    assert "apt-get install -y postgresql" in line


@pytest.mark.postgres
def test_what_began_on_sqlite_stays_there(demo_postgres: Any, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "airflow").mkdir(parents=True)
    (home / "airflow" / "airflow.db").touch()
    with demo_postgres.airflow_database(home) as session:
        assert session == {}
    assert f"remove {home}" in capsys.readouterr().out


def test_root_in_a_folder_of_its_own_is_told(demo_postgres: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if os.geteuid() != 0:
        missing_service("needs root, whom PostgreSQL refuses")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with demo_postgres.airflow_database(closed / "home") as session:
        assert session == {}
    assert "do not be root" in capsys.readouterr().out
