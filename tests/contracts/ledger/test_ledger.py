"""What a ledger does, whatever database keeps it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import func, select

from airflow_dynamic_tables.clients.database import migrations
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.database.tables import installation, metadata, source_partitions
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import NO_PARTITIONS, WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.expectations import ExpectationResult
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode, RefreshAction
from airflow_dynamic_tables.core.refresh.source_changes import DirtyFinding, DirtyPartitions, SourceState
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, CommitRejectedError, ConflictError
from airflow_dynamic_tables.ledger.base import HOLDING, UNFINISHED, Refresh, RefreshState, ReportState, Stage, StageState
from airflow_dynamic_tables.ledger.details import PublishedPartition
from airflow_dynamic_tables.ledger.jobs import Job, JobRefresh, RefreshWish, WorkState
from airflow_dynamic_tables.ledger.late_tables import LatePeriod, Watch
from airflow_dynamic_tables.ledger.latest import Held, Latest, RefreshStart
from airflow_dynamic_tables.ledger.sql import SqlLedger
from tests.support.processes import at_once


def only(*specs: dict[str, str]) -> PartitionSet:
    return PartitionSet.of(specs)


NOON = datetime(2024, 1, 2, 12, tzinfo=UTC)
TABLE = TableIdentifier("lake", "Umsätze", "a.b \"quoted\" 'n' 売上")
OTHER = TableIdentifier("lake", "sales", "other")
STAGE = Stage(
    token="t1",
    table=TABLE,
    location="s3://bucket/warehouse/sales.db/daily_revenue/_staging/t1",
    owner="dag/run/refresh",
    process="host/4711/1704196800",
    opened_at=NOON,
    lease_until=NOON + timedelta(minutes=5),
    partitions=PartitionSet.of([{"ds": "2024-01-01", "land": "Österreich"}, {"ds": "2024-01-02", "land": "日本"}]),
)
REFRESH = Refresh(
    token="t1",
    table=TABLE,
    action=RefreshAction.PARTITIONS,
    reason="scheduled: ds=2024-01-01",
    state=RefreshState.SUCCEEDED,
    schedule_time=NOON,
    started_at=NOON + timedelta(seconds=1),
    finished_at=NOON + timedelta(seconds=62, microseconds=345678),
    data_timestamp=NOON,
    version=7,
    snapshot="8412341234123412341",
    partitions=only({"ds": "2024-01-01"}),
    rows=3_000_000_000,
    bytes=5_000_000_000_000,
    files=12,
    seconds={"begin": 0.25, "job": 59.5, "commit": 1.0},
    sources={"lake.raw.orders": "files:00ff", "lake.raw.länder": "123"},
    application_id="local-1704196800000",
    error=None,
    reason_code=ReasonCode.SCHEDULED,
    expectations=(
        ExpectationResult("positive", "warn", 3_000_000_000),
        ExpectationResult("row_count", "quarantine", 1, "12 rows, fewer than half of 30"),
    ),
    report=ReportState.DUE,
    recipe="00ff",
    unbroken=True,
    complete_until=NOON - timedelta(minutes=30),
    watermark=NOON - timedelta(hours=1),
    restores=3,
    source_bytes=7_000_000_000_000,
    occurrences=2,
    referenced={"lake.crm.customers": "8271638172636"},
)
MINIMAL = Refresh("t2", TABLE, RefreshAction.FULL, "", RefreshState.RUNNING, NOON, NOON)


@pytest.fixture(scope="session")
def postgres_url(postgres_state: Callable[[], str]) -> str:
    return postgres_state()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path, empty_state: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{shutil.copy(empty_state, tmp_path)}"
    found = str(request.getfixturevalue("postgres_url"))
    with Database(found).transaction() as connection:
        for table in metadata.sorted_tables:
            connection.execute(table.delete())
    return found


@pytest.fixture
def ledger(url: str) -> Iterator[SqlLedger]:
    made = SqlLedger(Database(url))
    yield made
    made.close()


def take_back(url: str, revision: str, *statements: str) -> None:
    """Give a database the schema of an earlier release, and what that one wrote."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    with Database(url).transaction() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, revision)
        for statement in statements:
            connection.exec_driver_sql(statement)


class TestStages:
    def test_an_opened_stage_comes_back_whole(self, ledger: SqlLedger) -> None:
        assert ledger.open_stage(STAGE) == ()
        assert ledger.get_stage("t1") == STAGE
        assert ledger.list_stages() == [STAGE]

    def test_what_the_release_before_gave_up_is_fenced_once_more(self, url: str, ledger: SqlLedger) -> None:
        for token, opened_at, partition in (("later", NOON + timedelta(hours=1), "1"), ("earlier", NOON, "2")):
            ledger.open_stage(replace(STAGE, token=token, opened_at=opened_at, partitions=only({"ds": partition})))
        ledger.move_stage("later", {StageState.OPEN}, StageState.ABORTING)
        take_back(url, "0005")
        Database(url).upgrade()
        upgraded = [(stage.token, stage.state, stage.ordinal) for stage in ledger.list_stages()]
        assert upgraded == [("earlier", "OPEN", 1), ("later", "FENCING", 2)]

    def test_an_unknown_token(self, ledger: SqlLedger) -> None:
        assert ledger.get_stage("t1") is None
        assert ledger.list_stages() == []

    def test_times_of_any_zone_are_the_same_moment_in_utc(self, ledger: SqlLedger) -> None:
        local = NOON.astimezone(ZoneInfo("Asia/Kathmandu"))
        ledger.open_stage(replace(STAGE, opened_at=local))
        found = ledger.get_stage("t1")
        assert found.opened_at == local
        assert found.opened_at.tzinfo is UTC

    def test_a_naive_time_is_refused(self, ledger: SqlLedger) -> None:
        with pytest.raises(Exception, match="has no time zone"):
            ledger.open_stage(replace(STAGE, opened_at=datetime(2024, 1, 1)))  # noqa: DTZ001 - the point of the test
        assert ledger.get_stage("t1") is None

    def test_opening_the_same_token_again_is_the_same_stage(self, ledger: SqlLedger) -> None:
        ledger.open_stage(STAGE)
        assert ledger.open_stage(replace(STAGE, location="elsewhere")) == ()
        assert ledger.list_stages() == [STAGE]

    @pytest.mark.parametrize("state", [state for state in StageState if state is not StageState.OPEN])
    def test_a_token_is_used_once(self, ledger: SqlLedger, state: StageState) -> None:
        ledger.open_stage(STAGE)
        ledger.move_stage("t1", UNFINISHED, state)
        with pytest.raises(ConflictError, match=f"t1 .* is {state} already; a new try needs a new token"):
            ledger.open_stage(STAGE)

    @pytest.mark.parametrize(
        ("mine", "theirs"),
        [
            (({},), ({},)),
            (({"ds": "1"},), ({},)),
            (({},), ({"ds": "1"},)),
            (({"ds": "1"}, {"ds": "2"}), ({"ds": "2"}, {"ds": "3"})),
            (({"ds": "1", "hh": "00"},), ({"ds": "1"},)),
            (({"ds": "1"},), ({"hh": "00"},)),
        ],
    )
    def test_overlapping_stages_are_in_the_way(
        self, ledger: SqlLedger, mine: tuple[dict[str, str], ...], theirs: tuple[dict[str, str], ...]
    ) -> None:
        older = replace(STAGE, token="older", partitions=PartitionSet.of(theirs))
        ledger.open_stage(older)
        assert ledger.open_stage(replace(STAGE, partitions=PartitionSet.of(mine))) == (older,)
        assert ledger.get_stage("t1") is None

    @pytest.mark.parametrize(
        "other",
        [
            replace(STAGE, token="t2", table=OTHER),
            replace(STAGE, token="t2", partitions=only({"ds": "2024-01-03"})),
            replace(STAGE, token="t2", partitions=only({"ds": "2024-01-01", "land": "日本"})),
        ],
    )
    def test_other_tables_and_partitions_are_not_in_the_way(self, ledger: SqlLedger, other: Stage) -> None:
        ledger.open_stage(STAGE)
        assert ledger.open_stage(other) == ()
        assert len(ledger.list_stages()) == 2

    def test_every_stage_in_the_way_is_named_oldest_first(self, ledger: SqlLedger) -> None:
        for number in (3, 1, 2):
            opened = NOON + timedelta(minutes=number)
            ledger.open_stage(replace(STAGE, token=f"s{number}", partitions=only({"ds": str(number)}), opened_at=opened))
        ledger.move_stage("s2", {StageState.OPEN}, StageState.COMMITTING)
        blockers = ledger.open_stage(replace(STAGE, partitions=WHOLE_TABLE))
        assert [(stage.token, stage.state) for stage in blockers] == [("s1", "OPEN"), ("s2", "COMMITTING"), ("s3", "OPEN")]

    def test_a_stage_that_may_still_land_is_in_the_way(self, ledger: SqlLedger) -> None:
        ledger.open_stage(replace(STAGE, token="older"))
        ledger.move_stage("older", {StageState.OPEN}, StageState.FENCING)
        assert [(stage.token, stage.state) for stage in ledger.open_stage(STAGE)] == [("older", "FENCING")]

    @pytest.mark.parametrize("state", sorted(set(StageState) - set(HOLDING)))
    def test_a_stage_that_can_no_longer_publish_is_not_in_the_way(self, ledger: SqlLedger, state: StageState) -> None:
        ledger.open_stage(replace(STAGE, token="older"))
        ledger.move_stage("older", {StageState.OPEN}, state)
        assert ledger.open_stage(STAGE) == ()

    def test_stages_are_listed_by_table_and_state_oldest_first(self, ledger: SqlLedger) -> None:
        for number, state in enumerate(StageState):
            table = TABLE if number % 2 else OTHER
            stage = replace(
                STAGE,
                token=state,
                partitions=only({"ds": state}),
                table=table,
                opened_at=NOON - timedelta(hours=number),
            )
            ledger.open_stage(stage)
            ledger.move_stage(state, {StageState.OPEN}, state)
        assert [stage.state for stage in ledger.list_stages()] == ["ABORTING", "FENCING", "QUARANTINED", "COMMITTING", "OPEN"]
        assert [stage.state for stage in ledger.list_stages(TABLE)] == ["ABORTING", "QUARANTINED", "COMMITTING"]
        assert [stage.state for stage in ledger.list_stages(states=[StageState.ABORTED])] == ["ABORTED"]
        assert ledger.list_stages(replace(TABLE, table="c")) == []

    def test_moving_is_a_compare_and_swap(self, ledger: SqlLedger) -> None:
        ledger.open_stage(STAGE)
        ledger.move_stage("t1", {StageState.OPEN}, StageState.COMMITTING)
        ledger.move_stage("t1", {StageState.OPEN}, StageState.COMMITTING)
        with pytest.raises(CommitRejectedError, match="Stage t1 is COMMITTING; it can no longer become ABORTED"):
            ledger.move_stage("t1", {StageState.OPEN, StageState.ABORTING}, StageState.ABORTED)
        ledger.move_stage("t1", UNFINISHED, StageState.ABORTING)
        found = ledger.get_stage("t1")
        assert found == replace(STAGE, state=StageState.ABORTING)

    def test_a_stage_and_its_refresh_change_in_one_step(self, ledger: SqlLedger) -> None:
        ledger.open_stage(STAGE)
        ledger.record(replace(MINIMAL, token="t1"))
        assert ledger.move_stage("t1", {StageState.OPEN}, StageState.ABORTING, {"state": RefreshState.FAILED, "error": "too bad"})
        assert ledger.get_refresh("t1") == replace(MINIMAL, token="t1", state=RefreshState.FAILED, error="too bad")
        assert not ledger.move_stage("t1", {StageState.OPEN}, StageState.ABORTING, {"error": "abandoned"})
        with pytest.raises(CommitRejectedError):
            ledger.move_stage("t1", {StageState.OPEN}, StageState.COMMITTED, {"state": RefreshState.SUCCEEDED})
        assert ledger.get_refresh("t1") == replace(MINIMAL, token="t1", state=RefreshState.FAILED, error="too bad")

    def test_moving_an_unknown_stage(self, ledger: SqlLedger) -> None:
        with pytest.raises(CommitRejectedError, match="t1 is unknown to the ledger"):
            ledger.move_stage("t1", UNFINISHED, StageState.COMMITTED)

    @pytest.mark.parametrize("state", [StageState.OPEN, StageState.COMMITTING])
    def test_a_lease_is_renewed_while_the_stage_is_held(self, ledger: SqlLedger, state: StageState) -> None:
        ledger.open_stage(STAGE)
        ledger.move_stage("t1", {StageState.OPEN}, state)
        ledger.renew_lease("t1", NOON + timedelta(hours=1))
        assert ledger.get_stage("t1") == replace(STAGE, state=state, lease_until=NOON + timedelta(hours=1))

    def test_a_quarantined_stage_is_taken_over_with_a_lease_by_one(self, ledger: SqlLedger) -> None:
        ledger.open_stage(STAGE)
        ledger.move_stage("t1", {StageState.OPEN}, StageState.QUARANTINED)
        later = NOON + timedelta(days=3)
        assert ledger.resume_stage("t1", "other/1/2", later) == ()
        assert ledger.get_stage("t1") == replace(STAGE, state=StageState.COMMITTING, process="other/1/2", lease_until=later)
        with pytest.raises(ConflictError, match=r"t1 of .* is no longer in quarantine"):
            ledger.resume_stage("t1", "another/1/2", later)
        with pytest.raises(ConflictError, match="unknown to the ledger"):
            ledger.resume_stage("unknown", "another/1/2", later)

    def test_a_quarantined_stage_is_not_taken_over_beside_one_that_overlaps(self, ledger: SqlLedger) -> None:
        ledger.open_stage(STAGE)
        ledger.move_stage("t1", {StageState.OPEN}, StageState.QUARANTINED)
        ledger.open_stage(replace(STAGE, token="t2"))
        assert [stage.token for stage in ledger.resume_stage("t1", "other/1/2", NOON)] == ["t2"]
        assert ledger.get_stage("t1") == replace(STAGE, state=StageState.QUARANTINED)

    def test_only_the_process_that_holds_a_stage_moves_it(self, ledger: SqlLedger) -> None:
        ledger.open_stage(STAGE)
        ledger.move_stage("t1", {StageState.OPEN}, StageState.COMMITTING, held_by=STAGE.process)
        for to_state in (StageState.COMMITTING, StageState.QUARANTINED):
            with pytest.raises(CommitRejectedError):
                ledger.move_stage("t1", {StageState.COMMITTING}, to_state, held_by="other/1/2")
        assert ledger.get_stage("t1") == replace(STAGE, state=StageState.COMMITTING)

    def test_stages_are_counted_in_the_order_of_their_opening_whatever_the_clocks_say(self, ledger: SqlLedger) -> None:
        for number in (3, 2, 1):
            opened = NOON + timedelta(minutes=number)
            ledger.open_stage(replace(STAGE, token=f"s{number}", partitions=only({"ds": str(number)}), opened_at=opened))
        ledger.open_stage(replace(STAGE, token="elsewhere", table=replace(TABLE, table="other")))
        assert {stage.token: stage.ordinal for stage in ledger.list_stages()} == {"s3": 1, "s2": 2, "s1": 3, "elsewhere": 1}

    @pytest.mark.parametrize("state", sorted(set(StageState) - {StageState.OPEN, StageState.COMMITTING}))
    def test_a_lease_that_was_lost_stays_lost(self, ledger: SqlLedger, state: StageState) -> None:
        ledger.open_stage(STAGE)
        ledger.move_stage("t1", {StageState.OPEN}, state)
        with pytest.raises(ConflictError, match="t1 was taken away from its owner"):
            ledger.renew_lease("t1", NOON + timedelta(hours=1))
        with pytest.raises(ConflictError):
            ledger.renew_lease("unknown", NOON)


class TestInstallation:
    def test_it_has_an_identity_from_the_beginning_and_keeps_it(self, url: str, ledger: SqlLedger) -> None:
        take_back(url, "0007")
        Database(url).upgrade()
        with Database(url).transaction() as connection:
            (made,) = connection.scalars(select(installation.c.id))
        assert ledger.installation() == SqlLedger(Database(url)).installation() == made

    def test_whoever_deletes_it_in_a_copy_gets_another_one(self, url: str, ledger: SqlLedger) -> None:
        before = ledger.installation()
        with Database(url).transaction() as connection:
            connection.execute(installation.delete())
        assert ledger.installation() == ledger.installation() != before


class TestSourceStates:
    ORDERS = SourceState(
        "files:00ff",
        "1b4e28ba",
        "s3://bucket/orders",
        "5d41402a",
        {"ds=2024-01-01": "files:1", "ds=2024-01-02/land=日本": "files:2"},
    )

    def test_they_come_back_whole_and_what_is_unknown_stays_so(self, ledger: SqlLedger) -> None:
        states = {
            "lake.raw.orders": self.ORDERS,
            "lake.raw.länder": SourceState("snapshot:1", partitions={"": "snapshot:1"}),
            "lake.raw.empty": SourceState("files:0", partitions={}),
            "lake.raw.unknown": SourceState("17"),
        }
        ledger.record_source_states(TABLE, "t1", states)
        assert ledger.source_states("t1") == states
        assert ledger.source_states("t2") == {}

    def test_recording_again_replaces_the_state_of_that_source(self, ledger: SqlLedger) -> None:
        ledger.record_source_states(TABLE, "t1", {"lake.raw.orders": self.ORDERS, "lake.raw.countries": self.ORDERS})
        ledger.record_source_states(TABLE, "t2", {"lake.raw.orders": self.ORDERS})
        changed = replace(self.ORDERS, partitions={"ds=2024-01-02": "files:3"})
        ledger.record_source_states(TABLE, "t1", {"lake.raw.orders": changed})
        assert ledger.source_states("t1") == {"lake.raw.orders": changed, "lake.raw.countries": self.ORDERS}
        assert ledger.source_states("t2") == {"lake.raw.orders": self.ORDERS}

    def test_any_sequence_of_states_comes_back(self, ledger: SqlLedger) -> None:
        chance = Random(5)
        states: dict[str, SourceState] = {}
        numbered: list[str] = []
        for number in range(40):
            days = chance.sample(range(9), chance.randrange(9))
            partitions = None if number % 7 == 6 else {f"ds={day}": f"files:{chance.randrange(2)}" for day in days}
            unsettled = tuple(sorted(f"ds={day}" for day in chance.sample(range(9), 2))) if partitions is not None else ()
            token = f"t{chance.randrange(25)}"
            states[token] = replace(self.ORDERS, partitions=partitions, unsettled=unsettled)
            ledger.record_source_states(TABLE, token, {"lake.raw.orders": states[token]})
            numbered = [*(each for each in numbered if each != token), *([token] if partitions is not None else [])]
            if partitions is not None:
                assert ledger.readings(TABLE, "lake.raw.orders").latest == states[token]
            if number % 5 == 4:
                gone = chance.choice(sorted(states))
                del states[gone]
                for kept in states:
                    ledger.record(replace(MINIMAL, token=kept, state=RefreshState.SUCCEEDED, started_at=NOON))
                ledger.record(replace(MINIMAL, token=gone, state=RefreshState.FAILED, started_at=NOON))
                ledger.prune(NOON - timedelta(days=30))
            assert {each: ledger.source_states(each).get("lake.raw.orders") for each in states} == states
            numbered = [each for each in numbered if each in states]
            latest = ledger.readings(TABLE, "lake.raw.orders").latest
            assert latest is None or latest == states[numbered[-1]], "unknown if a later one that had changes is gone"

    def test_a_reading_costs_as_much_as_changed(self, url: str, ledger: SqlLedger) -> None:
        partitions = {f"ds={number}": "files:1" for number in range(500)}
        for number in range(20):
            partitions[f"ds={number}"] = "files:2"
            ledger.record_source_states(TABLE, f"t{number}", {"lake.raw.orders": replace(self.ORDERS, partitions=partitions)})
            ledger.record(replace(MINIMAL, token=f"t{number}", state=RefreshState.SUCCEEDED, started_at=NOON))
        with Database(url).transaction() as connection:
            assert connection.scalar(select(func.count()).select_from(source_partitions)) == 500 + 19
        for number in range(19):
            ledger.record(replace(MINIMAL, token=f"t{number}", state=RefreshState.FAILED, started_at=NOON))
        ledger.prune(NOON)
        assert ledger.source_states("t19")["lake.raw.orders"].partitions == partitions
        with Database(url).transaction() as connection:
            assert connection.scalar(select(func.count()).select_from(source_partitions)) == 500, (
                "those before the oldest state go"
            )

    def test_eight_processes_number_their_readings(self, ledger: SqlLedger, url: str) -> None:
        def state(number: int) -> SourceState:
            return replace(self.ORDERS, partitions={"ds=1": f"files:{number}", f"ds={number}": "files:0"})

        def record(number: int) -> None:
            SqlLedger(Database(url)).record_source_states(TABLE, f"t{number}", {"lake.raw.orders": state(number)})

        at_once(8, record)
        assert [ledger.source_states(f"t{number}") for number in range(8)] == [{"lake.raw.orders": state(n)} for n in range(8)]

    def test_states_of_the_release_before_are_converted(self, url: str, ledger: SqlLedger) -> None:
        texts = {
            "t1": ('{"ds=1": "a", "ds=2": "b"}', "null"),
            "t2": ('{"ds=2": "b", "ds=3": "c"}', '["ds=3"]'),
            "t3": (None, "null"),
        }
        for number, token in enumerate(texts):
            ledger.record(replace(MINIMAL, token=token, started_at=NOON + timedelta(minutes=number)))
        written = [
            "INSERT INTO dt_source_states (token, source, version, partitions, unsettled) VALUES"
            f" ('{token}', 'raw.t', 'v{token}', {'NULL' if partitions is None else repr(partitions)}, '{unsettled}')"
            for token, (partitions, unsettled) in texts.items()
        ]
        take_back(url, "0016", *written)
        Database(url).upgrade()
        assert ledger.source_states("t1") == {"raw.t": SourceState("vt1", partitions={"ds=1": "a", "ds=2": "b"})}
        after = SourceState("vt2", partitions={"ds=2": "b", "ds=3": "c"}, unsettled=("ds=3",))
        assert ledger.source_states("t2") == {"raw.t": after}
        assert ledger.source_states("t3") == {"raw.t": SourceState("vt3")}

    def test_they_go_with_their_refreshes_but_those_of_the_last_success_stay(self, ledger: SqlLedger) -> None:
        days = {
            "last success": (RefreshState.SUCCEEDED, 40),
            "older success": (RefreshState.SUCCEEDED, 60),
            "failed": (RefreshState.FAILED, 1),
            "running": (RefreshState.RUNNING, 50),
            "quarantined": (RefreshState.QUARANTINED, 50),
        }
        for token, (state, age) in days.items():
            ledger.record(replace(MINIMAL, token=token, state=state, started_at=NOON - timedelta(days=age)))
            ledger.record_source_states(TABLE, token, {"lake.raw.orders": self.ORDERS})
        ledger.prune(NOON - timedelta(days=30))
        assert {token for token in days if ledger.source_states(token)} == {"last success", "running", "quarantined"}

    def test_ten_thousand_partitions_cost_little(self, ledger: SqlLedger) -> None:
        many = {f"ds=2024-01-01/hh={number:05}": f"files:{number:016x}" for number in range(10_000)}
        start = time.process_time()
        ledger.record_source_states(TABLE, "t1", {"lake.raw.orders": replace(self.ORDERS, partitions=many)})
        assert ledger.source_states("t1")["lake.raw.orders"].partitions == many
        ledger.prune(NOON)
        assert time.process_time() - start < 2


class TestMadePartitions:
    @staticmethod
    def made(ledger: SqlLedger, *days: str) -> list[str | None]:
        known = ledger.made_partitions(TABLE)
        return [known.token({"ds": day}) if known.covers({"ds": day}) else "never" for day in days]

    @staticmethod
    def commit(
        ledger: SqlLedger, token: str, version: int, partitions: PartitionSet, *, search: int | None = None, **fields: Any
    ) -> None:
        action = RefreshAction.FULL if partitions.is_whole else RefreshAction.PARTITIONS
        ledger.open_stage(replace(STAGE, token=token, partitions=partitions, search=search))
        ledger.record(replace(REFRESH, token=token, partitions=partitions, action=action, **fields))
        ledger.move_stage(token, {StageState.OPEN}, StageState.COMMITTING)
        ledger.move_stage(token, {StageState.COMMITTING}, StageState.COMMITTED, {"version": version})

    def test_the_last_commit_of_a_partition_counts(self, ledger: SqlLedger) -> None:
        assert self.made(ledger, "1") == ["never"]
        self.commit(ledger, "a", 1, only({"ds": "1"}, {"ds": "2"}))
        self.commit(ledger, "b", 2, only({"ds": "2"}, {"ds": "3"}))
        assert self.made(ledger, "1", "2", "3", "4") == ["a", "b", "b", "never"]
        self.commit(ledger, "c", 3, WHOLE_TABLE)
        assert self.made(ledger, "1", "4") == ["c", "c"]
        self.commit(ledger, "d", 4, only({"ds": "4"}))
        assert self.made(ledger, "1", "4") == ["c", "d"]

    def test_keys_in_any_order_and_keys_that_are_omitted(self, ledger: SqlLedger) -> None:
        self.commit(ledger, "a", 1, only({"ds": "1", "hh": "1"}, {"hh": "2", "ds": "1"}))
        self.commit(ledger, "b", 2, only({"ds": "1"}))
        self.commit(ledger, "c", 3, only({"ds": "1", "hh": "2"}))
        known = ledger.made_partitions(TABLE)
        assert [known.token({"hh": hour, "ds": "1"}) for hour in "12"] == ["b", "c"]

    def test_a_stage_that_is_not_committed_makes_none(self, ledger: SqlLedger) -> None:
        ledger.open_stage(STAGE)
        ledger.record(REFRESH)
        ledger.move_stage("t1", {StageState.OPEN}, StageState.ABORTING)
        assert self.made(ledger, "1") == ["never"]

    def test_a_rollback_leaves_the_partitions_of_the_version_that_it_restores(self, ledger: SqlLedger) -> None:
        for number, token in enumerate("abc", 1):
            self.commit(ledger, token, number, only({"ds": str(number)}))
        ledger.open_stage(replace(STAGE, token="back", partitions=WHOLE_TABLE))
        ledger.record(replace(REFRESH, token="back", action=RefreshAction.ROLLBACK, restores=2))
        ledger.move_stage("back", {StageState.OPEN}, StageState.COMMITTED, {"version": 4})
        assert self.made(ledger, "1", "2", "3") == ["a", "b", None]

    def test_those_of_an_undone_version_are_unknown(self, ledger: SqlLedger) -> None:
        self.commit(ledger, "a", 1, only({"ds": "1"}))
        self.commit(ledger, "b", 2, only({"ds": "2"}))
        ledger.update_refresh("b", state=RefreshState.SUCCEEDED)
        ledger.mark_undone({"b": "gone"})
        assert self.made(ledger, "1", "2") == ["a", None]

    def test_a_table_that_is_made_anew_has_no_older_ones(self, ledger: SqlLedger) -> None:
        self.commit(ledger, "a", 1, only({"ds": "1"}))
        ledger.open_stage(replace(STAGE, token="new", partitions=only({"ds": "2"})))
        ledger.record(replace(REFRESH, token="new", partitions=only({"ds": "2"}), action=RefreshAction.INITIALIZE))
        ledger.move_stage("new", {StageState.OPEN}, StageState.COMMITTED, {"version": 1})
        assert self.made(ledger, "1", "2") == ["never", "new"]

    def test_their_states_outlive_the_history(self, ledger: SqlLedger) -> None:
        old: dict[str, Any] = {"started_at": NOON - timedelta(days=60), "state": RefreshState.SUCCEEDED}
        self.commit(ledger, "a", 1, only({"ds": "1"}), **old)
        self.commit(ledger, "b", 2, only({"ds": "2"}), **{**old, "started_at": NOON})
        for token in "ab":
            ledger.record_source_states(TABLE, token, {"lake.raw.orders": TestSourceStates.ORDERS})
        ledger.prune(NOON - timedelta(days=30))
        assert ledger.get_refresh("a") is None
        assert ledger.source_states("a") == {"lake.raw.orders": TestSourceStates.ORDERS}

    def test_they_follow_a_rename(self, ledger: SqlLedger) -> None:
        new = TableIdentifier("lake", "sales", "renamed")
        self.commit(ledger, "a", 1, only({"ds": "1"}))
        ledger.record_source_states(TABLE, "a", {"lake.raw.orders": TestSourceStates.ORDERS})
        ledger.record_dirty(TABLE, DirtyPartitions(only({"ds": "1"}), 1), NOON, since=0)
        for _ in range(2):
            ledger.rename_table(TABLE, new)
        assert ledger.made_partitions(new).token({"ds": "1"}) == "a"
        assert ledger.dirty_finding(new) == DirtyFinding(1, NOON, DirtyPartitions(only({"ds": "1"}), 1))
        assert ledger.dirty_finding(TABLE) is None
        assert ledger.readings(new, "lake.raw.orders").states.keys() == {"a"}
        assert not ledger.made_partitions(TABLE).covers({"ds": "1"})


class TestDirtyPartitions:
    @staticmethod
    def dirty(ledger: SqlLedger, *days: str) -> list[bool | None]:
        finding, made = ledger.dirty_finding(TABLE), ledger.made_partitions(TABLE)
        assert finding is not None
        return [finding.is_dirty({"ds": day}, made.made({"ds": day}), NOON.replace(tzinfo=None, day=int(day))) for day in days]

    def test_a_finding_comes_back_whole(self, ledger: SqlLedger) -> None:
        assert ledger.dirty_finding(TABLE) is None
        for number, partitions in enumerate((PartitionSet.of([{"ds": "1", "land": None}]), NO_PARTITIONS, WHOLE_TABLE), 1):
            dirty = DirtyPartitions(partitions, 5_000, NOON.replace(tzinfo=None))
            assert ledger.record_dirty(TABLE, dirty, NOON, since=number - 1) == number
            assert ledger.dirty_finding(TABLE) == DirtyFinding(number, NOON, dirty)
        assert ledger.dirty_finding(OTHER) is None

    def test_a_commit_removes_its_partitions_if_it_read_the_sources_later(self, ledger: SqlLedger) -> None:
        TestMadePartitions.commit(ledger, "a", 1, WHOLE_TABLE)
        ledger.record_dirty(TABLE, DirtyPartitions(only({"ds": "1"}, {"ds": "2"}, {"ds": "3"}), 3), NOON, since=0)
        assert self.dirty(ledger, "1", "2", "3", "4") == [True, True, True, False]
        TestMadePartitions.commit(ledger, "b", 2, only({"ds": "1"}), search=1)
        TestMadePartitions.commit(ledger, "c", 3, only({"ds": "2"}), search=0)
        assert self.dirty(ledger, "1", "2", "3", "4") == [False, True, True, False]
        TestMadePartitions.commit(ledger, "d", 4, WHOLE_TABLE, search=1)
        assert self.dirty(ledger, "1", "2", "3", "4") == [False] * 4

    def test_of_two_searches_at_once_both_count(self, ledger: SqlLedger) -> None:
        TestMadePartitions.commit(ledger, "a", 1, WHOLE_TABLE)
        end = NOON.replace(tzinfo=None)
        assert ledger.record_dirty(TABLE, DirtyPartitions(only({"ds": "1"}), 1), NOON, since=0) == 1
        assert ledger.record_dirty(TABLE, DirtyPartitions(only({"ds": "9"}), 2, end), NOON, since=0) == 0, (
            "its refresh read earlier"
        )
        finding = ledger.dirty_finding(TABLE)
        assert finding == DirtyFinding(2, NOON, DirtyPartitions(only({"ds": "1"}, {"ds": "9"}), 3, end))
        assert self.dirty(ledger, "1", "9", "2") == [True, True, None], "one that is not listed may be the third"

    def test_partitions_that_were_not_compared_are_unknown(self, ledger: SqlLedger) -> None:
        TestMadePartitions.commit(ledger, "a", 1, only({"ds": "1"}, {"ds": "2"}, {"ds": "3"}))
        ledger.record_dirty(TABLE, DirtyPartitions(before=NOON.replace(tzinfo=None, day=2, hour=13)), NOON, since=0)
        assert self.dirty(ledger, "1", "2", "3", "4") == [False, False, None, None]

    def test_those_that_a_rollback_brought_back_are_dirty(self, ledger: SqlLedger) -> None:
        TestMadePartitions.commit(ledger, "a", 1, only({"ds": "1"}, {"ds": "2"}))
        ledger.record_dirty(TABLE, DirtyPartitions(only({"ds": "2"}), 1), NOON, since=0)
        TestMadePartitions.commit(ledger, "b", 2, only({"ds": "2"}), search=1)
        ledger.open_stage(replace(STAGE, token="back", partitions=WHOLE_TABLE))
        ledger.record(replace(REFRESH, token="back", action=RefreshAction.ROLLBACK, restores=1))
        ledger.move_stage("back", {StageState.OPEN}, StageState.COMMITTED, {"version": 3})
        assert self.dirty(ledger, "1", "2") == [False, True]

    def test_state_of_the_release_before(self, url: str, ledger: SqlLedger) -> None:
        TestMadePartitions.commit(ledger, "a", 1, only({"ds": "1"}))
        take_back(url, "0020")
        Database(url).upgrade()
        assert ledger.dirty_finding(TABLE) is None
        ledger.record_dirty(TABLE, DirtyPartitions(only({"ds": "1"}), 1), NOON, since=0)
        assert self.dirty(ledger, "1") == [True]


class TestRefreshes:
    @pytest.mark.parametrize("refresh", [REFRESH, MINIMAL], ids=["every field", "few fields"])
    def test_a_refresh_comes_back_whole(self, ledger: SqlLedger, refresh: Refresh) -> None:
        ledger.record(refresh)
        assert ledger.get_refresh(refresh.token) == refresh
        assert ledger.list_refreshes() == [refresh]

    def test_the_refresh_of_a_stage_that_was_taken_away_is_refused(self, ledger: SqlLedger) -> None:
        ledger.open_stage(STAGE)
        ledger.move_stage("t1", {StageState.OPEN}, StageState.ABORTING)
        with pytest.raises(ConflictError, match=r"t1 of .* was taken away from its owner"):
            ledger.record(replace(MINIMAL, token="t1"))
        assert ledger.get_refresh("t1") is None

    @pytest.mark.parametrize(
        ("written", "meant"),
        [
            ("[]", WHOLE_TABLE),
            ("null", NO_PARTITIONS),
            ('[{"ds": "1"}, {"ds": "2"}]', PartitionSet.of([{"ds": "1"}, {"ds": "2"}])),
        ],
    )
    def test_partitions_mean_what_they_meant_to_the_release_before(
        self, url: str, ledger: SqlLedger, written: str, meant: PartitionSet
    ) -> None:
        ledger.open_stage(STAGE)
        ledger.record(REFRESH)
        with Database(url).transaction() as connection:
            for table in ("dt_stages", "dt_refreshes"):
                connection.exec_driver_sql(f"UPDATE {table} SET partitions = '{written}'")
        refresh, stage = ledger.get_refresh("t1"), ledger.get_stage("t1")
        assert (refresh.partitions, stage.partitions) == (meant, meant)

    def test_what_the_release_before_recorded_is_read(self, url: str, ledger: SqlLedger) -> None:
        written = (
            "INSERT INTO dt_refreshes (token, table_name, action, reason, state, schedule_time, started_at, version, partitions,"
            " seconds, sources) VALUES ('old', 'lake.sales.t', 'FULL', 'scheduled for 2024: the whole table', 'SUCCEEDED',"
            " '2024-01-02 12:00:00+00:00', '2024-01-02 12:00:00+00:00', 1, '[]', '{\"spark\": 1.5}', '{\"raw.t\": \"v1\"}')"
        )
        take_back(url, "0003", written)
        Database(url).upgrade()
        refresh = replace(
            MINIMAL,
            token="old",
            table=TableIdentifier("lake", "sales", "t"),
            reason="scheduled for 2024: the whole table",
            version=1,
        )
        expected = replace(refresh, state=RefreshState.SUCCEEDED, seconds={"spark": 1.5}, sources={"raw.t": "v1"})
        assert ledger.get_refresh("old") == expected
        assert ledger.source_states("old") == {}

    def test_an_unknown_token(self, ledger: SqlLedger) -> None:
        assert ledger.get_refresh("t1") is None
        ledger.update_refresh("t1", error="too late")
        assert ledger.list_refreshes() == []

    def test_recording_again_replaces_the_whole_refresh(self, ledger: SqlLedger) -> None:
        ledger.record(REFRESH)
        ledger.record(replace(MINIMAL, token="t1"))
        assert ledger.list_refreshes() == [replace(MINIMAL, token="t1")]

    def test_some_fields_are_changed(self, ledger: SqlLedger) -> None:
        ledger.record(REFRESH)
        ledger.record(MINIMAL)
        changes: dict[str, Any] = {
            "state": RefreshState.FAILED,
            "error": "Spark said: Ünknown column\n  at line 1",
            "finished_at": NOON,
            "seconds": {"job": 1.5},
            "partitions": only({"ds": "2024-01-01"}),
            "sources": {},
        }
        ledger.update_refresh("t2", **changes)
        assert ledger.get_refresh("t2") == replace(MINIMAL, **changes)
        assert ledger.get_refresh("t1") == REFRESH

    def test_an_error_that_quotes_binary_data_is_kept(self, ledger: SqlLedger) -> None:
        ledger.record(replace(REFRESH, error="cannot cast 'a\0b'"))
        found = ledger.get_refresh("t1")
        assert found.error == "cannot cast 'a\N{REPLACEMENT CHARACTER}b'"

    def test_reports_are_due_of_successes_until_they_are_made(self, ledger: SqlLedger) -> None:
        recorded: dict[str, dict[str, Any]] = {
            "second": {},
            "first": {"finished_at": NOON},
            "old": {"finished_at": NOON - timedelta(microseconds=1)},
            "failed": {"state": RefreshState.FAILED},
            "by hand": {"report": None},
            "made": {"report": ReportState.MADE},
        }
        for token, changes in recorded.items():
            ledger.record(replace(REFRESH, token=token, **changes))
        assert [due.token for due in ledger.list_due_reports(NOON)] == ["first", "second"]
        ledger.mark_reported([])
        ledger.mark_reported(["first", "by nobody"])
        assert [due.token for due in ledger.list_due_reports(NOON)] == ["second"]

    def test_the_latest_come_first(self, ledger: SqlLedger) -> None:
        for number in range(30):
            table = TABLE if number % 2 else OTHER
            ledger.record(replace(MINIMAL, token=f"t{number:02}", table=table, started_at=NOON + timedelta(minutes=number)))
        assert [refresh.token for refresh in ledger.list_refreshes()] == [f"t{number:02}" for number in range(29, 9, -1)]
        assert [refresh.token for refresh in ledger.list_refreshes(TABLE, limit=3)] == ["t29", "t27", "t25"]
        assert len(ledger.list_refreshes(limit=100)) == 30
        for number in range(30):
            later = NOON + timedelta(hours=1, minutes=number)
            ledger.record(replace(MINIMAL, token=f"v{number}", action=RefreshAction.VERIFY, started_at=later))
        assert [each.token for each in ledger.list_refreshes(TABLE, limit=1, but=(RefreshAction.VERIFY,))] == ["t29"]
        assert ledger.tables() == sorted([TABLE, OTHER])

    def test_versions_are_undone_together(self, ledger: SqlLedger) -> None:
        made = {"t1": 1, "t2": 2, "t3": 3, "t4": 3, "t5": None}
        for minute, (token, version) in enumerate(made.items()):
            started = NOON + timedelta(minutes=minute)
            ledger.record(replace(MINIMAL, token=token, state=RefreshState.SUCCEEDED, version=version, started_at=started))
        ledger.record(replace(MINIMAL, token="failed", state=RefreshState.FAILED, version=4))
        ledger.record(replace(MINIMAL, token="other", table=OTHER, state=RefreshState.SUCCEEDED, version=4))
        assert ledger.list_versions(TABLE, 2) == {"t2": 2, "t3": 3, "t4": 3}
        ledger.mark_undone({})
        ledger.mark_undone({"t2": "Version 2 is gone.", "t3": "Version 3 is gone.", "failed": "", "nothing": ""})
        assert ledger.list_versions(TABLE, 2) == {"t4": 3}
        states = {one.token: (one.state.value, one.error) for one in ledger.list_refreshes(TABLE)}
        assert (states["t2"], states["t4"]) == (("UNDONE", "Version 2 is gone."), ("SUCCEEDED", None))
        assert states["failed"][0] == "FAILED"

    def test_pruning_keeps_what_is_young_unfinished_or_the_last_success(self, ledger: SqlLedger) -> None:
        days = {
            "new": (TABLE, RefreshState.FAILED, 1),
            "last success": (TABLE, RefreshState.SUCCEEDED, 40),
            "running": (TABLE, RefreshState.RUNNING, 50),
            "older success": (TABLE, RefreshState.SUCCEEDED, 60),
            "failed": (TABLE, RefreshState.FAILED, 45),
            "aborted": (TABLE, RefreshState.ABORTED, 46),
            "skipped": (TABLE, RefreshState.SKIPPED, 47),
            "quarantined": (TABLE, RefreshState.QUARANTINED, 48),
            "only success of another": (OTHER, RefreshState.SUCCEEDED, 99),
        }
        for token, (table, state, age) in days.items():
            ledger.record(Refresh(token, table, RefreshAction.FULL, "", state, NOON, NOON - timedelta(days=age)))
        stages = {StageState.OPEN: 50, StageState.QUARANTINED: 50, StageState.COMMITTED: 50, StageState.ABORTED: 1}
        for stage_state, age in stages.items():
            opened = NOON - timedelta(days=age)
            ledger.open_stage(replace(STAGE, token=stage_state, partitions=only({"ds": stage_state}), opened_at=opened))
            ledger.move_stage(stage_state, {StageState.OPEN}, stage_state)
        assert ledger.prune(NOON - timedelta(days=30)) == 5
        kept = {refresh.token for refresh in ledger.list_refreshes()}
        assert kept == {"new", "last success", "running", "quarantined", "only success of another"}
        assert {stage.state for stage in ledger.list_stages(states=tuple(StageState))} == {"OPEN", "QUARANTINED", "ABORTED"}
        assert ledger.prune(NOON - timedelta(days=30)) == 0


class TestManyAtOnce:
    def test_one_of_eight_overlapping_stages_is_opened(self, url: str, ledger: SqlLedger) -> None:
        ledger.check()

        def open_stage(me: int) -> str:
            own = SqlLedger(Database(url))
            return "blocked" if own.open_stage(replace(STAGE, token=f"t{me}")) else "opened"

        assert sorted(map(str, at_once(8, open_stage))) == ["blocked"] * 7 + ["opened"]
        assert len(ledger.list_stages()) == 1

    def test_eight_stages_of_different_partitions_are_all_opened(self, url: str, ledger: SqlLedger) -> None:
        ledger.check()

        def open_stage(me: int) -> str:
            own = SqlLedger(Database(url))
            return "blocked" if own.open_stage(replace(STAGE, token=f"t{me}", partitions=only({"ds": str(me)}))) else "opened"

        assert at_once(8, open_stage) == ["opened"] * 8

    def test_an_owner_that_commits_and_a_sweeper_that_aborts_do_not_both_win(self, url: str, ledger: SqlLedger) -> None:
        for round_ in range(5):
            token = f"t{round_}"
            ledger.open_stage(replace(STAGE, token=token, partitions=only({"ds": token})))

            def move(me: int, token: str = token) -> str:
                target = StageState.COMMITTING if me % 2 else StageState.ABORTED
                SqlLedger(Database(url)).move_stage(token, {StageState.OPEN}, target)
                return target

            found = at_once(4, move)
            stage = ledger.get_stage(token)
            assert sorted(map(str, found)) == sorted([stage.state, stage.state, "CommitRejectedError", "CommitRejectedError"])

    def test_the_same_refresh_is_recorded_by_all(self, url: str, ledger: SqlLedger) -> None:
        ledger.check()

        def record(me: int) -> str:
            SqlLedger(Database(url)).record(replace(REFRESH, files=me))
            return "recorded"

        assert at_once(8, record) == ["recorded"] * 8
        assert len(ledger.list_refreshes()) == 1

    def test_a_ledger_that_was_used_before_the_fork_is_used_after_it(self, ledger: SqlLedger) -> None:
        ledger.record(MINIMAL)

        def record(me: int) -> str:
            ledger.record(replace(REFRESH, token=f"child{me}"))
            return "recorded"

        assert at_once(4, record) == ["recorded"] * 4
        assert len(ledger.list_refreshes()) == 5


def test_published_partitions_are_those_of_their_table(ledger: SqlLedger) -> None:
    first = PublishedPartition("ds=2024-01-01/hh=ü", "t1", NOON)
    other = PublishedPartition("ds=2024-01-02", "t1", NOON, done="t1", offered="t1", told="t0")
    assert ledger.published_partitions(TABLE) == []
    ledger.record_published(TABLE, [other, first])
    ledger.record_published(OTHER, [first])
    ledger.record_published(TABLE, [replace(first, token="t2", told="t1")])
    ledger.record_published(TABLE, [])
    assert ledger.published_partitions(TABLE) == [replace(first, token="t2", told="t1"), other]
    assert ledger.published_partitions(OTHER) == [first]


JOB = Job("j1", "ann", NOON, NOON, RefreshWish("2024-01-02", True), (JobRefresh(TABLE), JobRefresh(OTHER)), "key", "d1")


def test_a_job_is_added_once_for_each_key_of_its_caller(ledger: SqlLedger) -> None:
    assert ledger.add_job(JOB) == JOB
    assert ledger.add_job(replace(JOB, id="j2", digest="d2")) == JOB
    others = [replace(JOB, id="j3", caller="bob", accepted_at=NOON + timedelta(1)), replace(JOB, id="j4", key=None)]
    assert [ledger.add_job(job) for job in [*others, replace(others[1], id="j5")]] == [*others, replace(others[1], id="j5")]
    assert [job.id for job in ledger.list_jobs()] == ["j3", "j5", "j4", "j1"]
    assert ledger.get_job("j2") is None
    assert [ledger.find_job(caller, "key") for caller in ("ann", "eve")] == [JOB, None]


def test_of_many_that_use_a_key_at_once_one_adds_the_job(url: str) -> None:
    made = at_once(4, lambda number: SqlLedger(Database(url)).add_job(replace(JOB, id=f"j{number}")).id)
    assert len(set(made)) == 1


def test_what_becomes_of_a_job_is_kept_until_it_ended(ledger: SqlLedger) -> None:
    ledger.add_job(JOB)
    ledger.change_job("j1", TABLE, token="t1", state=WorkState.RUNNING, cluster={"clusterType": "process"})
    assert ledger.get_job("j1").state is WorkState.RUNNING
    ledger.change_job("j1", TABLE, state=WorkState.FAILED, error="password=\0hidden no")
    ledger.change_job("j1", TABLE, state=WorkState.SUCCEEDED)
    ledger.change_job("j1", OTHER, state=WorkState.SUCCEEDED)
    ledger.renew_jobs(["j1"], NOON + timedelta(minutes=2))
    job = ledger.get_job("j1")
    first = JobRefresh(TABLE, "t1", WorkState.FAILED, {"clusterType": "process"}, "password=*** no")
    assert job.refreshes == (first, JobRefresh(OTHER, state=WorkState.SUCCEEDED))
    assert (job.state, job.lease_until) == (WorkState.FAILED, NOON + timedelta(minutes=2))


def test_old_jobs_are_pruned_with_their_keys(ledger: SqlLedger) -> None:
    ledger.add_job(JOB)
    ledger.prune(NOON)
    assert ledger.get_job("j1") == JOB
    ledger.prune(NOON + timedelta(seconds=1))
    assert ledger.list_jobs() == []
    assert ledger.add_job(replace(JOB, id="j2")).id == "j2"
    ledger.remove_job("j2")
    assert ledger.add_job(replace(JOB, id="j3")).id == "j3"


def test_the_latest_of_many_tables_is_one_question(ledger: SqlLedger) -> None:
    made = replace(REFRESH, version=3, data_timestamp=NOON)
    ledger.record(made)
    ledger.record(replace(made, token="t0", version=2, started_at=NOON - timedelta(1)))
    ledger.record(
        replace(REFRESH, token="t2", state=RefreshState.FAILED, error="no", version=None, started_at=NOON + timedelta(1))
    )
    ledger.record(replace(REFRESH, token="o1", table=OTHER, state=RefreshState.SKIPPED, version=None))
    starts = (NOON + timedelta(1), REFRESH.started_at)
    last, other = (RefreshStart(REFRESH.action, REFRESH.reason, start) for start in starts)
    unknown = TableIdentifier("lake", "sales", "unknown")
    assert ledger.latest([TABLE, OTHER, unknown]) == {
        TABLE: Latest(
            *("FAILED", "no", "t1", 3, NOON, REFRESH.action, NOON, "FAILED", "no"),
            *(made.snapshot, made.finished_at, dict(made.sources), last, last),
        ),
        OTHER: Latest("SKIPPED", REFRESH.error, tick_time=NOON, tick_state="SKIPPED", begun=other, tick=other),
    }
    assert ledger.latest([]) == {}
    assert ledger.held(["t1", "t0", "nobody's"]) == dict.fromkeys(("t1", "t0"), Held(NOON, NOON - timedelta(hours=1)))


def test_a_line_that_is_extended_holds_up_to_the_latest_time_that_was_said(ledger: SqlLedger) -> None:
    line = replace(REFRESH, action=RefreshAction.NO_DATA, state=RefreshState.SKIPPED, data_timestamp=None, finished_at=NOON)
    times = [None, NOON, NOON - timedelta(hours=1), None]
    for minutes, said in enumerate(times):
        then = NOON + timedelta(minutes=minutes)
        ledger.extend(replace(line, finished_at=then, data_timestamp=said, watermark=then))
    extended = ledger.get_refresh(line.token)
    assert (extended.data_timestamp, extended.finished_at, extended.watermark) == (NOON, then, then)
    assert extended.occurrences == line.occurrences, "all were of one tick"
    ledger.extend(replace(line, finished_at=then + timedelta(hours=1), schedule_time=NOON + timedelta(hours=1)))
    ledger.extend(replace(line, finished_at=then + timedelta(hours=2)))
    assert ledger.get_refresh(line.token).occurrences == line.occurrences + 1


def test_the_latest_tick_is_not_hidden_by_what_was_refreshed_since(ledger: SqlLedger) -> None:
    failed = replace(REFRESH, token="t0", state=RefreshState.FAILED, error="no", version=None)
    asked = replace(REFRESH, token="t1", started_at=NOON + timedelta(1), reason_code=ReasonCode.ASKED_FOR)
    older = replace(REFRESH, token="t2", started_at=NOON + timedelta(2), schedule_time=NOON - timedelta(1))
    for refresh in (failed, asked, older):
        ledger.record(refresh)
    latest = ledger.latest([TABLE])[TABLE]
    assert (latest.state, latest.tick_time, latest.tick_state, latest.tick_error) == ("SUCCEEDED", NOON, "FAILED", "no")


def test_the_numbers_of_versions_by_their_snapshots_are_one_question(ledger: SqlLedger) -> None:
    for number, snapshot in ((2, "5"), (3, "6"), (4, "7")):
        at = NOON + timedelta(hours=number)
        ledger.record(replace(REFRESH, token=f"t{number}", version=number, snapshot=snapshot, started_at=at))
    ledger.record(replace(REFRESH, token="o1", table=OTHER, version=9, snapshot="5"))
    ledger.record(replace(REFRESH, token="failed", version=None, snapshot="8", started_at=NOON + timedelta(hours=8)))
    asked = [
        (str(TABLE), "5"),
        (str(TABLE), "7"),
        (str(OTHER), "5"),
        (str(OTHER), "7"),
        (str(TABLE), "8"),
        ("no.such.table", "5"),
    ]
    assert ledger.version_numbers(asked) == {(str(TABLE), "5"): 2, (str(TABLE), "7"): 4, (str(OTHER), "5"): 9}
    assert ledger.version_numbers([]) == {}


def test_the_number_of_a_version_is_looked_for_among_the_latest(ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_dynamic_tables.ledger.latest._LOOKED_AT", 2)
    for number in (1, 2, 3):
        at = NOON + timedelta(hours=number)
        ledger.record(replace(REFRESH, token=f"t{number}", version=number, snapshot=f"s{number}", started_at=at))
    assert ledger.version_numbers([(str(TABLE), f"s{number}") for number in (1, 2, 3)]) == {
        (str(TABLE), "s2"): 2,
        (str(TABLE), "s3"): 3,
    }


def test_state_outlives_the_connection(url: str) -> None:
    first = SqlLedger(Database(url))
    first.open_stage(STAGE)
    first.close()
    first.close()
    assert first.get_stage("t1") == STAGE
    assert SqlLedger(Database(url)).get_stage("t1") == STAGE


def test_a_server_that_is_down_is_one_sentence() -> None:
    ledger = SqlLedger(Database("postgresql://me:secret@127.0.0.1:1/airflow"))
    for call in (ledger.check, ledger.list_stages, lambda: ledger.record(REFRESH)):
        with pytest.raises(CatalogUnavailableError, match=r"127\.0\.0\.1:1/airflow.*check that it runs") as raised:
            call()
        assert "secret" not in str(raised.value)
        assert "\n" not in str(raised.value)


class TestLateTables:
    def test_a_table_is_watched_from_the_first_time_on(self, ledger: SqlLedger) -> None:
        assert ledger.watches([TABLE], NOON) == {TABLE: Watch(NOON)}
        later = NOON + timedelta(hours=1)
        assert ledger.watches([OTHER, TABLE], later) == {OTHER: Watch(later), TABLE: Watch(NOON)}
        assert ledger.watches([], later) == {}

    def test_late_periods_are_continued_and_expire(self, ledger: SqlLedger) -> None:
        def at(hours: float) -> datetime:
            return NOON + timedelta(hours=hours)

        def check(hours: float, *periods: LatePeriod, keep: float = -24) -> dict[TableIdentifier, list[LatePeriod]]:
            ledger.record_checks({TABLE: at(1)}, {TABLE: periods}, at(hours), at(keep))
            return ledger.late_periods()

        ledger.watches([TABLE], NOON)
        assert check(2, LatePeriod(at(1), at(2), is_certain=True)) == {TABLE: [LatePeriod(at(1), at(2), is_certain=True)]}
        assert ledger.watches([TABLE], at(3)) == {TABLE: Watch(NOON, at(2), at(1))}
        first = LatePeriod(at(1), at(3), is_certain=True)
        assert check(3, LatePeriod(at(2), at(3), is_certain=True)) == {TABLE: [first]}
        second = LatePeriod(at(3), at(5), is_certain=False)
        assert check(5, second) == {TABLE: [first, second]}
        assert check(6, keep=3) == {TABLE: [second]}
        assert check(4) == {}, "the clock of the check that recorded it was wrong"

    def test_one_of_many_processes_sends_a_notice(self, ledger: SqlLedger) -> None:
        def claim(_: int) -> bool:
            return ledger.claim_notice(TABLE, "page", NOON, NOON + timedelta(minutes=5))

        assert sorted(map(bool, at_once(8, claim))) == [*[False] * 7, True]
        assert ledger.claim_notice(TABLE, "chat", NOON, NOON + timedelta(minutes=5)), "another callback has its own notice"

    def test_a_notice_that_was_not_sent_is_claimed_again(self, ledger: SqlLedger) -> None:
        until = NOON + timedelta(minutes=5)
        assert ledger.claim_notice(TABLE, "page", NOON, until)
        assert not ledger.claim_notice(TABLE, "page", until - timedelta(seconds=1), until)
        assert ledger.claim_notice(TABLE, "page", until, until + timedelta(minutes=5))
        ledger.record_notice(TABLE, "page", until)
        assert not ledger.claim_notice(TABLE, "page", until + timedelta(days=1), until + timedelta(days=2))

    def test_each_lateness_has_its_notice(self, ledger: SqlLedger) -> None:
        for table in (TABLE, OTHER):
            ledger.claim_notice(table, "page", NOON, NOON)
            ledger.record_notice(table, "page", NOON)
        ledger.forget_notices([TABLE])
        assert ledger.claim_notice(TABLE, "page", NOON, NOON)
        assert not ledger.claim_notice(OTHER, "page", NOON, NOON)

    def test_they_follow_a_renamed_table(self, ledger: SqlLedger) -> None:
        ledger.watches([TABLE], NOON)
        ledger.claim_notice(TABLE, "page", NOON, NOON)
        ledger.record_notice(TABLE, "page", NOON)
        ledger.watches([OTHER], NOON + timedelta(hours=1))  # by its declaration, before the rename
        ledger.record_checks({}, {TABLE: [LatePeriod(NOON, NOON, is_certain=True)]}, NOON, NOON - timedelta(days=1))
        ledger.rename_table(TABLE, OTHER)
        assert ledger.late_periods().keys() == {OTHER}
        assert ledger.watches([OTHER], NOON + timedelta(hours=2)) == {OTHER: Watch(NOON)}
        assert not ledger.claim_notice(OTHER, "page", NOON, NOON)
