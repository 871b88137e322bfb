"""Compaction of Hive tables: what others did to a table stays theirs, readers see every row once, and nothing comes twice."""

from __future__ import annotations

import copy
import shutil
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.stores import MetastoreStore
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, CommitRejectedError, StageRejectedError, UnsupportedError
from airflow_dynamic_tables.formats.registry import bind
from airflow_dynamic_tables.formats.small_files import Compacted, Limits
from tests.support.benches.hive import hive_bench, uri_of
from tests.support.benches.staging import Bench
from tests.support.faults.report import FaultReport

MANY = 5
LIMITS = Limits(many=MANY)
LOOKS = 10
"""So often, and more, a reader must have looked, or it proves nothing."""
ROWS = {"1": list(range(MANY + 1)), "2": [7]}


@pytest.fixture
def hive(metastore: Metastore, tmp_path: Path) -> Bench:
    bench = hive_bench(metastore, tmp_path)
    bench.scatter(ROWS)
    return bench


@pytest.fixture
def flat(metastore: Metastore, tmp_path: Path) -> Bench:
    """A table without partition keys."""
    bench = hive_bench(metastore, tmp_path)
    bench.partition_keys = ()
    bench.scatter(ROWS)
    return bench


def compact(bench: Bench, before: Callable[[], object] = lambda: None, token: str = "compaction-1") -> Compacted | None:
    (due,) = bench.table.scattered(LIMITS)
    return bench.stage(token).compact(due, LIMITS, lambda: (before(), None)[1])


def partition(bench: Bench, metastore: Metastore, day: str = "1") -> Any:
    return metastore.call("get_partition", bench.path.database, bench.path.name, [day])


def loaded(bench: Bench, metastore: Metastore) -> Any:
    return metastore.call("get_table", bench.path.database, bench.path.name)


def folder(one: Any) -> Path:
    return Path(one.sd.location.removeprefix("file:").replace("///", "/"))


def alter(bench: Bench, metastore: Metastore, **parameters: str) -> None:
    """What another engine writes into a partition."""
    one = partition(bench, metastore)
    one.parameters |= parameters
    metastore.call("alter_partition", bench.path.database, bench.path.name, one)


def as_source(bench: Bench) -> SourceState:
    """What a table of another installation records that reads this one as a Hive table."""
    assert isinstance(bench.store, MetastoreStore)
    source = Source(TableIdentifier("lake", bench.path.database, bench.path.name), "hive")
    state = bind(source, (bench.store,), "v").state
    assert state is not None
    return state


def test_a_table_without_partitions(flat: Bench, metastore: Metastore) -> None:
    versions = flat.table.versions()
    state = flat.table.read().state
    count = flat.table.count(WHOLE_TABLE)
    source = as_source(flat)
    done = compact(flat)
    assert done is not None
    assert (done.files, done.made) == (MANY + 2, 1)
    assert flat.rows() == ROWS
    assert (flat.table.versions(), flat.table.read().state, flat.table.count(WHOLE_TABLE)) == (versions, state, count)
    assert flat.table.undone() == []
    again = as_source(flat)
    assert (again.partitions, again.location, again.identity) == (source.partitions, source.location, source.identity)
    outcome = flat.stage("compaction-1").outcome()
    assert outcome is not None
    assert outcome.number == 0
    assert flat.refresh({"1": [1]}).number == 2
    assert flat.rows() == {"1": [1]}
    assert "dynamic-tables.compaction" not in loaded(flat, metastore).parameters
    assert flat.table.count(WHOLE_TABLE) is not None


def test_one_that_reads_it_as_a_hive_table_sees_nothing_new(hive: Bench) -> None:
    before = as_source(hive)
    compact(hive)
    after = as_source(hive)
    assert before.partitions is not None
    assert replace(after, version=before.version, unsettled=before.unsettled) == before
    assert after.version != before.version
    assert hive.refresh({"1": [1]}, "1").number == 2
    assert as_source(hive).partitions != before.partitions


def test_a_file_that_is_rewritten_in_its_place_is_news(hive: Bench, metastore: Metastore) -> None:
    before = as_source(hive)
    compact(hive)
    (file,) = folder(partition(hive, metastore)).glob("*.parquet")
    pq.write_table(pa.table({"n": pa.array(range(6), pa.int64())}), file)
    assert before.partitions is not None
    after = as_source(hive).partitions
    assert after is not None
    assert after["ds=1"] != before.partitions["ds=1"]
    assert after["ds=2"] == before.partitions["ds=2"]


def test_what_is_told_of_a_partition_and_lies_beside_its_rows_stays(hive: Bench, metastore: Metastore) -> None:
    alter(hive, metastore, told="by somebody", numFiles="6", totalSize="1")
    before = partition(hive, metastore)
    (folder(before) / "_SUCCESS").write_text("whole")
    compact(hive)
    after = partition(hive, metastore)
    assert (folder(after) / "_SUCCESS").read_text() == "whole"
    (file,) = folder(after).glob("*.parquet")
    kept = {name: value for name, value in before.parameters.items() if name not in ("numFiles", "totalSize")}
    assert kept.items() <= {**after.parameters, "transient_lastDdlTime": kept.get("transient_lastDdlTime")}.items()
    assert (after.parameters["numFiles"], after.parameters["totalSize"]) == ("1", str(file.stat().st_size))
    assert (after.createTime, after.sd.cols) == (before.createTime, before.sd.cols)


def _adopted(hive: Bench, metastore: Metastore) -> None:
    one = partition(hive, metastore)
    one.sd.location = one.sd.location.replace("/_versions/", "/moved/")
    folder(one).mkdir(parents=True)
    metastore.call("alter_partition", hive.path.database, hive.path.name, one)


def _elsewhere(hive: Bench, metastore: Metastore) -> None:
    one = partition(hive, metastore)
    one.sd.location = one.sd.location.replace("/data/", "/date/")
    folder(one).mkdir(parents=True)
    metastore.call("alter_partition", hive.path.database, hive.path.name, one)


def _bucketed(hive: Bench, metastore: Metastore) -> None:
    one = partition(hive, metastore)
    one.sd.numBuckets, one.sd.bucketCols = 4, ["n"]
    metastore.call("alter_partition", hive.path.database, hive.path.name, one)


def _text(hive: Bench, metastore: Metastore) -> None:
    one = partition(hive, metastore)
    one.sd.inputFormat = "org.apache.hadoop.mapred.TextInputFormat"
    metastore.call("alter_partition", hive.path.database, hive.path.name, one)


def _uncounted(hive: Bench, metastore: Metastore) -> None:
    alter(hive, metastore, numRows="-1")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_adopted, "no refresh wrote its files"),
        (_elsewhere, "another engine gave it another folder"),
        (_bucketed, "it is bucketed or sorted"),
        (_text, "it is stored in another way than its table"),
        (_uncounted, "another engine took away how many rows it has"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_partition_that_others_changed_is_left_alone(
    hive: Bench, metastore: Metastore, change: Callable[[Bench, Metastore], None], why: str
) -> None:
    change(hive, metastore)
    assert {one.partition["ds"]: one.why_not for one in hive.table.count_files(LIMITS)} == {"1": why, "2": None}
    assert hive.table.scattered(LIMITS) == []
    assert hive.stage("compaction-1").compact(WHOLE_TABLE, LIMITS, lambda: None) is None


def test_a_large_partition_is_left_alone(hive: Bench) -> None:
    limits = Limits(many=MANY, whole=100)
    (one, _) = hive.table.count_files(limits)
    assert one.why_not is not None
    assert "is rewritten completely, which is limited to 100" in one.why_not
    assert hive.table.scattered(limits) == []


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"transactional": "true"}, "is transactional"),
        ({"spark.sql.sources.schema.numBuckets": "4"}, "is bucketed or sorted"),
        ({"spark.sql.sources.provider": "orc"}, "has another format than its definition"),
    ],
)
def test_a_table_that_means_more_than_its_files_is_left_alone(
    hive: Bench, metastore: Metastore, parameters: dict[str, str], why: str
) -> None:
    real = metastore.ask

    def ask(name: str, *arguments: Any) -> Any:
        answer = real(name, *arguments)
        if name == "get_table":
            answer.parameters |= parameters
        return answer

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(metastore, "ask", ask)
        with pytest.raises(UnsupportedError, match=f"{why}.* so it is not compacted"):
            hive.table.count_files(LIMITS)
        with pytest.raises(StageRejectedError, match=why):
            hive.stage("compaction-1").compact(WHOLE_TABLE, LIMITS, lambda: None)


def test_a_table_that_another_engine_put_back_is_left_alone(flat: Bench, metastore: Metastore) -> None:
    before = loaded(flat, metastore)
    flat.refresh({"1": [1]})
    metastore.call("alter_table", flat.path.database, flat.path.name, before)
    with pytest.raises(UnsupportedError, match="was changed by another engine, which took its last version away"):
        flat.table.count_files(LIMITS)
    assert flat.table.scattered(LIMITS) == []


def test_a_folder_that_is_gone_stops_nothing_else(hive: Bench, metastore: Metastore, caplog: pytest.LogCaptureFixture) -> None:
    shutil.rmtree(folder(partition(hive, metastore)))
    assert hive.table.scattered(LIMITS) == []
    assert "stay as they are: file:" in caplog.text


def _more(file: Path) -> None:
    pq.write_table(pa.table({"n": pa.array([100], pa.int64())}), file)


def test_rows_that_others_added_are_no_reason_to_lose_any(hive: Bench, metastore: Metastore) -> None:
    _more(folder(partition(hive, metastore)) / "others.parquet")
    with pytest.raises(StageRejectedError, match="holds 7 rows, and the metastore says 6: another program wrote there"):
        compact(hive)
    assert hive.rows()["1"] == [*ROWS["1"], 100]


def test_who_is_about_to_write_there_is_not_disturbed(hive: Bench, metastore: Metastore) -> None:
    (folder(partition(hive, metastore)) / ".hive-staging").mkdir()
    with pytest.raises(StageRejectedError, match=r"hive-staging is among the files of a partition: another program writes there"):
        compact(hive)


def test_a_file_that_comes_meanwhile_is_not_lost(hive: Bench, metastore: Metastore) -> None:
    """It comes after the rows were read, and before the first look at the table by which it is published."""
    place = folder(partition(hive, metastore))
    staged = hive.stage("compaction-1")
    settled = staged._settled  # type: ignore[attr-defined]  # to come between two of its steps
    calls: list[int] = []

    def settle() -> Any:
        calls.append(1)
        if len(calls) == 2:
            _more(place / "others.parquet")
        return settled()

    staged._settled = settle  # type: ignore[attr-defined]
    (due,) = hive.table.scattered(LIMITS)
    with pytest.raises(CommitRejectedError, match="replaced meanwhile, so nothing is compacted"):
        staged.compact(due, LIMITS, lambda: None)
    assert hive.rows()["1"] == [*ROWS["1"], 100]


def test_cheap_is_to_look_at_what_the_last_version_wrote(hive: Bench) -> None:
    hive.scatter({"2": list(range(MANY + 1))}, "2")
    (cheap,) = hive.table.scattered(LIMITS, is_cheap=True)
    assert str(cheap) == "ds=2"
    (both,) = hive.table.scattered(LIMITS)
    assert len(both.specs) == 2
    hive.stage("compaction-1").compact(cheap, LIMITS, lambda: None)
    assert hive.table.scattered(LIMITS, is_cheap=True) == []


def test_the_small_files_go_a_day_later(hive: Bench, metastore: Metastore) -> None:
    """Readers that began before still read them."""
    old = folder(partition(hive, metastore))
    compact(hive)
    hive.table.delete_orphans(datetime.now(UTC) - timedelta(days=1), list)
    assert len(list(old.glob("*.parquet"))) == MANY + 1
    hive.table.delete_orphans(datetime.now(UTC) + timedelta(days=1), list)
    assert not list(old.glob("*.parquet"))
    assert hive.rows() == ROWS


@pytest.mark.sampled
@pytest.mark.parametrize("was_done", [True, False], ids=["done", "not done"])
@pytest.mark.parametrize("name", ["hive", "flat"])
def test_a_lost_answer_is_looked_up(
    name: str, was_done: bool, request: pytest.FixtureRequest, metastore: Metastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench: Bench = request.getfixturevalue(name)
    call = "alter_partitions" if bench.partition_keys else "alter_table"
    real = getattr(metastore, call)
    lost: list[str] = []

    def lose(*arguments: Any) -> None:
        if was_done or lost:
            real(*arguments)
        if not lost:
            lost.append(call)
            raise CatalogUnavailableError("the metastore does not answer")

    done = compact(bench, lambda: monkeypatch.setattr(metastore, call, lose) if not lost else None)
    assert lost == [call]
    assert done is not None
    assert bench.rows() == ROWS
    assert [version.number for version in bench.table.versions()] == [1]
    assert bench.refresh({"1": [1]}).number == 2


@pytest.mark.parametrize("name", ["hive", "flat"])
@pytest.mark.parametrize("rounds", [2, pytest.param(60, marks=pytest.mark.long)], ids=["short", "long"])
def test_readers_see_every_row_once(name: str, rounds: int, request: pytest.FixtureRequest, fault_report: FaultReport) -> None:
    """Readers look all the time while the same rows are scattered and compacted again and again."""
    bench: Bench = request.getfixturevalue(name)
    stop = threading.Event()
    seen: list[dict[str, list[int]]] = []
    errors: list[BaseException] = []

    def look() -> None:
        try:
            with closing(Metastore(uri_of(bench))) as own:
                reader = copy.copy(bench)
                reader.store = MetastoreStore("lake", own)
                while not stop.wait(0.05):  # or Derby does nothing but answer
                    seen.append(reader.rows())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        number = 0
        while number < rounds or (len(seen) < LOOKS and not errors):
            assert compact(bench, token=f"compaction-{number}") is not None
            bench.scatter(ROWS)
            number += 1
    finally:
        stop.set()
        thread.join()
    assert errors == []
    wrong = [rows for rows in seen if rows != ROWS]
    fault_report.polled(len(seen), len(wrong))
    assert not wrong
