"""Going back to an earlier version: by the same protocol as a refresh."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_dynamic_tables.exceptions import ConflictError, TableNotFoundError, VersionNotFoundError
from airflow_dynamic_tables.ledger.base import RefreshState, StageState
from airflow_dynamic_tables.services.refresh.running import commit
from airflow_dynamic_tables.services.status import show_table
from airflow_dynamic_tables.services.tables.rollback import RollbackRequest, rollback
from tests.support.benches.versions import MARCH, NUMBERS, TOTAL, VersionBench
from tests.support.pyarrow_job import write_numbers


def test_read_an_old_version_roll_back_and_refresh_on_top(version_bench: VersionBench) -> None:
    first = version_bench.refresh(1, 2)
    version_bench.refresh(3, at=MARCH + timedelta(days=1))
    assert (version_bench.numbers(1), version_bench.numbers()) == ([1, 2], [3])
    restored = version_bench.rollback(1, "back")
    assert (restored.number, restored.data_timestamp, restored.sources) == (3, MARCH, first.sources)
    assert version_bench.numbers() == [1, 2]
    assert version_bench.refresh(4, at=MARCH + timedelta(days=1)).number == 4
    assert [version_bench.numbers(number) for number in (1, 2, 3, 4)] == [[1, 2], [3], [1, 2], [4]]
    details = show_table(version_bench.workspace, NUMBERS)
    assert [version.number for version in details.versions] == [4, 3, 2, 1]
    assert [refresh.action for refresh in details.refreshes] == ["FULL", "ROLLBACK", "FULL", "INITIALIZE"]


def test_a_restored_version_has_the_sources_of_the_old_one(version_bench: VersionBench) -> None:
    ledger = version_bench.workspace.ledger
    version_bench.refresh(1)
    first = version_bench.refresh(1, table=TOTAL)
    version_bench.refresh(2)
    second = version_bench.refresh(2, table=TOTAL)
    states = ledger.source_states(first.token)
    assert states[str(NUMBERS)].version == first.sources[str(NUMBERS)]
    assert states[str(NUMBERS)].partitions != ledger.source_states(second.token)[str(NUMBERS)].partitions
    rollback(version_bench.workspace, RollbackRequest(TOTAL, 1, "back", "somebody"))
    assert ledger.source_states("back") == states


def test_the_ledger_tells_of_a_rollback(version_bench: VersionBench) -> None:
    first = version_bench.refresh(1)
    version_bench.refresh(2)
    restored = version_bench.rollback(1, "back")
    refresh = version_bench.workspace.ledger.get_refresh("back")
    assert (refresh.action, refresh.reason, refresh.state) == ("ROLLBACK", "version 1 asked for", RefreshState.SUCCEEDED)
    assert (refresh.version, refresh.snapshot, refresh.data_timestamp) == (3, restored.snapshot, MARCH)
    assert refresh.sources == {str(NUMBERS): first.snapshot}
    stage = version_bench.workspace.ledger.get_stage("back")
    assert stage.state is StageState.COMMITTED


def test_a_version_that_is_not_kept_is_refused_and_nothing_recorded(version_bench: VersionBench) -> None:
    version_bench.refresh(1)
    with pytest.raises(VersionNotFoundError, match=r"Version 7 of lake.sales.numbers is not kept \(any more\); kept are: 1"):
        version_bench.rollback(7, "back")
    with pytest.raises(VersionNotFoundError, match="kept are: 1"):
        version_bench.numbers(7)
    with pytest.raises(TableNotFoundError):
        version_bench.rollback(1, table=TOTAL)
    assert version_bench.workspace.ledger.get_refresh("back") is None


def test_a_running_refresh_is_not_disturbed(version_bench: VersionBench) -> None:
    version_bench.refresh(1)
    version_bench.refresh(2)
    running = version_bench.begin(NUMBERS, "running")
    with pytest.raises(ConflictError, match="is being refreshed by running"):
        version_bench.rollback(1)
    write_numbers(running.plan, (3,))
    commit(version_bench.workspace, running)
    assert version_bench.rollback(1).number == 4
    assert version_bench.numbers() == [1]


def test_the_same_token_again_is_refused(version_bench: VersionBench) -> None:
    version_bench.refresh(1)
    version_bench.refresh(2)
    version_bench.rollback(1, "back")
    with pytest.raises(ConflictError, match="is COMMITTED already"):
        rollback(version_bench.workspace, RollbackRequest(NUMBERS, 2, "back", "me"))
    assert version_bench.numbers() == [1]
