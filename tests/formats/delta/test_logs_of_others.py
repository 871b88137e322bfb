"""What others leave in the log of a table of ours: restores, forgotten tokens, checkpoints of all kinds, half an entry."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_dynamic_tables.clients.delta.log import DeltaLog
from airflow_dynamic_tables.exceptions import CatalogUnavailableError
from airflow_dynamic_tables.formats.delta.entries import APPLICATION, FRESH, KEEPS_TOKENS
from tests.support.benches.delta import root
from tests.support.benches.staging import NOON, Bench
from tests.support.delta_tables import commit_file, replay, require, rewrite, write_checkpoint_in_text

DAY = timedelta(days=1)


def rows(bench: Bench) -> list[int]:
    """What delta-rs reads."""
    return sorted(DeltaTable(root(bench)).to_pyarrow_table().column("n").to_pylist())


def refresh_daily(bench: Bench, times: int) -> None:
    """So many versions, each with its number less one as its only row, fresh up to noon a day after the one before."""
    for number in range(times):
        bench.refresh({"1": [number]}, at=NOON + number * DAY)


def stamp(bench: Bench, entry: int, at: datetime) -> None:
    """Have an entry of the log changed last at a time."""
    os.utime(commit_file(root(bench), entry), (at.timestamp(), at.timestamp()))


def forget_all_but_last(bench: Bench) -> None:
    """Write a checkpoint, and delete the entries before the last one."""
    DeltaTable(root(bench)).create_checkpoint()
    for entry in range(DeltaTable(root(bench)).version()):
        commit_file(root(bench), entry).unlink()


@pytest.mark.parametrize("engine", ["delta-rs", "Spark"])
def test_after_a_restore_to_a_time_the_version_of_then_is_current(bench: Bench, engine: str) -> None:
    """Its entry does not say to which version it went back: the files that the table has then do."""
    refresh_daily(bench, 4)
    for entry in range(4):
        stamp(bench, entry, NOON + entry * DAY)
    DeltaTable(root(bench)).restore(NOON + DAY + timedelta(hours=1))
    if engine == "Spark":
        said = {"version": None, "timestamp": "2024-03-02 13:00:00.0"}
        rewrite(root(bench), 4, lambda action: action.get("commitInfo", {}).update(operationParameters=said))
    current = bench.table.current()
    assert current is not None
    assert (current.number, current.data_timestamp) == (2, NOON + DAY)
    assert [version.number for version in bench.table.versions()] == [1, 2]
    assert bench.rows() == {"1": [1]}
    again = bench.refresh({"1": [9]}, at=NOON + DAY + timedelta(hours=2))
    assert (again.number, again.data_timestamp) == (5, NOON + DAY + timedelta(hours=2))
    assert [version.number for version in bench.table.versions()] == [1, 2, 5]


def test_after_a_restore_to_a_time_rows_of_others_are_told_from_ours(bench: Bench) -> None:
    refresh_daily(bench, 2)
    write_deltalake(root(bench), pa.table({"ds": ["2"], "n": [7]}), mode="append")
    DeltaTable(root(bench)).delete("ds = '2'")
    refresh_daily(bench, 1)
    for entry in range(5):
        stamp(bench, entry, NOON + entry * DAY)
    DeltaTable(root(bench)).restore(NOON + 2 * DAY)
    assert rows(bench) == [1, 7]
    assert [version.number for version in bench.table.versions()] == [1, 2]
    DeltaTable(root(bench)).restore(4)
    assert [version.number for version in bench.table.versions()] == [1, 2, 3]


def test_of_a_restore_that_nobody_can_tell_the_table_is_not_taken_for_fresh(bench: Bench) -> None:
    """The version that is current again was forgotten; the latest one is noted in the table, and is not the one."""
    refresh_daily(bench, 3)
    DeltaTable(root(bench)).restore(1)
    DeltaTable(root(bench)).create_checkpoint()
    for entry in range(3):
        commit_file(root(bench), entry).unlink()
    current = bench.table.current()
    assert current is not None
    assert (current.number, current.data_timestamp) == (0, None)
    again = bench.refresh({"1": [9]}, at=NOON + timedelta(hours=1))
    assert (again.number, again.data_timestamp) == (4, NOON + timedelta(hours=1))


@pytest.mark.parametrize("rewrites", [False, True])
def test_a_version_that_a_restore_took_back_stays_so_when_the_entry_of_the_restore_is_gone(bench: Bench, rewrites: bool) -> None:
    """The number of the latest version is noted in the table for ever; the files say whether the table has its rows."""
    refresh_daily(bench, 3)
    DeltaTable(root(bench)).restore(0)
    for number in (7, 8):
        write_deltalake(root(bench), pa.table({"ds": ["9"], "n": [number]}), mode="append")
    if rewrites:
        DeltaTable(root(bench)).optimize.compact()
    forget_all_but_last(bench)
    current = bench.table.current()
    assert current is not None
    assert (current.number, current.token, current.data_timestamp) == (0, "", None)
    again = bench.refresh({"1": [9]}, "1", at=NOON + timedelta(hours=1))
    assert (again.number, again.data_timestamp) == (4, NOON + timedelta(hours=1))


def test_a_version_whose_entry_is_gone_is_current_while_the_table_has_a_file_of_it(bench: Bench) -> None:
    refresh_daily(bench, 2)
    latest = bench.table.current()
    assert latest is not None
    write_deltalake(root(bench), pa.table({"ds": ["9"], "n": [7]}), mode="append")
    forget_all_but_last(bench)
    current = bench.table.current()
    assert current is not None
    assert (current.number, current.token, current.data_timestamp) == (2, latest.token, NOON + DAY)


def test_a_restore_to_before_the_first_version_is_a_table_without_one(bench: Bench) -> None:
    bench.stage("dead").fence()
    refresh_daily(bench, 2)
    DeltaTable(root(bench)).restore(0, protocol_downgrade_allowed=True)
    assert (bench.table.current(), bench.table.versions()) == (None, [])
    assert bench.refresh({"1": [9]}, at=NOON).number == 3
    assert rows(bench) == [9]


@pytest.mark.parametrize("spelled", ["interval 0 seconds", "interval 1 hour"])
def test_a_token_is_known_although_somebody_made_the_table_forget_it(bench: Bench, spelled: str) -> None:
    refresh_daily(bench, 1)
    staged = bench.stage("t2")
    result = bench.write(staged, {"1": [2]})
    landed = bench.commit(staged, result, at=NOON + DAY)
    DeltaTable(root(bench)).alter.set_table_properties({KEEPS_TOKENS: spelled})
    age_tokens(bench)
    write_deltalake(root(bench), pa.table({"ds": ["2"], "n": [7]}), mode="append")
    refresh_daily(bench, 1)
    assert staged.outcome() == landed
    assert bench.commit(staged, result, at=NOON + DAY) == landed
    assert rows(bench) == [0]
    assert bench.stage("t9").outcome() is None


def age_tokens(bench: Bench) -> None:
    """Have all tokens noted two hours ago."""

    def age(action: dict[str, dict[str, int]]) -> None:
        if "lastUpdated" in action.get("txn", {}):
            action["txn"]["lastUpdated"] -= 2 * 60 * 60 * 1000

    for entry in range(2):
        rewrite(root(bench), entry, age)


def test_numbers_go_on_where_a_checkpoint_forgot_the_latest_one(bench: Bench) -> None:
    """Spark leaves transactions without a time out of its checkpoints, once the table says how long they are kept."""
    refresh_daily(bench, 3)
    for entry in range(3):
        rewrite(root(bench), entry, forget)
    DeltaTable(root(bench)).restore(0)
    assert bench.refresh({"1": [9]}).number == 4


def forget(action: dict[str, dict[str, object]]) -> None:
    """Take away what says the latest number."""
    if action.get("txn", {}).get("appId") == APPLICATION:
        del action["txn"]


def test_every_transaction_has_a_time_and_the_latest_number_never_expires(bench: Bench) -> None:
    refresh_daily(bench, 1)
    lines = commit_file(root(bench), 0).read_text().splitlines()
    noted = {said["txn"]["appId"]: said["txn"]["lastUpdated"] for said in map(json.loads, lines) if "txn" in said}
    kept = {app for app, at in noted.items() if datetime.fromtimestamp(at / 1000, UTC).year == 9999}
    assert kept == {APPLICATION, FRESH}
    assert len(noted) == 3


def test_the_settings_of_our_tables_come_back_when_others_replaced_the_table(bench: Bench) -> None:
    """A ``CREATE OR REPLACE TABLE`` drops the properties, and the clean-up of others would take our versions."""
    refresh_daily(bench, 1)

    def replace_properties(action: dict[str, dict[str, object]]) -> None:
        if "metaData" in action:
            action["metaData"]["configuration"] = {KEEPS_TOKENS: "interval 60 days", "team": "sales"}

    rewrite(root(bench), 0, replace_properties)
    bench.refresh({"1": [2]})
    assert DeltaTable(root(bench)).metadata().configuration == {
        "delta.enableExpiredLogCleanup": "false",
        KEEPS_TOKENS: "interval 60 days",
        "team": "sales",
    }
    bench.refresh({"1": [3]})
    assert "metaData" not in commit_file(root(bench), 2).read_text()


def test_an_entry_that_somebody_is_writing_is_waited_for(bench: Bench) -> None:
    """Nobody knows what it will say: what is put behind it might leave rows of it in the table."""
    refresh_daily(bench, 1)
    staged = bench.stage("t2")
    result = bench.write(staged, {"1": [2]})
    write_deltalake(root(bench), pa.table({"ds": ["1"], "n": [7]}), mode="append")
    told = commit_file(root(bench), 1).read_text()
    commit_file(root(bench), 1).write_text("")
    with pytest.raises(CatalogUnavailableError, match=r"1\.json of the log is empty: a writer is writing it now.*put the line"):
        bench.commit(staged, result)
    commit_file(root(bench), 1).write_text(told[: len(told) // 2])
    with pytest.raises(CatalogUnavailableError, match="cannot be read"):
        bench.commit(staged, result)
    commit_file(root(bench), 1).write_text(told)
    assert bench.commit(staged, result).number == 2
    assert rows(bench) == [2]


def test_what_is_put_into_an_entry_that_stays_empty_lets_refreshes_go_on(bench: Bench) -> None:
    refresh_daily(bench, 1)
    commit_file(root(bench), 1).write_text('{"commitInfo":{}}')
    assert bench.refresh({"1": [2]}).number == 2
    assert [version.number for version in bench.table.versions()] == [1, 2]


def test_a_checkpoint_in_text_stands_for_what_was_before(bench: Bench) -> None:
    refresh_daily(bench, 4)
    rewrite(root(bench), 0, require(["v2Checkpoint"]))
    write_checkpoint_in_text(root(bench), 2)
    for entry in range(2):
        commit_file(root(bench), entry).unlink()
    assert DeltaLog(bench.table.folder() or "").checkpoints() == [2]
    assert [version.number for version in bench.table.versions()] == [3, 4]
    assert bench.rows() == {"1": [3]}
    assert bench.stage("back").restore(3, lambda: None).number == 5
    assert bench.rows() == {"1": [2]}
    assert bench.table.delete_orphans(datetime.now(UTC) + 30 * DAY, tuple).files == 2, "those of the versions that are gone"
    assert bench.table.sample(9, 4) == [{"ds": "1", "n": 3}]
    commit_file(root(bench), 2).unlink()
    assert [version.number for version in bench.table.versions()] == [4, 5], "those after the checkpoint"
    assert bench.table.sample(9, 4) == [{"ds": "1", "n": 3}]


def test_a_table_of_which_only_a_checkpoint_in_text_is_left_is_known(bench: Bench) -> None:
    refresh_daily(bench, 3)
    latest = bench.table.current()
    rewrite(root(bench), 0, require(["v2Checkpoint"]))
    write_checkpoint_in_text(root(bench), 2)
    for entry in range(3):
        commit_file(root(bench), entry).unlink()
    known = bench.table.current()
    assert latest is not None
    assert known is not None
    assert (known.number, known.token, known.data_timestamp) == (3, latest.token, latest.data_timestamp)
    assert bench.stage(latest.token).outcome() == known
    assert bench.refresh({"1": [9]}).number == 4
    assert bench.rows() == {"1": [9]}


def test_a_checkpoint_in_parts_counts_when_all_parts_are_there(bench: Bench) -> None:
    refresh_daily(bench, 4)
    DeltaTable(root(bench), version=2).create_checkpoint()
    log = root(bench) / "_delta_log"
    (whole,) = log.glob("*.checkpoint.parquet")
    actions = pq.read_table(whole)
    whole.unlink()
    (log / "_last_checkpoint").unlink()
    checkpoints = DeltaLog(bench.table.folder() or "").checkpoints
    for part, rows_of_part in enumerate((actions.slice(0, 2), actions.slice(2)), 1):
        assert checkpoints() == []
        pq.write_table(rows_of_part, log / f"{2:020}.checkpoint.{part:010}.{2:010}.parquet")
    assert checkpoints() == [2]
    for entry in range(3):
        commit_file(root(bench), entry).unlink()
    assert bench.rows() == {"1": [3]}
    current = bench.table.current()
    assert current is not None
    assert current.number == 4
    commit_file(root(bench), 3).unlink()
    current = bench.table.current()
    assert current is not None
    assert (current.number, current.token != "") == (3, True)
    assert bench.rows() == {"1": [2]}


def test_entries_that_somebody_compacted_are_read_as_they_are(bench: Bench) -> None:
    refresh_daily(bench, 3)
    compacted = root(bench) / "_delta_log" / f"{0:020}.{2:020}.compacted.json"
    compacted.write_text("".join(f"{json.dumps(action)}\n" for action in replay(root(bench), 2)))
    assert [version.number for version in bench.table.versions()] == [1, 2, 3]
    assert bench.refresh({"1": [9]}).number == 4
    assert (rows(bench), bench.rows()) == ([9], {"1": [9]})


GAPS = {"in between": 1, "before the latest": 3}


@pytest.mark.parametrize("case", GAPS)
def test_a_log_with_a_gap_is_refused(bench: Bench, case: str) -> None:
    refresh_daily(bench, 5)
    staged = bench.stage("t6")
    result = bench.write(staged, {"1": [9]})
    commit_file(root(bench), GAPS[case]).unlink()
    with pytest.raises(CatalogUnavailableError, match="Expected contiguous commit files"):
        bench.commit(staged, result)


def test_a_note_of_the_latest_checkpoint_that_lies_is_no_table_without_versions(bench: Bench) -> None:
    refresh_daily(bench, 2)
    note = root(bench) / "_delta_log" / "_last_checkpoint"
    note.write_text('{"version":99,"size":3}')
    with pytest.raises(CatalogUnavailableError, match="Had a _last_checkpoint hint"):
        bench.table.current()
    note.write_text("garbage")
    assert bench.refresh({"1": [9]}).number == 3
