"""``docker-compose.yml`` without a Docker engine: the compose specification's own schema, and its commands as processes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyspark
import pytest
import s3fs
import yaml

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.ledger.base import RefreshState
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.composition import FILE, ROOT, Composition, as_json
from tests.support.object_store import ObjectStore, running_object_store
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer
from tests.support.processes import wait_until


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return content


def test_it_follows_the_compose_specification() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_part_of_an_installation_is_there_and_watched(compose: dict[str, Any]) -> None:
    services = compose["services"]
    airflow = {"api-server", "scheduler", "dag-processor", "triggerer"}
    assert airflow | {"init", "postgres", "objects", "spark-master", "spark-worker"} == set(services)
    unwatched = {name for name, service in services.items() if "healthcheck" not in service}
    assert unwatched == {"init"}, "only what ends by itself needs no health check"
    assert {services[name]["command"] for name in airflow} == airflow


def test_whatever_is_waited_for_exists_and_can_become_ready(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        for other, waiting in service.get("depends_on", {}).items():
            assert other in services, f"{name} waits for {other}"
            assert waiting["condition"] == ("service_completed_successfully" if other == "init" else "service_healthy")


def test_volumes_and_configs_are_declared(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert {config["source"] for config in service.get("configs", [])} <= set(compose["configs"])
        mounted = [volume.split(":")[0] for volume in service.get("volumes", [])]
        assert {source for source in mounted if not source.startswith(".")} <= set(compose["volumes"])
        assert all((FILE.parent / source).exists() for source in mounted if source.startswith("."))


def test_nothing_listens_beyond_this_machine_and_images_are_pinned(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert not service["image"].endswith(":latest")
        assert ":" in service["image"], name


def test_the_image_has_the_versions_that_are_tested(compose: dict[str, Any]) -> None:
    dockerfile = compose["x-image"]["build"]["dockerfile_inline"]
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    assert f"FROM apache/airflow:{pins['apache-airflow']}-python{sys.version_info.major}.{sys.version_info.minor}\n" in dockerfile
    (asked,) = re.findall(r"'/opt/project\[.*\]' (.*)", dockerfile)
    assert set(asked.split()) <= set(pins)
    (hadoop,) = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    package = "org.apache.hadoop:hadoop-aws:" + hadoop.stem.rpartition("-")[2]
    assert package in compose["configs"]["spark-defaults"]["content"], "the connector is that of Spark's Hadoop"


def test_the_image_is_built_without_what_make_leaves_behind() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv", ".demo"} <= set(ignored)


@pytest.fixture
def object_store() -> Iterator[ObjectStore]:
    """Stands for the object store of the file, whose program is only in its image."""
    with running_object_store() as store:
        yield store


@pytest.fixture
def composition(postgres: PostgresServer, java: None, object_store: ObjectStore, tmp_path: Path) -> Iterator[Composition]:  # noqa: ARG001
    """All services but the servers of PostgreSQL and of the objects, which run already.

    Spark writes to a folder: its connector to S3 would be downloaded.
    """
    master, api = free_port(), free_port()
    lake = (tmp_path / "warehouse").as_uri()
    places = {
        "@postgres/": f"@127.0.0.1:{postgres.port}/",
        as_json(host="postgres"): as_json(host="127.0.0.1", port=postgres.port),
        "s3a://lake/warehouse": lake,
        "http://objects:8333": object_store.url,
        as_json(host="spark://spark-master", port=7077): as_json(host="spark://127.0.0.1", port=master),
        "spark://spark-master:7077": f"spark://127.0.0.1:{master}",
        "spark-master": "127.0.0.1",
        "7077": str(master),
        "8081": str(free_port()),
        "http://api-server:8080": f"http://127.0.0.1:{api}",
        "127.0.0.1:8080": f"127.0.0.1:{api}",
        "spark.jars.packages ": "spark.not.here ",
    }
    more = {
        "PGHOST": "127.0.0.1",
        "PGPORT": str(postgres.port),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "NO_PROXY": "127.0.0.1,localhost",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(api),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
    }
    composed = Composition(tmp_path, places, more)
    url = postgres.create_database("airflow")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE ROLE airflow LOGIN SUPERUSER")
        connection.execute(composed.config("create-databases").encode())
    try:
        yield composed
    finally:
        composed.stop()


@pytest.mark.large
@pytest.mark.system
@pytest.mark.spark
def test_its_services_refresh_a_table_of_the_demo(composition: Composition, object_store: ObjectStore) -> None:
    assert composition.check_health("postgres").returncode == 0
    made = composition.run("init")
    assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-3000:]
    keys = composition.services["scheduler"]["environment"]
    store = s3fs.S3FileSystem(
        endpoint_url=object_store.url,
        key=keys["AWS_ACCESS_KEY_ID"],
        secret=keys["AWS_SECRET_ACCESS_KEY"],
        skip_instance_cache=True,
    )
    assert store.exists("lake")
    for name in ("spark-master", "api-server", "dag-processor", "triggerer"):
        composition.start(name)
    composition.places = {**composition.places, "8081": str(free_port())}  # the worker's page is in another container
    composition.start("spark-worker")
    composition.start("scheduler")
    dag = "dynamic_table__lake__crm__customer_totals"
    asked = ("airflow", "config", "get-value", "core", "fernet_key")
    keys_used = {composition.inside(name, *asked) for name in ("scheduler", "triggerer")}
    assert len(keys_used) == 1, "the triggerer can decrypt what the scheduler's tasks encrypted"
    wait_until(lambda: dag in composition.inside("scheduler", "airflow", "dags", "list"), dag)
    composition.inside("scheduler", "airflow", "dags", "unpause", dag)
    url = f"postgresql://airflow@127.0.0.1:{composition.more['PGPORT']}/dynamic_tables"
    with open_workspace(WorkspaceSettings(url, composition.places["s3a://lake/warehouse"])) as workspace:
        table = TableIdentifier("lake", "crm", "customer_totals")
        wait_until(lambda: _is_refreshed(workspace, table), f"version of {table}", seconds=400)
        assert sample(workspace, table, 5)


def _is_refreshed(workspace: Workspace, table: TableIdentifier) -> bool:
    return any(refresh.state is RefreshState.SUCCEEDED for refresh in workspace.ledger.list_refreshes(table, 10))
