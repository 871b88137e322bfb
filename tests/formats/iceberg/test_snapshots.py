"""What other engines do to a table does not make it forget its versions, nor make files look like nobody's."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE
from airflow_dynamic_tables.core.versions import DEFAULT_RETENTION, Base, Retention
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, CommitRejectedError
from tests.support.benches.staging import NOON, Bench

FEW = Retention(versions_to_keep=2, version_max_age=timedelta(days=1))


@pytest.fixture
def bench(catalog: SqlCatalog) -> Bench:
    return Bench(catalog.stores()[0])


def loaded(catalog: SqlCatalog) -> Table:
    return catalog.iceberg.load_table(("sales", "revenue"))


def append(catalog: SqlCatalog, day: str) -> None:
    """Another engine writes."""
    schema = pa.schema([("ds", pa.string()), ("n", pa.int64())])
    loaded(catalog).append(pa.table({"ds": [day], "n": [0]}, schema))


def forget_all_but_the_last(catalog: SqlCatalog) -> None:
    """Another engine expires snapshots."""
    table = loaded(catalog)
    table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in table.snapshots()[:-1]]).commit()


def test_a_commit_whose_snapshot_another_engine_forgot_is_found_by_its_files(bench: Bench, catalog: SqlCatalog) -> None:
    version = bench.commit(staged := bench.stage("unrecorded", "1"), bench.write(staged, {"1": [1]}))
    bench.refresh({"2": [2]}, "2")
    forget_all_but_the_last(catalog)
    found = bench.stage("unrecorded").outcome()
    assert found is not None
    assert (found.token, found.snapshot, found.number) == ("unrecorded", version.snapshot, 0)
    assert bench.stage("another").outcome() is None
    assert bench.rows() == {"1": [1], "2": [2]}


def test_the_latest_version_stands_when_another_engine_forgot_its_snapshot(bench: Bench, catalog: SqlCatalog) -> None:
    bench.refresh({"1": [1]}, at=NOON)
    version = bench.commit(staged := bench.stage("t2"), bench.write(staged, {"1": [2]}), at=NOON + timedelta(days=1))
    append(catalog, "9")
    forget_all_but_the_last(catalog)
    assert bench.table.current() == version
    assert bench.stage("t2").outcome() == version
    assert bench.table.versions() == [], "its rows cannot be read alone any more"
    following = bench.refresh({"1": [3]}, at=NOON)
    assert (following.number, following.data_timestamp) == (3, version.data_timestamp)


def test_the_newest_version_never_expires_however_much_others_write(bench: Bench, catalog: SqlCatalog) -> None:
    version = bench.refresh({"1": [1]})
    for day in "56789":
        append(catalog, day)
    later = datetime.now(UTC) + timedelta(days=400)
    assert bench.table.expire(FEW, later, tuple) == 0
    assert (bench.table.current(), bench.table.versions()) == (version, [version])
    assert bench.refresh({"1": [2]}).number == 2


def test_a_table_that_another_engine_replaced_still_has_its_versions(bench: Bench, catalog: SqlCatalog) -> None:
    """``CREATE OR REPLACE TABLE`` ends the lineage: its snapshot has no parent. Alone, it may continue any version."""
    version = bench.refresh({"1": [1]})
    loaded(catalog).manage_snapshots().remove_branch("main").commit()
    append(catalog, "9")
    assert loaded(catalog).current_snapshot().parent_snapshot_id is None
    assert bench.table.current() == version
    forget_all_but_the_last(catalog)
    forgotten = bench.table.current()
    assert forgotten is not None
    assert (forgotten.number, forgotten.data_timestamp) == (0, None)
    assert bench.refresh({"1": [2]}).number == 2


def test_versions_that_are_thinned_out_can_all_be_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refresh every half an hour; nobody said how many versions to keep."""
    right = time.time
    began = right() // 3600 * 3600
    for number in range(1, 25):
        monkeypatch.setattr(time, "time", lambda at=began + number * 1800: at)
        bench.refresh({"1": [number]})
    now = datetime.fromtimestamp(began + 25 * 1800, UTC)
    assert bench.table.expire(DEFAULT_RETENTION, now, tuple) == 6
    kept = [version.number for version in bench.table.versions()]
    assert kept == [1, 3, 5, 7, 9, 11, 13, *range(14, 25)]
    bench.table.delete_orphans(now + timedelta(days=30), tuple)
    assert [bench.table.sample(9, number) for number in kept] == [[{"ds": "1", "n": number}] for number in kept]
    assert bench.refresh({"1": [0]}).number == 25


def test_a_table_without_versions_forgets_nothing(bench: Bench, catalog: SqlCatalog) -> None:
    bench.stage("t1").begin()
    with loaded(catalog).update_schema() as update:
        update.union_by_name(pa.schema([("ds", pa.string()), ("n", pa.int64())]))
    append(catalog, "1")
    append(catalog, "2")
    assert bench.table.expire(FEW, datetime.now(UTC) + timedelta(days=400), tuple) == 0


@pytest.mark.parametrize("writes_after", [False, True])
def test_a_table_that_went_back_is_at_the_earlier_version_also_when_the_later_one_expired(
    bench: Bench, catalog: SqlCatalog, writes_after: bool
) -> None:
    first = bench.refresh({"1": [1]}, at=NOON)
    later = bench.refresh({"2": [2]}, "2", at=NOON + timedelta(days=1))
    with loaded(catalog).manage_snapshots() as manage:
        manage.rollback_to_snapshot(int(first.snapshot))
    if writes_after:
        append(catalog, "9")
    loaded(catalog).maintenance.expire_snapshots().by_ids([int(later.snapshot)]).commit()
    assert bench.table.current() == first
    following = bench.refresh({"3": [3]}, "3", at=NOON)
    assert (following.number, following.data_timestamp) == (3, NOON)


def test_nobody_knows_the_version_of_a_table_that_went_back_and_lost_what_came_after(bench: Bench, catalog: SqlCatalog) -> None:
    first = bench.refresh({"1": [1]}, at=NOON)
    later = bench.refresh({"2": [2]}, "2", at=NOON + timedelta(days=1))
    with loaded(catalog).manage_snapshots() as manage:
        manage.rollback_to_snapshot(int(first.snapshot))
    append(catalog, "8")
    between = loaded(catalog).current_snapshot()
    assert between is not None
    append(catalog, "9")
    loaded(catalog).maintenance.expire_snapshots().by_ids([int(later.snapshot), between.snapshot_id]).commit()
    current = bench.table.current()
    assert current is not None
    assert (current.number, current.data_timestamp) == (0, None)


@pytest.mark.parametrize("keeps_parents", [False, True], ids=["by PyIceberg", "by Java"])
@pytest.mark.parametrize("writer", ["a refresh", "others"])
def test_versions_that_a_table_went_back_behind_are_not_its_versions_when_the_one_of_then_expires(
    bench: Bench, catalog: SqlCatalog, keeps_parents: bool, writer: str
) -> None:
    """The later versions are still kept, and the newest one that is older took the place of the expired parent."""
    first = bench.refresh({"1": [1]}, at=NOON)
    later = [bench.refresh({day: [2]}, day, at=NOON + timedelta(days=2)) for day in ("2", "3")]
    zombie = bench.stage("zombie", "4")
    request = replace(bench.request(bench.write(zombie, {"4": [4]})), base=Base(later[-1].token, later[-1].data_timestamp))
    with loaded(catalog).manage_snapshots() as manage:
        manage.rollback_to_snapshot(int(first.snapshot))
    if writer == "others":
        append(catalog, "9")
    else:
        bench.refresh({"5": [5]}, "5", at=NOON + timedelta(days=3))
    expire(catalog, int(first.snapshot), keeps_parents=keeps_parents)
    assert [version.number for version in bench.table.versions()] == ([4] if writer == "a refresh" else [])
    with pytest.raises(CommitRejectedError, match="went back to an earlier version after this refresh was planned"):
        zombie.commit(request, lambda: None)


def expire(catalog: SqlCatalog, snapshot: int, *, keeps_parents: bool) -> None:
    """Let a snapshot expire; Java leaves its id with those that continue it, and PyIceberg does not."""
    table = loaded(catalog)
    parents = {one.snapshot_id: one.parent_snapshot_id for one in table.snapshots()}
    table.maintenance.expire_snapshots().by_ids([snapshot]).commit()
    if keeps_parents:
        file = Path(loaded(catalog).metadata_location.removeprefix("file://"))
        metadata = json.loads(file.read_text())
        for one in metadata["snapshots"]:
            one |= {"parent-snapshot-id": parents[one["snapshot-id"]]}
        file.write_text(json.dumps(metadata))


@pytest.mark.parametrize("part", ["manifest list", "manifest"])
@pytest.mark.parametrize("content", [b"", b"Obj\x01\x04\x16avro.schema", b"\x00" * 300], ids=["empty", "cut short", "zeros"])
def test_a_damaged_file_of_the_metadata_names_the_table(bench: Bench, catalog: SqlCatalog, part: str, content: bytes) -> None:
    bench.refresh({"1": [1]})
    table = loaded(catalog)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    path = snapshot.manifest_list if part == "manifest list" else snapshot.manifests(table.io)[0].manifest_path
    loaded_before = bench.table.load()
    Path(path.removeprefix("file://")).write_bytes(content)
    for one in (loaded_before, bench.table):
        with pytest.raises(CatalogUnavailableError, match=r"Säle.1.*Rev|sales.revenue"):
            one.read()
        with pytest.raises(CatalogUnavailableError, match=r"Säle.1.*Rev|sales.revenue"):
            one.count(WHOLE_TABLE)
    assert bench.table.current() is not None
