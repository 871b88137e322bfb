"""Secrets are planted in every place that may hold one, and looked for in every place that others may read.

What Airflow keeps of its own is looked at in ``tests/system/test_airflow_secrets.py``.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import MetaData, create_engine, select

from airflow_dynamic_tables.cli.main import main
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Conventions, Definitions
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConfigurationError, JobFailedError
from airflow_dynamic_tables.runners.spark_submit import spark_submit_command, submit_failure
from airflow_dynamic_tables.services.names import names_scope
from airflow_dynamic_tables.services.refresh.planning import job_environment
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.postgres import PostgresServer
from tests.support.pyarrow_job import write_days, write_numbers

PLANTED = "S3CR3T"
"""What every planted secret begins with."""

CATALOGS = f"""
catalogs:
  - {{name: lake, type: sql, is-default: true, connection-params: {{url: 'sqlite:///lake.db', warehouse: lake}}}}
  - {{name: shop, type: jdbc, connection-params: {{url: 'SHOP&password=${{SHOP_PASSWORD}}&passfile=/{PLANTED}-2'}}}}
  - {{name: jdbc, type: jdbc, connection-params: {{url: 'jdbc:SHOP&user=postgres&password={PLANTED}-3'}}}}
  - {{name: named, type: jdbc, conn-id: shop_db}}
  - {{name: gone, type: jdbc, connection-params: {{url: 'postgresql://127.0.0.1:1/gone?user=me&password={PLANTED}-5'}}}}
  - {{name: keyed, type: jdbc, connection-params: {{url: 'postgresql://127.0.0.1:1/x?sslpassword={PLANTED}-6'}}}}
"""
TABLES = f"""
defaults:
  spark:
    conf: {{spark.hadoop.fs.s3a.secret.key: {PLANTED}-7, spark.app.x: 's3a://KEY:{PLANTED}-8@bucket'}}
    env_vars: {{MY_DB_PASSWORD: {PLANTED}-9}}
sources:
  - {{name: shop.SHOPDB.orders, format: jdbc}}
  - {{name: jdbc.SHOPDB.orders, format: jdbc}}
  - {{name: named.SHOPDB.orders, format: jdbc}}
  - {{name: gone.gone.orders, format: jdbc}}
  - {{name: keyed.x.orders, format: jdbc}}
dynamic_tables:
  - name: totals
    freshness: 1 day
    query: SELECT a.x FROM shop.SHOPDB.orders a, jdbc.SHOPDB.orders b, named.SHOPDB.orders c
  - {{name: lost, freshness: 1 day, query: SELECT x FROM gone.gone.orders}}
  - {{name: keys, freshness: 1 day, query: SELECT x FROM keyed.x.orders}}
"""
NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def home(tmp_path: Path, postgres: PostgresServer, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with definitions and catalogs full of secrets, of which nothing else may have one."""
    name = f"shop_{abs(hash(request.node.name))}"
    shop = postgres.create_database(name)
    with psycopg.connect(shop) as connection:
        connection.execute("CREATE TABLE orders (x bigint)")
    monkeypatch.setenv("SHOP_PASSWORD", f"{PLANTED}-1")
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_DB", shop.replace("postgres@", f"postgres:{PLANTED}-4@"))
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "catalogs.yaml").write_text(CATALOGS.replace("SHOP&", f"{shop}?"))
    (tmp_path / "dags" / "tables.yaml").write_text(TABLES.replace("SHOPDB", name))
    return tmp_path


@pytest.fixture
def workspace(home: Path) -> Iterator[Workspace]:
    with open_workspace(embedded_settings({"AIRFLOW_HOME": str(home / "airflow")}, home / "dags" / "catalogs.yaml")) as opened:
        yield opened


@pytest.fixture
def definitions(home: Path, workspace: Workspace) -> Definitions:
    return load_definitions(
        home / "dags" / "tables.yaml", conventions=Conventions(names_scope({}, workspace.settings.catalogs_file))
    )


def request_of(definitions: Definitions, name: str, token: str) -> RefreshRequest:
    table = definitions.table(name)
    assert table is not None
    return RefreshRequest(table, definitions.sources, NOON, token=token, owner="a test")


def leaks(home: Path) -> list[str]:
    """Files, other than those that secrets were planted in, and rows of state that hold one."""
    files = [path for path in home.rglob("*") if path.is_file() and home / "dags" not in path.parents]
    found = [str(path) for path in files if PLANTED.encode() in path.read_bytes()]
    for path in files:
        if path.suffix == ".db":
            engine = create_engine(f"sqlite:///{path}")
            metadata = MetaData()
            metadata.reflect(engine)
            with engine.connect() as connection:
                rows = [str(row) for table in metadata.tables.values() for row in connection.execute(select(table))]
            found += [row for row in rows if PLANTED in row]
            engine.dispose()
    return found


@pytest.mark.postgres
def test_a_refresh_leaves_none(
    home: Path, workspace: Workspace, definitions: Definitions, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    seen: list[str] = []

    def job(plan: RefreshPlan) -> None:
        assert leaks(home) == []  # while the plan is there, too
        environment = job_environment(workspace, plan)
        assert sorted(environment.values()) == [f"{PLANTED}-1", f"{PLANTED}-3", f"{PLANTED}-4"]
        assert [source.options["user"] for source in plan.sources] == ["postgres"] * 3
        settings = SparkSettings()  # what of its conf Spark shows itself is in the docs
        command = spark_submit_command("spark-submit", plan.plan_location, settings, "local[1]")
        seen.extend([*command, plan.to_json(), repr(plan), str(workspace.settings.catalogs_file)])
        write_numbers(plan)

    assert isinstance(run(workspace, request_of(definitions, "totals", "t-1"), job), Version)
    assert seen
    assert PLANTED not in "\n".join(seen)
    assert PLANTED not in caplog.text
    assert leaks(home) == []


@pytest.mark.postgres
def test_what_fails_tells_none(
    home: Path, workspace: Workspace, definitions: Definitions, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    with pytest.raises(CatalogUnavailableError, match="Cannot read jdbc:postgresql://127") as unavailable:
        run(workspace, request_of(definitions, "lost", "l-1"), write_numbers)
    with pytest.raises(ConfigurationError, match="the parameter 'sslpassword', which would stand in every plan") as keyed:
        run(workspace, request_of(definitions, "keys", "k-1"), write_numbers)
    said += [str(unavailable.value), str(keyed.value)]

    spoken = (
        f"url postgresql://me:{PLANTED}-10@h/x refused",
        f"Error: fs.s3a.secret.key={PLANTED}-11",
        f"sslpassword={PLANTED}-12",
    )
    for number, error in enumerate((submit_failure(spoken, 1), OSError(spoken[0]), ValueError(spoken[2]))):

        def job(_: RefreshPlan, raised: Exception = error) -> None:
            raise raised

        with pytest.raises(type(error)):
            run(workspace, request_of(definitions, "totals", f"f-{number}"), job)
        if isinstance(error, JobFailedError):
            said += [str(error), error.log_tail]
    assert PLANTED not in "\n".join(said)
    assert PLANTED not in caplog.text
    assert leaks(home) == []
    history = [refresh.error or "" for refresh in workspace.ledger.list_refreshes(workspace.catalogs.resolve("totals"))]
    assert min(history).startswith("spark-submit ended with code 1: Error: fs.s3a.secret.key=***")


@pytest.mark.large
@pytest.mark.postgres
def test_no_command_shows_one(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv("DYNAMIC_TABLES_DEFINITIONS", str(home / "dags" / "tables.yaml"))
    level = logging.getLogger().level
    handlers = logging.getLogger().handlers[:]
    url = f"postgresql://127.0.0.1:1/x?user=a&password={PLANTED}-13&sslpassword={PLANTED}-14"
    for command in (
        ("create",),
        ("describe", "totals", "-o", "json"),
        ("show", "totals", "-o", "json"),
        ("list", "-o", "json"),
        ("plan", "totals", "-o", "json"),
        ("catalogs", "-o", "json"),
        ("databases", "gone"),
        ("databases", "gone", "--debug"),
        ("databases", "keyed", "--debug"),
        ("history", "totals", "--database-url", url),
        ("history", "totals", "--database-url", url, "--debug"),
        ("list", "--database-url", f"nonsense://me:{PLANTED}-15@x", "--debug"),
    ):
        main(command)
    logging.getLogger().handlers[:] = handlers
    logging.getLogger().setLevel(level)
    printed = capsys.readouterr()
    assert PLANTED not in printed.out + printed.err
    assert printed.err.count("Cannot reach postgresql+psycopg://a:***@127.0.0.1:1/x?sslpassword=***") >= 2
    assert json.dumps({"MY_DB_PASSWORD": "***"})[1:-1] in printed.out, "describe shows the definition, without it"
    assert leaks(home) == []


@pytest.mark.parametrize(("access", "file", "folder"), [("owner", 0o600, 0o700), ("umask", 0o644, 0o755), ("", 0o600, 0o700)])
def test_state_and_plans_are_their_owners_unless_the_umask_is_asked_for(
    tmp_path: Path, access: str, file: int, folder: int
) -> None:
    definition = tmp_path / "one.yaml"
    definition.write_text("dynamic_tables: [{name: numbers, freshness: 1 day, query: SELECT 1 AS x}]")
    definitions = load_definitions(definition)
    settings = embedded_settings(
        {
            "AIRFLOW_HOME": str(tmp_path),
            "DYNAMIC_TABLES_WAREHOUSE": f"file://{tmp_path}/warehouse",
            "DYNAMIC_TABLES_FILE_ACCESS": access,
        }
    )
    modes: dict[str, int] = {}

    def job(plan: RefreshPlan) -> None:
        modes["plan"] = _mode(Path(plan.plan_location.removeprefix("file://")))
        write_numbers(plan)

    with open_workspace(settings) as workspace:
        run(workspace, request_of(definitions, "numbers", "n-1"), job)
        state = tmp_path / "dynamic_tables"
        modes |= {path.name: _mode(path) for path in state.glob("state.db*")}
    assert {*modes.values()} == {file}
    assert {"plan", "state.db"} <= modes.keys()
    assert _mode(state) == folder
    (data,) = (tmp_path / "warehouse").rglob("part-0.parquet")
    assert (_mode(data), _mode(data.parent)) == (0o644, 0o755), "engines of other users read the table"


@pytest.mark.postgres
@pytest.mark.parametrize("warehouse", ["", "warehouse"], ids=["embedded", "elsewhere"])
def test_rows_of_a_server_that_are_staged_as_files_are_their_owners(
    tmp_path: Path, postgres: PostgresServer, postgres_state: Callable[[], str], warehouse: str
) -> None:
    """The state is in PostgreSQL, so that no file of SQLite makes the folder, and the umask closes nothing."""
    url = postgres.create_database(f"shop_{uuid4().hex[:8]}")
    name = url.rpartition("/")[2]
    (tmp_path / "catalogs.yaml").write_text(f"catalogs: [{{name: shop, type: jdbc, connection-params: {{url: '{url}'}}}}]")
    definition = tmp_path / "one.yaml"
    query = "SELECT '1' AS ds, 1 AS n"
    definition.write_text(f'dynamic_tables: [{{name: shop.{name}.visits, format: jdbc, freshness: 1 day, query: "{query}"}}]')
    environ = {"AIRFLOW_HOME": str(tmp_path), "DYNAMIC_TABLES_DATABASE_URL": postgres_state()}
    if warehouse:
        environ["DYNAMIC_TABLES_WAREHOUSE"] = f"file://{tmp_path}/{warehouse}"
    settings = embedded_settings(environ, tmp_path / "catalogs.yaml")
    seen: list[str] = []

    def job(plan: RefreshPlan) -> None:
        rows = Path(plan.data_location.removeprefix("file://"), "part-0.parquet")
        rows.parent.mkdir()
        rows.touch()
        seen.extend(_open_to_others(tmp_path))
        write_days(plan, {"1": [1]})

    before = os.umask(0)
    try:
        with open_workspace(settings) as workspace:
            run(workspace, request_of(load_definitions(definition), f"shop.{name}.visits", "n-1"), job)
            assert workspace.existing_table(TableIdentifier("shop", name, "visits")).sample(9) == [{"ds": "1", "n": 1}]
        seen.extend(_open_to_others(tmp_path))
    finally:
        os.umask(before)
    assert not seen, "other users reach these"


def _open_to_others(folder: Path) -> list[str]:
    """What others can reach below a folder."""
    found = []
    for path in folder.iterdir():
        if path.is_dir() and _mode(path) & 0o077:
            found += _open_to_others(path)
        elif not path.is_dir() and path.suffix != ".yaml":
            found.append(str(path))
    return found


def test_another_access_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="DYNAMIC_TABLES_FILE_ACCESS is 'all'; write owner or umask"):
        embedded_settings({"DYNAMIC_TABLES_FILE_ACCESS": "all"})


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
