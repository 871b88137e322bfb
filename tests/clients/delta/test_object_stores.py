"""Entries in an object store are put by conditional puts; what such a store refuses is surely not committed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import s3fs

from airflow_dynamic_tables.clients.delta import log as putting
from airflow_dynamic_tables.clients.delta.log import Action, DeltaLog
from airflow_dynamic_tables.clients.delta.snapshots import open_snapshot
from airflow_dynamic_tables.exceptions import CommitRejectedError, CommitUnknownError, UnsupportedError
from tests.support.object_store import BUCKET, ObjectStore, running_bucket

TABLE: list[Action] = [
    {"commitInfo": {"operation": "CREATE TABLE"}},
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
    {
        "metaData": {
            "id": "x",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": '{"type":"struct","fields":[{"name":"n","type":"long","nullable":true,"metadata":{}}]}',
            "partitionColumns": [],
            "configuration": {},
        }
    },
]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with running_bucket() as running:
        monkeypatch.setattr(putting, "_proven", set())
        yield running
        running.serve()


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_an_entry_is_put_once_and_delta_rs_reads_it(store: ObjectStore, scheme: str) -> None:
    log = DeltaLog(f"{scheme}://{BUCKET}/sales/revenue 1")
    assert log.put(0, TABLE)
    assert not log.put(0, [{"commitInfo": {"operation": "LATE"}}])
    assert log.info(0) == {"operation": "CREATE TABLE"}
    snapshot = open_snapshot(log.location)
    assert snapshot is not None
    assert (snapshot.version, snapshot.files, store.url[:7]) == (0, (), "http://")


@pytest.mark.parametrize("is_proven", [True, False])
def test_what_the_store_denies_is_surely_not_committed(store: ObjectStore, is_proven: bool) -> None:
    log = DeltaLog(f"s3://{BUCKET}/denied")
    if is_proven:
        assert log.put(0, TABLE)
    store.refuse("AccessDenied")
    with pytest.raises(
        CommitRejectedError, match=r"may not be written, so nothing was committed: .*give this process the permission"
    ):
        log.put(1, TABLE)


def test_a_lost_answer_is_unknown(store: ObjectStore) -> None:
    log = DeltaLog(f"s3://{BUCKET}/lost")
    assert log.put(0, TABLE)
    store.refuse("connection")
    with pytest.raises(CommitUnknownError, match="It is unknown whether lake/lost/_delta_log/"):
        log.put(1, TABLE)


@pytest.mark.usefixtures("store")
def test_a_store_that_overwrites_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As some do that do not know the condition, and do not say so."""
    put = s3fs.S3FileSystem._pipe_file

    async def unconditional(self: s3fs.S3FileSystem, path: str, value: bytes, mode: str) -> None:
        assert mode == "create"
        await put(self, path, value)

    monkeypatch.setattr(s3fs.S3FileSystem, "_pipe_file", unconditional)
    s3fs.S3FileSystem.clear_instance_cache()
    log = DeltaLog(f"s3://{BUCKET}/careless")
    with pytest.raises(UnsupportedError, match=r"does not know conditional puts \(If-None-Match\).*use format iceberg there"):
        log.put(0, TABLE)
    assert log.versions() == []
