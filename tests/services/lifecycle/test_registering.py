"""A table whose scheduler says no is not there afterwards; one that is there already stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.lifecycle.registration import Registration, register
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.benches.versions import NUMBERS, VersionBench
from tests.support.pyarrow_job import write_numbers

NOBODYS = "nobodys_scheduler"


@pytest.fixture
def table(version_bench: VersionBench) -> DynamicTable:
    return version_bench.definitions.tables[NUMBERS]


def exists(workspace: Workspace) -> bool:
    return workspace.catalog("lake").table_exists(NUMBERS.path)


def test_nothing_is_left_of_a_table_whose_scheduler_says_no(version_bench: VersionBench, table: DynamicTable) -> None:
    workspace = version_bench.workspace
    with pytest.raises(ConfigurationError, match=NOBODYS):
        register(workspace, replace(table, scheduler=NOBODYS))
    assert not exists(workspace)
    assert workspace.ledger.list_stages() == []
    assert register(workspace, table) is Registration.CREATED
    assert register(workspace, table) is Registration.UNCHANGED


def test_a_table_that_is_refreshed_meanwhile_stays(
    version_bench: VersionBench, table: DynamicTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = version_bench.workspace

    def refreshed(*_: object) -> str:
        run(workspace, version_bench.request(NUMBERS), write_numbers)
        raise ConfigurationError("the scheduler says no")

    monkeypatch.setattr("airflow_dynamic_tables.services.lifecycle.registration.schedule_workflow", refreshed)
    with pytest.raises(ConfigurationError, match="the scheduler says no"):
        register(workspace, table)
    assert version_bench.numbers() == [1, 2, 3]


def test_a_table_that_was_there_stays(version_bench: VersionBench, table: DynamicTable) -> None:
    register(version_bench.workspace, table)
    with pytest.raises(ConfigurationError, match=NOBODYS):
        register(version_bench.workspace, replace(table, scheduler=NOBODYS))
    assert exists(version_bench.workspace)
