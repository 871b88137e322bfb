"""The database under catalog and ledger: its schema, its errors, many processes at once."""

from __future__ import annotations

import os
import socket
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import insert, inspect, select, text

from airflow_dynamic_tables.clients.database import engine
from airflow_dynamic_tables.clients.database.engine import VERSION_TABLE, Database
from airflow_dynamic_tables.clients.database.tables import databases, metadata
from airflow_dynamic_tables.exceptions import CatalogError, CatalogUnavailableError, ConfigurationError
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer
from tests.support.processes import at_once

SCHEMA = {
    "dt_alembic_version",
    "dt_databases",
    "dt_dirty_findings",
    "dt_functions",
    "dt_failed_runs",
    "dt_installation",
    "dt_job_refreshes",
    "dt_jobs",
    "dt_late_notices",
    "dt_late_periods",
    "dt_partitions",
    "dt_published_partitions",
    "dt_refreshes",
    "dt_made_partitions",
    "dt_source_partitions",
    "dt_source_states",
    "dt_stages",
    "dt_table_locks",
    "dt_tables",
    "dt_watched_tables",
}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def fresh_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without any table."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/deep/folder/state.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.create_database(f"fresh_{tmp_path.name}".replace("-", "_"))


@pytest.fixture
def database(fresh_url: str) -> Database:
    """A database at the newest schema."""
    made = Database(fresh_url)
    made.upgrade()
    return made


class TestSchema:
    def test_the_migrations_make_what_the_code_expects(self, database: Database) -> None:
        with database.transaction() as connection:
            context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE, "compare_type": True})
            assert compare_metadata(context, metadata) == []
            assert set(inspect(connection).get_table_names()) == SCHEMA

    def test_files_of_migrations_are_named_by_what_alembic_finds_in_them(self) -> None:
        found = ScriptDirectory.from_config(engine._config())
        assert engine._revisions() == {script.revision for script in found.walk_revisions()}
        assert engine._head() == found.get_current_head()

    def test_upgrading_again_changes_nothing(self, database: Database) -> None:
        with database.transaction() as connection:
            connection.execute(insert(databases).values(catalog="lake", name="sales", value={}))
        database.upgrade()
        with database.transaction() as connection:
            assert connection.scalars(select(databases.c.name)).all() == ["sales"]

    def test_eight_processes_upgrade_at_once(self, fresh_url: str) -> None:
        assert at_once(8, lambda _: Database(fresh_url).upgrade()) == [None] * 8

    def test_sqlite_upgrades_itself_on_first_use_by_many(self, tmp_path: Path) -> None:
        def use(_: int) -> object:
            with Database(f"sqlite:///{tmp_path}/state.db").transaction() as connection:
                return connection.execute(select(databases)).all()

        assert at_once(8, use) == [[]] * 8

    def test_a_new_sqlite_file_that_somebody_writes_to_is_waited_for(self, tmp_path: Path) -> None:
        def use() -> object:
            with Database(f"sqlite:///{tmp_path}/state.db").transaction() as connection:
                return connection.execute(select(databases)).all()

        with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as other, ThreadPoolExecutor() as pool:
            other.execute("BEGIN IMMEDIATE")
            using = pool.submit(use)
            with pytest.raises(TimeoutError):
                using.result(timeout=1)
            other.execute("COMMIT")
            assert using.result(timeout=300) == []

    @pytest.mark.postgres
    def test_postgresql_waits_for_a_person(self, postgres: PostgresServer) -> None:
        database = Database(postgres.create_database("behind"))
        message = "127.0.0.1.*/behind is not at the newest schema; run: dynamic-tables db upgrade$"
        with pytest.raises(ConfigurationError, match=message), database.transaction():
            pass
        database.upgrade()
        with database.transaction() as connection:
            assert connection.execute(select(databases)).all() == []

    def test_a_newer_schema_is_left_alone(self, database: Database) -> None:
        with database.transaction() as connection:
            connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
        database.close()
        for call in (database.upgrade, lambda: database.transaction().__enter__()):
            with pytest.raises(ConfigurationError, match="belongs to a newer release of airflow-dynamic-tables"):
                call()

    def test_it_lives_beside_the_tables_of_others(self, fresh_url: str) -> None:
        database = Database(fresh_url)
        with database._raw_engine().begin() as connection:  # as Airflow's metadata database: it has a version table, too
            connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
            connection.execute(text("INSERT INTO alembic_version VALUES ('b12d4f98a91e')"))
            connection.execute(text("CREATE TABLE dag_run (id INTEGER)"))
        database.upgrade()
        with database.transaction() as connection:
            assert connection.scalar(text("SELECT version_num FROM alembic_version")) == "b12d4f98a91e"
            assert set(inspect(connection).get_table_names()) == SCHEMA | {"alembic_version", "dag_run"}


class TestTransactions:
    def test_an_error_undoes_the_whole_body(self, database: Database) -> None:
        def insert_and_stop() -> None:
            with database.transaction() as connection:
                connection.execute(insert(databases).values(catalog="lake", name="sales", value={}))
                raise RuntimeError("stop")

        with pytest.raises(RuntimeError, match="stop"):
            insert_and_stop()
        with database.transaction() as connection:
            assert connection.execute(select(databases)).all() == []

    def test_writers_wait_for_one_another(self, database: Database) -> None:
        def count_up(_: int) -> object:
            for _ in range(10):
                with database.transaction() as connection:
                    row = select(databases.c.value).where(databases.c.name == "sales").with_for_update()
                    number = connection.scalar(row)["n"]
                    connection.execute(databases.update().values(value={"n": number + 1}))
            return None

        with database.transaction() as connection:
            connection.execute(insert(databases).values(catalog="lake", name="sales", value={"n": 0}))
        assert at_once(4, count_up) == [None] * 4
        with database.transaction() as connection:
            assert connection.scalar(select(databases.c.value)) == {"n": 40}

    @pytest.mark.postgres
    def test_a_refusal_is_told_from_a_server_that_is_down(self, postgres: PostgresServer) -> None:
        database = Database(postgres.create_database("refusing"))
        database.upgrade()

        def insert_too_much() -> None:
            with database.transaction() as connection:
                connection.execute(insert(databases).values(catalog="lake", name="x" * 256, value={}))

        with pytest.raises(CatalogError, match=r"/refusing refused: value too long for type character varying\(255\)") as raised:
            insert_too_much()
        assert not isinstance(raised.value, CatalogUnavailableError)

    def test_sqlite_writes_ahead_so_that_readers_of_other_programs_do_not_wait(self, tmp_path: Path) -> None:
        database = Database(f"sqlite:///{tmp_path}/state.db")
        with database.transaction() as connection:
            connection.execute(insert(databases).values(catalog="lake", name="sales", value={}))
            other = sqlite3.connect(tmp_path / "state.db", timeout=0)
            assert other.execute("SELECT count(*) FROM dt_databases").fetchone() == (0,)
            other.close()


class TestUrls:
    @pytest.mark.parametrize("url", ["", "no url", "postgresql//me:secret@host/db", "postgresql://me:secret@host:port/db"])
    def test_a_malformed_one_is_not_repeated(self, url: str) -> None:
        with pytest.raises(ConfigurationError, match="write for example postgresql://user@host/name") as raised:
            Database(url)
        assert "secret" not in str(raised.value)
        assert raised.value.__suppress_context__

    def test_another_database(self) -> None:
        with pytest.raises(ConfigurationError, match="mysql is not supported; the state lives in SQLite or PostgreSQL"):
            Database("mysql+pymysql://host/db")

    @pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:"])
    def test_sqlite_in_memory(self, url: str) -> None:
        with pytest.raises(ConfigurationError, match="write sqlite:///path/to/state"):
            Database(url)

    @pytest.mark.parametrize("driver", ["postgresql", "postgres", "postgresql+psycopg2", "postgresql+asyncpg"])
    def test_postgresql_by_any_name_is_spoken_to_by_psycopg(self, driver: str) -> None:
        assert Database(f"{driver}://me:secret@host:5433/db").url == "postgresql+psycopg://me:secret@host:5433/db"

    def test_a_password_is_never_shown(self) -> None:
        assert str(Database("postgresql://me:secret@host/db")) == "postgresql+psycopg://me:***@host/db"


class TestBrokenDatabases:
    def test_no_server(self) -> None:
        port = free_port()
        for host in ("127.0.0.1", "localhost"):
            database = Database(f"postgresql://me:secret@{host}:{port}/airflow")
            for call in (database.upgrade, lambda database=database: database.transaction().__enter__()):
                with pytest.raises(CatalogUnavailableError, match=f"^Cannot reach .*@{host}:{port}/airflow: .*refused") as raised:
                    call()
                assert str(raised.value).endswith("check that it runs and accepts connections.")
                assert "secret" not in str(raised.value)
                assert "\n" not in str(raised.value)

    @pytest.mark.postgres
    def test_no_such_database(self, postgres: PostgresServer) -> None:
        url = postgres.create_database("existing").replace("existing", "missing")
        with pytest.raises(CatalogUnavailableError, match='database "missing" does not exist; the server runs, so check the '):
            Database(url).upgrade()

    @pytest.mark.postgres
    def test_a_wrong_password(self, postgres: PostgresServer) -> None:
        url = postgres.create_database("guarding").replace("postgres@", f"{postgres.create_user('right')}:secret@")
        with pytest.raises(CatalogUnavailableError) as raised:
            Database(url).upgrade()
        said = 'FATAL: password authentication failed for user "guarded"'
        todo = "the server runs, so check the user, the password and the name of the database."
        assert str(raised.value).endswith(f"{said}; {todo}")
        assert "secret" not in str(raised.value)
        Database(url.replace("secret", "right")).upgrade()

    @pytest.mark.postgres
    def test_a_server_that_breaks_off_is_found_again(self, postgres: PostgresServer) -> None:
        url = postgres.create_database("breaking")
        database, admin = Database(url), Database(url.replace("breaking", "postgres"))
        database.upgrade()
        kill = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'breaking'")

        def be_killed() -> None:
            with database.transaction() as connection:
                with admin._raw_engine().begin() as other:
                    other.execute(kill)
                connection.execute(select(databases))

        with pytest.raises(
            CatalogUnavailableError, match=r"terminating connection.*; check that it runs and accepts connections"
        ):
            be_killed()
        with database.transaction() as connection:
            assert connection.execute(select(databases)).all() == []

    def test_a_file_that_is_no_database(self, tmp_path: Path) -> None:
        (tmp_path / "state.db").write_text("name: sales\n" * 1000)
        with pytest.raises(CatalogError, match=r"state\.db refused: file is not a database; restore the file from a backup, or "):
            Database(f"sqlite:///{tmp_path}/state.db").upgrade()

    def test_a_file_with_a_hole_in_it(self, tmp_path: Path, empty_state: Path) -> None:
        content = bytearray(empty_state.read_bytes())
        content[4096:] = bytes(len(content) - 4096)  # all pages but the first
        (tmp_path / "state.db").write_bytes(content)
        with pytest.raises(CatalogError, match=r"state\.db refused: .* is malformed; restore the file from a backup, or name"):
            Database(f"sqlite:///{tmp_path}/state.db").upgrade()

    def test_a_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(ConfigurationError, match=r"/file/deep: cannot be made \(Not a directory\)"):
            Database(f"sqlite:///{tmp_path}/file/deep/state.db").upgrade()

    def test_a_folder_in_the_place_of_the_file(self, tmp_path: Path) -> None:
        with pytest.raises(CatalogUnavailableError, match="unable to open database file; its folder must exist and be writable"):
            Database(f"sqlite:///{tmp_path}").upgrade()


@pytest.mark.postgres
def test_a_wire_that_falls_silent_is_asked_for_signs_of_life(postgres: PostgresServer) -> None:
    database = Database(postgres.create_database("silent"))
    database.upgrade()
    with database.transaction() as connection:
        driver: Any = connection.connection.driver_connection
        with socket.socket(fileno=os.dup(driver.fileno())) as wire:
            assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
            assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
    assert database.engine.url.query["keepalives_idle"] == "30", "from where PyIceberg takes it for its own engine"
