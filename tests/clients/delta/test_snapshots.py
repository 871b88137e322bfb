"""What delta-rs and Spark wrote is read as it is: files, partitions, columns, protocol."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_dynamic_tables.clients.delta.log import DeltaLog
from airflow_dynamic_tables.clients.delta.snapshots import Protocol, open_snapshot
from airflow_dynamic_tables.clients.files import exists
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, VersionNotFoundError

DAYS = ["1", "a b/=%", None, "Grüße"]


@pytest.fixture
def location(tmp_path: Path) -> str:
    """A table of delta-rs with two versions."""
    folder = tmp_path / "a table"
    write_deltalake(folder, pa.table({"ds": DAYS, "n": [1, 2, 3, 4]}), partition_by=["ds"])
    write_deltalake(folder, pa.table({"ds": ["1"], "n": [5]}), mode="append")
    return f"file://{folder}"


def test_a_version_has_its_files(location: str) -> None:
    first, latest = open_snapshot(location, 0), open_snapshot(location)
    assert first is not None
    assert latest is not None
    assert (first.version, latest.version) == (0, 1)
    assert sorted(str(file.partition["ds"]) for file in first.files) == sorted(map(str, DAYS))
    assert [file.rows for file in latest.files] == [1] * 5
    assert all(exists(file.uri) and Path(file.uri.removeprefix("file://")).stat().st_size == file.bytes for file in latest.files)
    assert latest.columns == (Column("ds", "string"), Column("n", "bigint"))
    assert (latest.partition_keys, latest.protocol) == (("ds",), Protocol(1, 2))
    assert latest.transaction("nobody") is None


def test_the_paths_of_files_are_those_of_the_log(location: str) -> None:
    """By these, and by nothing else, an entry takes a file out again."""
    snapshot, entry = open_snapshot(location, 0), DeltaLog(location).entry(0)
    assert snapshot is not None
    assert entry is not None
    added = {action["add"]["path"]: action["add"]["partitionValues"] for action in entry if "add" in action}
    assert {file.path: file.partition for file in snapshot.files} == added
    DeltaTable(location).create_checkpoint()
    latest = open_snapshot(location)
    assert latest is not None
    assert added.keys() < {file.path for file in latest.files}


def test_there_is_no_table_where_nobody_made_one(tmp_path: Path) -> None:
    assert open_snapshot(f"file://{tmp_path}/nowhere") is None
    assert not (tmp_path / "nowhere").exists()


def test_a_version_that_is_not_there_is_not_found(location: str) -> None:
    with pytest.raises(VersionNotFoundError, match="Version 7 of the log"):
        open_snapshot(location, 7)


@pytest.mark.parametrize("garbage", ["garbage\n", '{"add": {"path"', "[1]\n"])
def test_a_spoiled_entry_is_said(location: str, garbage: str) -> None:
    Path(DeltaLog(location).uri(2).removeprefix("file://")).write_text(garbage)
    with pytest.raises(CatalogUnavailableError, match="cannot be read"):
        open_snapshot(location)
    with pytest.raises(CatalogUnavailableError, match=r"Entry .*2\.json of the log cannot be read"):
        DeltaLog(location).entry(2)


def test_a_log_that_was_cleaned_up_is_there(location: str) -> None:
    DeltaTable(location).create_checkpoint()
    for version in (0, 1):
        Path(DeltaLog(location).uri(version).removeprefix("file://")).unlink()
    latest = open_snapshot(location)
    assert latest is not None
    assert len(latest.files) == 5
    assert DeltaLog(location).versions() == []
    assert DeltaLog(location).info(0) is None


def test_who_made_an_entry_is_read_from_its_first_line_or_from_wherever_it_is(location: str) -> None:
    log = DeltaLog(location)
    assert [info["operation"] for _, info in log.infos([1, 0, 9])] == ["WRITE", "WRITE"]
    lines = [{"txn": {"appId": "other", "version": 1}}, {"commitInfo": {"operation": "STREAMING UPDATE"}}]
    Path(log.uri(2).removeprefix("file://")).write_text("\n".join(map(json.dumps, lines)))
    assert log.info(2) == {"operation": "STREAMING UPDATE"}
