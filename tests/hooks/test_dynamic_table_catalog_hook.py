"""A connection becomes a workspace; without one there is the embedded default."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogFunction
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    ConfigurationError,
    InvalidPartitionError,
    NotEmptyError,
    TableAlreadyExistsError,
)
from airflow_dynamic_tables.hooks.dynamic_table_catalog import DynamicTableCatalogHook
from airflow_dynamic_tables.services.catalogs import ObjectSummary
from airflow_dynamic_tables.services.ctas.wanted import CtasOutcome, Purpose


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    for name in ("DATABASE_URL", "WAREHOUSE", "CATALOGS"):
        monkeypatch.delenv(f"DYNAMIC_TABLES_{name}", raising=False)


def connect(monkeypatch: pytest.MonkeyPatch, conn_id: str, **fields: Any) -> DynamicTableCatalogHook:
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({"conn_type": "dynamic_tables", **fields}))
    return DynamicTableCatalogHook(conn_id)


def test_without_a_connection_the_state_is_embedded(tmp_path: Path) -> None:
    hook = DynamicTableCatalogHook()
    assert hook.settings().database_url == f"sqlite:///{tmp_path}/dynamic_tables/state.db"
    assert hook.test_connection() == (True, "Ledger and catalogs answer.")


def test_the_fields_of_the_form_name_a_postgresql_database(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"host": "db", "port": 5433, "login": "me", "password": "p@ss/word", "schema": "state"}
    settings = connect(monkeypatch, "some", **fields, extra={"warehouse": "s3://bucket/warehouse/"}).settings()
    assert settings.database_url == "postgresql://me:p%40ss%2Fword@db:5433/state"
    assert settings.warehouse == "s3://bucket/warehouse"


def test_what_the_connection_leaves_out_is_embedded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = connect(monkeypatch, "some", host="db", schema="state").settings()
    assert (settings.database_url, settings.warehouse) == ("postgresql://db/state", f"file://{tmp_path}/dynamic_tables/warehouse")


def test_a_database_url_replaces_the_fields(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    extra = {"database_url": "sqlite:////tmp/other.db", "catalogs_file": str(tmp_path / "other.yaml")}
    hook = connect(monkeypatch, "some", host="db", schema="state", extra=extra)
    assert hook.settings().database_url == "sqlite:////tmp/other.db"
    assert hook.settings().catalogs_file == tmp_path / "other.yaml"
    beside = DynamicTableCatalogHook("some", tmp_path / "catalogs.yaml")
    assert beside.settings().catalogs_file == tmp_path / "catalogs.yaml"


def test_a_host_without_database_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="'some' has a host but no database; put its name into 'schema'"):
        connect(monkeypatch, "some", host="db").settings()


def test_a_named_connection_must_exist() -> None:
    with pytest.raises(ConfigurationError, match="Connection 'nowhere' does not exist; create it with type 'dynamic_tables'"):
        DynamicTableCatalogHook("nowhere").get_conn()


def test_an_unreachable_database_is_one_sentence_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        hook = connect(monkeypatch, "some", host="127.0.0.1", port=port, login="me", password="secret!", schema="state")
        answered, message = hook.test_connection()
    assert not answered
    assert message.startswith("Cannot reach postgresql+psycopg://me:***@127.0.0.1")
    assert "\n" not in message
    assert "secret!" not in message


def test_catalogs_of_the_file_are_found_by_airflow_connections(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "catalogs.yaml").write_text("catalogs: [{name: near, type: memory}, {name: far, conn-id: far_db}]")
    monkeypatch.setenv("AIRFLOW_CONN_FAR_DB", "postgres://me:secret@127.0.0.1:1/db")
    with DynamicTableCatalogHook(catalogs_file=tmp_path / "catalogs.yaml").get_conn() as workspace:
        assert workspace.catalogs.get("near").list_databases() == ["default"]
        with pytest.raises(CatalogUnavailableError, match=r"me:\*\*\*@127.0.0.1:1/db"):
            workspace.catalogs.get("far")
    (tmp_path / "catalogs.yaml").write_text("catalogs: [{name: far, conn-id: nobody}]")
    with (
        DynamicTableCatalogHook(catalogs_file=tmp_path / "catalogs.yaml").get_conn() as workspace,
        pytest.raises(ConfigurationError, match="catalog far: Connection 'nobody' does not exist"),
    ):
        workspace.catalogs.get("far")


def test_a_wrong_catalogs_file_is_reported(tmp_path: Path) -> None:
    answered, message = DynamicTableCatalogHook(catalogs_file=tmp_path / "catalogs.yaml").test_connection()
    assert not answered
    assert message.startswith(f"{tmp_path}/catalogs.yaml:1:1: cannot be read")


def test_catalogs_are_looked_at_and_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "catalogs.yaml").write_text("catalogs: [{name: lake, type: sql, default-database: sales}]")
    hook = connect(monkeypatch, "some", extra={"catalogs_file": str(tmp_path / "catalogs.yaml")})
    assert [(found.name, found.type, found.writable) for found in hook.catalogs()] == [("lake", "sql", True)]
    assert hook.create_database("raw", CatalogDatabase("As it came")) == "lake.raw"
    assert [found.identifier for found in hook.databases()] == ["lake.raw", "lake.sales"]
    assert hook.create_view("one", "SELECT 1 AS one", "One") == "lake.sales.one"
    assert hook.tables() == hook.views("sales") == [ObjectSummary("lake.sales.one", "view")]
    assert hook.create_function("raw.F", CatalogFunction("com.example.F")) == "lake.raw.F"
    assert hook.functions("raw") == [ObjectSummary("lake.raw.f", "function")]
    assert hook.describe("raw.f").value == CatalogFunction("com.example.F")
    with pytest.raises(InvalidPartitionError, match="is not partitioned"):
        hook.partitions("one", {"ds": "2024-01-01"})
    with pytest.raises(NotEmptyError):
        hook.drop_database("raw")
    hook.drop_function("raw.f")
    hook.drop_view("one")
    hook.drop_database("raw")
    assert [found.identifier for found in hook.databases("lake")] == ["lake.sales"]
    assert hook.tables("lake.sales") == []


@pytest.mark.large
@pytest.mark.spark
def test_a_table_is_made_of_a_query_by_a_real_spark() -> None:
    hook = DynamicTableCatalogHook()
    made = hook.create_table_as("shop.figures", "SELECT id AS x FROM range(3)", "local[1]", comment="three")
    assert (str(made.table), made.outcome, made.version, made.rows) == ("default.shop.figures", CtasOutcome.CREATED, 1, 3)
    there = hook.create_table_as("shop.figures", "SELECT 1 AS x", purpose=Purpose.CREATE_IF_NOT_EXISTS)
    assert there.outcome is CtasOutcome.EXISTS
    with pytest.raises(TableAlreadyExistsError, match=r"default.shop.figures exists already, a table; replace it, or choose"):
        hook.create_table_as("shop.figures", "SELECT 1 AS x")
    described = hook.describe("shop.figures")
    assert (described.kind, described.value.comment) == ("table", "three")
