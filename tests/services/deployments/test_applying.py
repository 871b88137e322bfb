"""Applying what is different: again it changes nothing, and what takes Spark is left or done as asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.catalog.values import CatalogDynamicTable, JobState
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.exceptions import JobFailedError, TableNotFoundError
from airflow_dynamic_tables.services.deployments.diffing import Applied, ApplyOutcome, apply, differences
from airflow_dynamic_tables.services.deployments.values import Change
from airflow_dynamic_tables.services.refresh.requests import Skipped
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.tables.rollback import RollbackRequest, rollback
from tests.services.deployments.conftest import VISITS, Bench
from tests.support.schedulers.dolphin import stand_in

NARROW = "SELECT ds, n FROM lake.raw.log"


def applied(bench: Bench, definitions: Definitions, **how: Any) -> dict[str, Applied]:
    found = [one for one in differences(bench.workspace, definitions) if one.change is not Change.REMOVED]
    return {one.identifier.table: apply(bench.workspace, one, definitions.tables[one.identifier], **how) for one in found}


def outcomes(done: dict[str, Applied]) -> dict[str, ApplyOutcome]:
    return {name: one.outcome for name, one in done.items()}


def entry(bench: Bench) -> CatalogDynamicTable:
    table = bench.workspace.catalog("lake").get_table(VISITS.path)
    assert isinstance(table, CatalogDynamicTable)
    return table


def test_twice_is_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    definitions = bench.declared()
    assert set(outcomes(applied(bench, definitions)).values()) == {ApplyOutcome.REGISTERED}

    def write(*_: object, **__: object) -> None:
        raise AssertionError("nothing is written")

    for method in ("create_table", "change_table", "create_database"):
        monkeypatch.setattr(SqlCatalog, method, write)
    assert set(outcomes(applied(bench, definitions)).values()) == {ApplyOutcome.UNCHANGED}


def test_metadata_needs_no_spark_and_leaves_what_refreshes_the_table(bench: Bench) -> None:
    bench.fill(bench.declared())
    assert entry(bench).refresh_handler.job_state is JobState.RUNNING

    def refresh(table: DynamicTable) -> Version:
        raise AssertionError(f"{table.identifier} needs no refresh")

    done = applied(bench, bench.declared(more=", comment: Two"), refresh=refresh)
    assert outcomes(done) == {"visits": ApplyOutcome.REGISTERED, "total": ApplyOutcome.REGISTERED}
    assert entry(bench).comment == "Two"
    assert entry(bench).refresh_handler.job_state is JobState.RUNNING


def test_other_rows_are_left_to_refreshes_or_made_now(bench: Bench) -> None:
    bench.fill(bench.declared())
    other = bench.declared("SELECT ds, n, extra * 2 AS extra FROM lake.raw.log")
    left = applied(bench, other)["visits"]
    assert (left.outcome, left.version) == (ApplyOutcome.REGISTERED, None)
    assert "apply --refresh" in (left.detail or "")

    def refresh(table: DynamicTable) -> Version | Skipped:
        assert table == other.tables[VISITS]
        return bench.fill(other, full=True)

    made = applied(bench, other, refresh=refresh)["visits"]
    assert (made.outcome, made.version) == (ApplyOutcome.REFRESHED, 2)
    assert outcomes(applied(bench, other, refresh=refresh))["visits"] is ApplyOutcome.UNCHANGED


def test_a_rebuild_is_made_beside_and_can_be_taken_back(bench: Bench) -> None:
    bench.fill(bench.declared())
    wide = sample(bench.workspace, VISITS, 1)
    narrow = bench.declared(NARROW)
    refused = applied(bench, narrow)["visits"]
    assert refused.outcome is ApplyOutcome.NOT_DONE
    assert "apply --refresh" in (refused.detail or "")
    assert entry(bench).expanded_query != narrow.tables[VISITS].expanded_query, "nothing is registered that cannot be refreshed"

    done = applied(bench, narrow, refresh=lambda _: bench.fill(narrow, full=True, more=()))["visits"]
    assert (done.outcome, done.version) == (ApplyOutcome.REFRESHED, 2)
    assert set(sample(bench.workspace, VISITS, 1)[0]) == {"ds", "n"}
    assert sample(bench.workspace, VISITS, 1, version=1) == wide, "the old version is kept, with its columns"


def test_what_fails_is_told_and_stays_to_be_done(bench: Bench) -> None:
    bench.fill(bench.declared())
    narrow = bench.declared(NARROW)

    def fail(_: DynamicTable) -> Version:
        raise JobFailedError("The cluster is gone.")

    done = applied(bench, narrow, refresh=fail)
    assert (done["visits"].outcome, done["visits"].detail) == (ApplyOutcome.NOT_DONE, "The cluster is gone.")
    assert done["total"].outcome is ApplyOutcome.REGISTERED, "one table keeps no other from being deployed"
    assert differences(bench.workspace, narrow)[0].change is Change.REBUILD


def test_a_version_that_is_restored_is_no_difference(bench: Bench) -> None:
    definitions = bench.declared()
    for _ in range(2):
        bench.fill(definitions)
    applied(bench, definitions)
    rollback(bench.workspace, RollbackRequest(VISITS, 1, "r1", "a test"))
    assert outcomes(applied(bench, definitions)) == {"visits": ApplyOutcome.UNCHANGED, "total": ApplyOutcome.UNCHANGED}


def test_a_rebuild_is_taken_back_without_spark(bench: Bench) -> None:
    wide = bench.declared()
    bench.fill(wide)
    rows = sample(bench.workspace, VISITS, 9)
    narrow = bench.declared(NARROW)
    applied(bench, narrow, refresh=lambda _: bench.fill(narrow, full=True, more=()))
    rollback(bench.workspace, RollbackRequest(VISITS, 1, "r1", "a test", with_columns=True))
    assert sample(bench.workspace, VISITS, 9) == rows
    assert differences(bench.workspace, narrow)[0].change is Change.REBUILD, "until the definition follows"
    again = bench.declared()
    assert outcomes(applied(bench, again))["visits"] is ApplyOutcome.REGISTERED
    bench.fill(again)
    assert differences(bench.workspace, again)[0].change is Change.UNCHANGED


def test_another_scheduler_gets_its_workflow_and_what_failed_there_is_done_the_next_time(bench: Bench) -> None:
    definitions = bench.declared(more=", scheduler: dolphinscheduler")
    with stand_in("3.3") as dolphin:
        down = replace(bench.workspace.settings, connections=lambda name: replace(dolphin.connections(name), host="127.0.0.1:9"))
        bench.workspace = replace(bench.workspace, settings=down)
        failed = applied(bench, definitions)["visits"]
        assert (failed.outcome, "cannot be reached" in str(failed.detail)) == (ApplyOutcome.NOT_DONE, True)
        with pytest.raises(TableNotFoundError):
            entry(bench)
        bench.workspace = replace(bench.workspace, settings=replace(down, connections=dolphin.connections))
        applied(bench, definitions)
        assert [workflow["releaseState"] for workflow in dolphin.workflows.values()] == ["ONLINE"]
        before = entry(bench)
        assert outcomes(applied(bench, definitions))["visits"] is ApplyOutcome.UNCHANGED
        assert entry(bench) == before
        # Airflow has it again.
        applied(bench, bench.declared())
        assert (dolphin.workflows, entry(bench).refresh_handler.job_detail["schedulerType"]) == ({}, "airflow")
