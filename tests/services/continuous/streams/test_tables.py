"""Streams over tables on a real Spark: each row of the table once, however often worker and job begin again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogPartition, CatalogTable
from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath, TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.formats.small_files import Limits
from airflow_dynamic_tables.jobs.files import create_text
from airflow_dynamic_tables.ledger.base import RefreshState
from airflow_dynamic_tables.services.maintenance.compacting import compact
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.metastore import HiveMetastore
from tests.support.pyarrow_job import write_scattered
from tests.support.streams import TABLE, StreamSite, rows, table_of, turn_until

pytestmark = pytest.mark.spark

Submit = Callable[[RefreshPlan], None]

EVENTS = ObjectPath("streamed", "events")
HIVE = """
- name: hms.streamed.events
  format: hive"""

GROWN = TableIdentifier("lake", "sales", "grown")
MERGED = Limits(small=10**6, target=10**7, most=10**7, many=2)


def last_action(workspace: Workspace) -> RefreshAction:
    done = workspace.ledger.list_refreshes(TABLE)
    return next(refresh.action for refresh in done if refresh.state is RefreshState.SUCCEEDED)


def written(folder: Path, name: str, *ids: int) -> Path:
    """A folder with a file of rows that nobody has touched for a minute."""
    folder.mkdir(parents=True, exist_ok=True)
    half = folder / f".{name}"
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), half)
    minute_ago = half.stat().st_mtime - 60
    os.utime(half, (minute_ago, minute_ago))
    half.rename(folder / name)
    return folder


@pytest.fixture
def hive(site: StreamSite, hive_metastore: HiveMetastore) -> StreamSite:
    catalogs = site.home / "catalogs.yaml"
    catalogs.write_text(
        "catalogs:\n- {name: lake, type: sql}\n"
        f"- {{name: hms, type: hive, connection-params: {{uri: '{hive_metastore.uri}'}}}}\n"
    )
    return replace(site, catalogs=catalogs, source=HIVE, query="SELECT id, ds FROM hms.streamed.events")


@contextmanager
def hive_table(site: StreamSite) -> Iterator[Workspace]:
    with site.open() as workspace:
        catalog = workspace.catalog("hms")
        catalog.create_database(EVENTS.database, CatalogDatabase())
        columns = (Column("id", "bigint"), Column("ds", "string"))
        location = (site.home / "events").as_uri()
        catalog.create_table(EVENTS, CatalogTable(columns, format="parquet", location=location, partition_keys=("ds",)))
        try:
            yield workspace
        finally:
            catalog.drop_database(EVENTS.database, cascade=True)


@pytest.mark.large
def test_a_hive_table_wherever_its_partitions_lie(hive: StreamSite, submit: Submit, caplog: pytest.LogCaptureFixture) -> None:
    with hive_table(hive) as workspace:

        def added(day: str, folder: Path) -> None:
            workspace.catalog("hms").create_partition(EVENTS, CatalogPartition({"ds": day}, f"file://{folder}"))

        first = written(hive.home / "events/ds=1", "a", 1, 2)
        added("1", first)
        with closing(hive.streaming(workspace, submit, lambda: None)) as stream:
            turn_until(stream, lambda: rows(workspace) == [(1, "1"), (2, "1")])
            written(first, "b", 3)
            added("2", written(hive.home / "elsewhere", "a", 4))
            turn_until(stream, lambda: rows(workspace) == [(1, "1"), (2, "1"), (3, "1"), (4, "2")])
        with closing(hive.streaming(workspace, submit, lambda: None)) as stream:
            written(first, "c", 5)
            turn_until(stream, lambda: (5, "1") in rows(workspace))
            assert last_action(workspace) is RefreshAction.ADD, "it went on"
            (first / "a").unlink()
            written(first, "d", 6)
            turn_until(stream, lambda: rows(workspace) == [(3, "1"), (4, "2"), (5, "1"), (6, "1")])
        assert "ds=1/a was read, and is gone" in caplog.text


def grown(workspace: Workspace, site: StreamSite, *numbers: int) -> None:
    """Refresh the table that the stream reads: it has just these numbers then."""
    file = site.home / "grown.yaml"
    file.write_text(f"dynamic_tables: [{{name: {GROWN}, freshness: 1 day, query: SELECT 1 AS x}}]")
    (table,) = load_definitions(file, cache=Cache(None)).tables.values()
    now = datetime.now(UTC)
    run(
        workspace,
        RefreshRequest(table, {}, now, str(now), "test", full_refresh=True),
        lambda plan: write_scattered(plan, numbers),
    )


def appended(workspace: Workspace, number: int) -> None:
    store = next(store for store in workspace.readable("lake").stores() if isinstance(store, IcebergStore))
    table = store.tables.load_table((GROWN.database, GROWN.table))
    file = Path(urlsplit(table.location()).path) / f"data/{number}.parquet"
    pq.write_table(pa.table({"x": pa.array([number], pa.int64())}), file)
    table.add_files([file.as_uri()])


@pytest.mark.large
def test_an_iceberg_table_to_which_rows_are_added(site: StreamSite, submit: Submit, caplog: pytest.LogCaptureFixture) -> None:
    reader = replace(site, source=f" [{{name: {GROWN}, format: iceberg}}]", query="SELECT x AS id FROM lake.sales.grown")
    with site.open() as workspace:
        grown(workspace, site, 1, 2, 3)
        with closing(reader.streaming(workspace, submit, lambda: None)) as stream:
            turn_until(stream, lambda: rows(workspace) == [(1,), (2,), (3,)])
        appended(workspace, 4)
        assert compact(workspace, GROWN, MERGED), "files of old and new rows are one now"
        appended(workspace, 5)
        with closing(reader.streaming(workspace, submit, lambda: None)) as stream:
            turn_until(stream, lambda: rows(workspace) == [(1,), (2,), (3,), (4,), (5,)])
            assert last_action(workspace) is RefreshAction.ADD, "it went on"
            grown(workspace, site, 7, 8)
            turn_until(stream, lambda: rows(workspace) == [(7,), (8,)])
        assert "(overwrite) replaced or removed rows of it" in caplog.text


@pytest.mark.large
def test_a_delta_table_to_which_rows_are_added_into_one_of_ours(
    site: StreamSite, submit: Submit, caplog: pytest.LogCaptureFixture
) -> None:
    """Also while another engine rewrites the files of both."""
    orders = site.home / "orders"
    source = f" [{{name: raw.events, format: delta, path: {orders}}}]"
    reader = replace(site, source=source, query="SELECT id, ds FROM raw.events", format="delta")

    def add(*ids: int, mode: Literal["append", "overwrite"] = "append") -> None:
        added = pa.table({"id": pa.array(ids, pa.int64()), "ds": ["a b"] * len(ids)})
        write_deltalake(orders, added, mode=mode, partition_by=["ds"])

    add(1, 2)
    with site.open() as workspace:
        with closing(reader.streaming(workspace, submit, lambda: None)) as stream:
            turn_until(stream, lambda: rows(workspace) == [(1, "a b"), (2, "a b")])
        add(3)
        DeltaTable(orders).optimize.compact()
        DeltaTable(table_of(workspace).folder() or "").optimize.compact()
        add(4)
        with closing(reader.streaming(workspace, submit, lambda: None)) as stream:
            turn_until(stream, lambda: [row[0] for row in rows(workspace)] == [1, 2, 3, 4])
            assert last_action(workspace) is RefreshAction.ADD, "it went on"
            write_deltalake(table_of(workspace).folder() or "", pa.table({"id": [9], "ds": ["9"]}), mode="append")
            add(5)
            turn_until(stream, lambda: [row[0] for row in rows(workspace)] == [1, 2, 3, 4, 5])
            add(7, 8, mode="overwrite")
            turn_until(stream, lambda: [row[0] for row in rows(workspace)] == [7, 8])
        assert "replaced or removed rows of it" in caplog.text


def test_whole_partitions(site: StreamSite, submit: Submit, caplog: pytest.LogCaptureFixture) -> None:
    """In a folder whose name has to be escaped where Spark writes it into its logs."""
    (site.home / "my lake").mkdir()
    site = replace(site, home=site.home / "my lake")
    source = f"""
- name: raw.events
  format: parquet
  path: {site.home}/events
  schema: id bigint
  partitioned_by: [hour]
  watermark: source
  options:
    partition.time-extractor.timestamp-pattern: 2024-01-01 $hour:00:00
    partition.time-interval: 1 hour"""
    reader = replace(site, source=source, query="SELECT id, hour FROM raw.events")
    events = site.home / "events"

    def hour(name: str, *ids: int) -> Path:
        return written(written(events / f"hour={name}", "a", *ids[:1]), "b", *ids[1:])

    (hour("10", 1, 2) / "_SUCCESS").touch()
    late = hour("11", 3, 4)
    with site.open() as workspace, closing(reader.streaming(workspace, submit, lambda: None)) as stream:
        turn_until(stream, lambda: rows(workspace) == [(1, "10"), (2, "10")])
        (late / "_SUCCESS").touch()
        (made,) = turn_until(stream, lambda: len(rows(workspace)) > 2)
        assert len(rows(workspace)) == 4, "both files in one batch"
        state = workspace.ledger.source_states(made.token)["lake.raw.events"]
        assert set(state.partitions or ()) == {"hour=10", "hour=11"}
        (hour("09", 5, 6) / "_SUCCESS").touch()
        turn_until(stream, lambda: len(rows(workspace)) == 6)
        assert "1 came after their time was over: hour=09 of" in caplog.text
        written(late, "late", 9)
        turn_until(stream, lambda: (9, "11") in rows(workspace))
        assert [row[0] for row in rows(workspace)] == [1, 2, 3, 4, 5, 6, 9]
        assert "partition hour=11 was read before, and has changed since" in caplog.text


def test_what_one_job_wrote_into_the_log_another_one_does_not_write_again(spark: SparkSession, tmp_path: Path) -> None:
    entry = tmp_path / "_spark_metadata/0.compact"
    create_text(spark, entry.as_uri(), "of the first")
    with pytest.raises(FileExistsError, match="is there already"):
        create_text(spark, entry.as_uri(), "of the second")
    assert entry.read_text() == "of the first"
    assert [file.name for file in entry.parent.iterdir() if not file.name.endswith(".crc")] == ["0.compact"]


FOLDER = "{name: raw.events, format: parquet, path: e, partitioned_by: [d], watermark: source, options: OPTIONS}"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (FOLDER.replace("OPTIONS", "{partition.time-interval: 1 day}"), "give the source a 'schema'"),
        ("{name: hms.raw.events, format: jdbc}", "no folder of files"),
    ],
)
def test_what_cannot_be_read_is_refused(site: StreamSite, source: str, message: str) -> None:
    reader = replace(site, source=f" [{source}]", query=f"SELECT 1 AS id FROM {source.split()[1][:-1]}")
    (site.home / "e").mkdir()
    (site.home / "e/d=2024-01-01").mkdir()
    written(site.home / "e/d=2024-01-01", "a", 1)
    with site.open() as workspace, pytest.raises(UnsupportedError, match=message):
        reader.streaming(workspace, lambda _: None, lambda: None).turn(1)
