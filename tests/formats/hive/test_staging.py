"""What only Hive tables promise: replaced folders stay for those who read them, and tables of others can be refreshed."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hive_metastore.ttypes import FieldSchema, Partition, Table

from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.metastore.tables import descriptor
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import StageRejectedError, UnsupportedError
from tests.support.benches.staging import COLUMNS, Bench

DAY = timedelta(days=1)


def data_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.parquet"))


@pytest.mark.large
def test_replaced_folders_stay_for_those_who_read_them(hive: Bench, tmp_path: Path) -> None:
    hive.refresh({"1": [1], "2": [2]})
    hive.refresh({"1": [10]}, "1")
    living = hive.stage("living", "1")
    hive.write(living, {"1": [100]})
    for file in data_files(tmp_path):
        os.utime(file, (1, 1))
    now = datetime.now(UTC)
    assert hive.table.delete_orphans(now - DAY, lambda: [living.begin()]).files == 0, "replaced just now"
    assert len(data_files(tmp_path)) == 4
    assert hive.table.delete_orphans(now + DAY, lambda: [living.begin()]).files > 0
    assert len(data_files(tmp_path)) == 3
    assert hive.rows() == {"1": [10], "2": [2]}
    hive.table.delete_orphans(now + DAY, list)
    assert len(data_files(tmp_path)) == 2
    assert hive.refresh({"2": [20]}, "2").number == 3
    assert hive.rows() == {"1": [10], "2": [20]}


def test_a_table_made_by_others_is_refreshed_where_it_is(hive: Bench, metastore: Metastore, tmp_path: Path) -> None:
    place = tmp_path / "theirs"
    for day, rows in (("1", [1]), ("2", [2, 2])):
        (place / f"day {day}").mkdir(parents=True)
        pq.write_table(pa.table({"n": rows}), place / f"day {day}" / "part.parquet")
    storage = descriptor("parquet", f"file://{place}")
    storage.cols = [FieldSchema("n", "bigint", None)]
    keys = [FieldSchema("ds", "string", None)]
    names = {"dbName": hive.path.database, "tableName": hive.path.name}
    table = Table(**names, sd=storage, partitionKeys=keys, parameters={"EXTERNAL": "TRUE"}, tableType="EXTERNAL_TABLE")
    metastore.call("create_table", table)
    for day in ("1", "2"):
        one = Partition([day], **names, sd=descriptor("parquet", f"file://{place}/day {day}"), parameters={})
        one.sd.cols = storage.cols
        metastore.call("add_partition", one)
    hive.refresh({"2": [20], "3": [30]}, "2", "3")
    assert hive.rows() == {"1": [1], "2": [20], "3": [30]}
    content = hive.table.read()
    assert [(part.base_path is None, dict(part.values)) for part in content.parts] == [(False, {}), (True, {"ds": "1"})]
    assert len(content.files) == 3
    assert hive.refresh({"1": [9]}).number == 2
    assert hive.rows() == {"1": [9]}
    assert len(data_files(place)) == 2 + 3, "their files are theirs"


def test_another_format_is_refused(hive: Bench) -> None:
    hive.refresh({"1": [1]})
    other = Bench(hive.store, hive.path, hive_format="orc")
    with pytest.raises(StageRejectedError, match="is a table of format parquet, its definition now says orc"):
        other.refresh({"1": [2]})


def test_partition_keys_need_values_for_a_guard(hive: Bench) -> None:
    hive.columns = (Column("ds", "boolean"), COLUMNS[1])
    with pytest.raises(UnsupportedError, match="whose partition keys are all boolean"):
        hive.refresh({"true": [1]})
