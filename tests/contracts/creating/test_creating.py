"""A table is there whole or never was; one that is replaced has its old rows or the new ones; what others made stays."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_dynamic_tables.catalog.values import ONE_OFF, CatalogTable
from airflow_dynamic_tables.core.identifiers import ObjectPath, TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.steps import Step
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    CommitRejectedError,
    ConflictError,
    InvalidPartitionError,
    JobFailedError,
    StageRejectedError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from airflow_dynamic_tables.ledger.base import StageState
from airflow_dynamic_tables.services.ctas.wanted import CtasOutcome, Purpose
from airflow_dynamic_tables.services.lifecycle.dropping import drop
from airflow_dynamic_tables.services.maintenance.sweeping import sweep
from airflow_dynamic_tables.services.writes import drafts, settling
from airflow_dynamic_tables.services.writes.leases import LEASE
from airflow_dynamic_tables.services.writes.settling import abort, reconcile, settle
from tests.contracts.creating.maker import Maker
from tests.support.pyarrow_job import write_days

DAYS = {"1": [1], "2": [2, 3]}


def fail(_: RefreshPlan) -> None:
    raise JobFailedError("DIVIDE_BY_ZERO")


def unreachable(*_: object) -> None:
    raise CatalogUnavailableError("it is down")


def check_never_existed(maker: Maker) -> None:
    assert maker.names() == []
    assert maker.files() == []


def test_a_table_is_there_when_its_job_and_commit_succeeded(maker: Maker) -> None:
    def look(_: RefreshPlan) -> None:
        assert not maker.exists()
        with pytest.raises(TableNotFoundError):
            maker.workspace.catalog("lake").get_table(maker.table.path)

    made = maker.create("t1", DAYS, before=look, after=look)
    assert (made.outcome, made.version, made.rows, made.files, made.token) == (CtasOutcome.CREATED, 1, 3, 2, "t1")
    assert maker.rows() == DAYS
    assert maker.names() == ["figures"]
    entry = maker.workspace.catalog("lake").get_table(maker.table.path)
    assert isinstance(entry, CatalogTable)
    assert (entry.properties, entry.format, entry.partition_keys) == ({ONE_OFF: "t1"}, maker.format, ("ds",))
    assert {column.name for column in entry.columns} == {"ds", "n"}
    with pytest.raises(TableAlreadyExistsError):
        maker.create("t2", DAYS)


def test_a_table_whose_job_fails_never_existed(maker: Maker) -> None:
    with pytest.raises(JobFailedError):
        maker.create("t1", DAYS, after=fail)
    check_never_existed(maker)
    assert maker.create("t2", DAYS).outcome is CtasOutcome.CREATED


def test_a_replaced_table_keeps_its_rows_until_the_commit_and_when_it_fails(maker: Maker) -> None:
    def look(_: RefreshPlan) -> None:
        assert maker.rows() == DAYS

    maker.create("t1", DAYS)
    with pytest.raises(JobFailedError):
        maker.create("t2", {"9": [9]}, Purpose.CREATE_OR_REPLACE, before=look, after=fail)
    assert maker.rows() == DAYS
    made = maker.create("t3", {"3": [4]}, Purpose.CREATE_OR_REPLACE, after=look, more=("m",))
    assert (made.outcome, made.version) == (CtasOutcome.REPLACED, 2)
    assert maker.rows() == {"3": [4]}
    assert [column.name for column in maker.workspace.catalog("lake").get_table(maker.table.path).columns if column.name == "m"]
    assert maker.names() == ["figures"]


@pytest.mark.needs("other keys")
def test_a_table_is_replaced_by_one_with_other_partition_keys_and_fewer_columns(maker: Maker) -> None:
    maker.create("t1", DAYS, more=("m",))
    made = maker.create("t2", {"3": [4]}, Purpose.CREATE_OR_REPLACE, keys=())
    assert (made.outcome, made.version) == (CtasOutcome.REPLACED, 2)
    entry = maker.workspace.catalog("lake").get_table(maker.table.path)
    assert isinstance(entry, CatalogTable)
    assert ({column.name for column in entry.columns}, entry.partition_keys) == ({"ds", "n"}, ())
    assert maker.rows() == {"3": [4]}
    with pytest.raises(InvalidPartitionError, match="is not partitioned"):
        maker.workspace.catalog("lake").list_partitions(maker.table.path)
    maker.create("t3", DAYS, Purpose.CREATE_OR_REPLACE, keys=("ds",))
    assert maker.rows() == DAYS
    assert maker.workspace.catalog("lake").list_partitions(maker.table.path) == [{"ds": "1"}, {"ds": "2"}]
    assert maker.workspace.catalog("lake").get_partition(maker.table.path, {"ds": "2"}).spec == {"ds": "2"}


def test_if_not_exists_runs_no_job_when_the_table_is_there(maker: Maker) -> None:
    assert maker.create("t1", DAYS, Purpose.CREATE_IF_NOT_EXISTS).outcome is CtasOutcome.CREATED
    made = maker.create("t2", {}, Purpose.CREATE_IF_NOT_EXISTS, before=lambda _: pytest.fail("Spark was started"))
    assert made.outcome is CtasOutcome.EXISTS


@pytest.mark.parametrize("purpose", [Purpose.CREATE_IF_NOT_EXISTS, Purpose.CREATE_OR_REPLACE])
def test_a_table_of_others_that_appears_meanwhile_stays(maker: Maker, purpose: Purpose) -> None:
    made: list[CatalogTable] = []

    def theirs(_: RefreshPlan) -> None:
        made.append(maker.make_theirs())

    if purpose is Purpose.CREATE_IF_NOT_EXISTS:
        assert maker.create("t1", DAYS, purpose, after=theirs).outcome is CtasOutcome.EXISTS
    else:
        with pytest.raises(TableAlreadyExistsError, match=r"figures was created by another client meanwhile; it stays as it"):
            maker.create("t1", DAYS, purpose, after=theirs)
    check_theirs_stays(maker, made[0])


def check_theirs_stays(maker: Maker, theirs: CatalogTable) -> None:
    assert maker.workspace.catalog("lake").get_table(maker.table.path).columns == theirs.columns
    assert maker.names() == ["figures"]
    assert maker.files() == []


def test_a_table_of_others_that_appears_at_the_last_moment_stays(maker: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[CatalogTable] = []

    def theirs(step: Step, _: str) -> None:
        if step is Step.NAMING:
            made.append(maker.make_theirs())

    monkeypatch.setattr(drafts, "trace", theirs)
    with pytest.raises(TableAlreadyExistsError, match="created by another client meanwhile"):
        maker.create("t1", DAYS)
    check_theirs_stays(maker, made[0])


def test_a_second_creator_is_told_of_the_first(maker: Maker) -> None:
    def try_too(_: RefreshPlan) -> None:
        for purpose in Purpose:
            with pytest.raises(ConflictError, match=r"figures is being created by owner of t1 since"):
                maker.create(f"t2-{purpose}", DAYS, purpose)

    assert maker.create("t1", DAYS, after=try_too).outcome is CtasOutcome.CREATED
    assert maker.names() == ["figures"]


def test_what_a_dead_creator_left_is_settled_by_the_next_one(maker: Maker) -> None:
    def die(_: RefreshPlan) -> None:
        maker.clock.time += LEASE + timedelta(seconds=1)
        assert maker.create("t2", {"9": [9]}).outcome is CtasOutcome.CREATED

    with pytest.raises(StageRejectedError, match=r"is gone .*it was deleted while the job ran"):
        maker.create("t1", DAYS, after=die)
    assert maker.names() == ["figures"]
    assert len(maker.files()) == 1
    stage = maker.workspace.ledger.get_stage("t1")
    assert stage.state is StageState.ABORTED


def test_a_creator_that_was_given_up_cannot_give_the_table_its_name(maker: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    def take_away(step: Step, token: str) -> None:
        if step is Step.NAMING:
            abort(maker.workspace, token, "somebody aborts it just now")

    monkeypatch.setattr(drafts, "trace", take_away)
    with pytest.raises(CommitRejectedError, match="was given up while it was made; nothing was created"):
        maker.create("t1", DAYS)
    check_never_existed(maker)


def test_a_name_whose_answer_is_lost_is_looked_up(maker: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = maker.workspace.catalog("lake")
    publish = catalog.publish_draft

    def answer_is_lost(draft: ObjectPath, name: str) -> None:
        publish(draft, name)
        raise CatalogUnavailableError("the answer is lost")

    monkeypatch.setattr(catalog, "publish_draft", answer_is_lost)
    assert maker.create("t1", DAYS).outcome is CtasOutcome.CREATED
    assert (maker.rows(), maker.names()) == (DAYS, ["figures"])
    assert sweep(maker.workspace).failed == ()
    assert (maker.rows(), maker.names()) == (DAYS, ["figures"])


def test_a_name_that_the_catalog_did_not_give_was_never_there(maker: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maker.workspace.catalog("lake"), "publish_draft", unreachable)
    with pytest.raises(CommitRejectedError, match="figures could not get its name: it is down"):
        maker.create("t1", DAYS)
    check_never_existed(maker)


def test_files_stay_of_a_table_that_got_its_name_and_another_one_before_the_ledger_knew(maker: Maker) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settling, "record_landed", unreachable)
        maker.create("t1", DAYS)
    maker.workspace.catalog("lake").rename_table(maker.table.path, "renamed")
    (stage,) = maker.workspace.ledger.list_stages(maker.table)
    settle(maker.workspace, stage, "abandoned")
    assert maker.rows("renamed") == DAYS
    sweep(maker.workspace)
    assert (maker.rows("renamed"), maker.names()) == (DAYS, ["renamed"])


def test_an_abort_after_the_commit_takes_nothing_away(maker: Maker) -> None:
    maker.create("t1", DAYS)
    stage = maker.workspace.ledger.get_stage("t1")
    assert stage is not None
    abort(maker.workspace, "t1", "a late callback")
    with pytest.raises(ConflictError, match=r"reads .*"):
        drafts.DraftedTable(maker.workspace, maker.table, maker.format, "t1").abort(stage.location)
    assert reconcile(maker.workspace, "t1") is not None
    assert (maker.rows(), maker.names()) == (DAYS, ["figures"])


def test_a_table_is_dropped_with_its_files_and_can_be_made_again(maker: Maker) -> None:
    maker.create("t1", DAYS)
    assert drop(maker.workspace, maker.table, purge=True).purged.files > 0
    check_never_existed(maker)
    assert maker.create("t2", DAYS).outcome is CtasOutcome.CREATED


@pytest.mark.sampled
def test_another_table_is_made_of_it(maker: Maker) -> None:
    maker.create("t1", DAYS)
    copy = TableIdentifier("lake", maker.table.database, "copy")
    versions: list[str] = []

    def job(plan: RefreshPlan) -> None:
        (source,) = plan.sources
        versions.append(source.version)
        write_days(plan, DAYS)

    made = maker.create_of("t2", copy, f"SELECT * FROM {maker.table}", job)
    assert made.sources == {str(maker.table): versions[0]}
    assert maker.rows("copy") == DAYS
