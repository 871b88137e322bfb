"""When Airflow runs the DAG of a table that updates of assets refresh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, AssetAll, AssetAny, AssetOrTimeSchedule, CronTriggerTimetable
from airflow.serialization.serialized_objects import DagSerialization

from airflow_dynamic_tables.dag_factory import load_dynamic_tables

TABLES = """
defaults: {catalog: lake, database: crm}
sources: [{name: raw.orders, format: parquet, path: /data/orders}]
dynamic_tables:
- {name: customers, freshness: 1 day, query: SELECT 1 AS x}
- name: t
  freshness: 1 day
  on: ON
  query: SELECT 1 AS x
"""
T = "dynamic_table__lake__crm__t"
CUSTOMERS = Asset("dynamic-table://lake/crm/customers", group="dynamic-table")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DYNAMIC_TABLES_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "definitions"
    folder.mkdir()
    return folder


def dags_of(folder: Path, on: str) -> dict[str, DAG]:
    (folder / "tables.yaml").write_text(TABLES.replace("ON", on))
    dags: dict[str, Any] = {}
    load_dynamic_tables(dags, folder)
    return dags


def test_updates_come_beside_the_schedule(folder: Path) -> None:
    timetable = dags_of(folder, "[raw.orders, customers, {name: people}]")[T].timetable
    assert isinstance(timetable, AssetOrTimeSchedule)
    assert isinstance(timetable.timetable, CronTriggerTimetable)
    assert timetable.timetable.expression == "0 0 * * *"
    # By reference: an asset of ours under a name of ours would make that of the producer inactive, and its task fail.
    orders, people = Asset.ref(uri="file:///data/orders"), Asset.ref(name="people")
    assert timetable.asset_condition == AssetAny(orders, CUSTOMERS, people)


def test_updates_may_be_all_that_refreshes_a_table(folder: Path) -> None:
    dag = dags_of(folder, "{all: [customers, s3://Bucket/orders/]}\n  schedule: none")[T]
    assert dag.timetable.asset_condition == AssetAll(CUSTOMERS, Asset.ref(uri="s3://Bucket/orders"))
    assert not isinstance(dag.timetable, AssetOrTimeSchedule)
    assert "`s3://Bucket/orders/`" in str(dag.doc_md)


@pytest.mark.parametrize(
    ("written", "known"),
    [
        ("postgres://db.example/shop/public/orders", "postgres://db.example:5432/shop/public/orders"),
        ("postgresql://db.example/shop//orders", "postgres://db.example:5432/shop/default/orders"),
        ("S3://b/o?b=2&a=1#part", "s3://b/o?a=1&b=2"),
        ("file:/data/o/", "file:///data/o"),
        ("x-mine:a b", "x-mine:a b"),
    ],
)
def test_a_uri_is_brought_into_the_form_of_its_producers_asset(folder: Path, written: str, known: str) -> None:
    timetable = dags_of(folder, f"['{written}']")[T].timetable
    assert timetable.asset_condition == AssetAny(Asset.ref(uri=known)) == AssetAny(Asset.ref(uri=Asset(written).uri))


def test_what_airflow_takes_for_no_asset_is_a_mistake_at_its_table(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    dags = dags_of(folder, "['postgres://db.example/shop']")
    assert T not in dags
    assert "dynamic_table__lake__crm__customers" in dags
    (line,) = (record.getMessage() for record in caplog.records if "postgres" in record.getMessage())
    assert line == (
        f"{folder}/tables.yaml:6:1: lake.crm.t: on: Airflow takes no asset 'postgres://db.example/shop': "
        "URI format postgres:// must contain database, schema, and table names"
    )


def test_the_dag_can_be_serialized(folder: Path) -> None:
    for schedule in ("", "\n  schedule: none"):
        dag = dags_of(folder, "[raw.orders, customers, {name: people}]" + schedule)[T]
        assert DagSerialization.from_dict(DagSerialization.to_dict(dag)).timetable.asset_condition is not None
