"""A stage that is not what was planned is never committed: the reason is in the history, its files are gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.clients.files import read_text, write_text
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult, StagedFile
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import StageRejectedError
from airflow_dynamic_tables.ledger.base import RefreshState, StageState
from airflow_dynamic_tables.services.refresh.running import run
from tests.support.faults.report import FaultReport
from tests.support.faults.truth import check_all_settled, content, data_files
from tests.support.faults.victims import Attempt, Site, refresh, refresh_in

# It is PyIceberg by which somebody makes a column required.
pytestmark = pytest.mark.parametrize(
    "site",
    [
        "sqlite",
        pytest.param("delta", marks=pytest.mark.lacks("required columns")),
        pytest.param("jdbc", marks=[pytest.mark.postgres, pytest.mark.lacks("required columns", "files")]),
    ],
    indirect=True,
)

Spoil = Callable[[RefreshPlan], None]
BASE = Attempt("base", {"1": [1], "2": [2]})
SPOILED = Attempt("spoiled", {"1": [10, 11], "3": [30]}, planned=("1", "3"))


def local(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def result_of(plan: RefreshPlan) -> RefreshResult:
    return RefreshResult.from_json(read_text(plan.result_location))


def claiming(**changes: Any) -> Spoil:
    """A job that wrote the right files and says something else."""
    return lambda plan: write_text(plan.result_location, replace(result_of(plan), **changes).to_json())


def no_result(plan: RefreshPlan) -> None:
    local(plan.result_location).unlink()


def truncated_result(plan: RefreshPlan) -> None:
    file = local(plan.result_location)
    file.write_text(file.read_text()[:-30])


def empty_result(plan: RefreshPlan) -> None:
    local(plan.result_location).write_text("")


def foreign_result(plan: RefreshPlan) -> None:
    """That of an earlier refresh, which was committed already."""
    local(plan.result_location).write_text((local(plan.stage).parent / "base" / "_result.json").read_text())


def foreign_file(plan: RefreshPlan) -> None:
    """Rows of another stage, under a result of its own."""
    (other,) = (local(plan.stage).parent / "base").rglob("*=1/*.parquet")
    result = result_of(plan)
    files = (StagedFile(f"file://{other}", other.stat().st_size), *result.files[1:])
    write_text(plan.result_location, replace(result, files=files).to_json())


def vanished_file(plan: RefreshPlan) -> None:
    local(result_of(plan).files[1].path).unlink()


def truncated_file(plan: RefreshPlan) -> None:
    file = local(result_of(plan).files[1].path)
    file.write_bytes(file.read_bytes()[:-8])


def half_a_file(plan: RefreshPlan) -> None:
    """Truncated before the job looked at its size."""
    truncated_file(plan)
    result = result_of(plan)
    files = tuple(StagedFile(file.path, local(file.path).stat().st_size) for file in result.files)
    write_text(plan.result_location, replace(result, files=files).to_json())


DS, N = Column("ds", "string"), Column("n", "bigint")
SPOILS: dict[str, tuple[Spoil, str]] = {
    "no result": (no_result, "ended without a result"),
    "truncated result": (truncated_result, "is damaged"),
    "empty result": (empty_result, "is damaged"),
    "foreign result": (foreign_result, "The result is of token base, not of spoiled"),
    "foreign file": (foreign_file, "outside its stage"),
    "vanished file": (vanished_file, "part-1.parquet is missing or damaged"),
    "truncated file": (truncated_file, "part-1.parquet is missing or damaged"),
    "half a file": (half_a_file, "part-1.parquet is missing or damaged"),
    "other rows than it says": (claiming(rows=4), "hold 3 rows, the job wrote 4"),
    "column dropped": (claiming(columns=(DS,)), "no longer returns column 'n'"),
    "column renamed": (claiming(columns=(DS, Column("m", "bigint"))), "was n bigint, but the query returns m bigint"),
    "column retyped": (claiming(columns=(DS, Column("n", "string"))), "was n bigint, but the query returns n string"),
    "columns reordered": (claiming(columns=(N, DS)), "was ds string, but the query returns n bigint"),
    "column put in front": (claiming(columns=(Column("new", "int"), DS, N)), "was ds string, but the query returns new int"),
}


OF_FILES = ("foreign result", "foreign file", "vanished file", "truncated file", "half a file")


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [pytest.param(*SPOILS[name], id=name, marks=[pytest.mark.needs("files")] if name in OF_FILES else []) for name in SPOILS],
)
def test_a_spoiled_stage(site: Site, fault_report: FaultReport, spoil: Spoil, reason: str) -> None:
    refresh(site, BASE)
    fault_report.injected("spoiled stage")

    def job(plan: RefreshPlan) -> None:
        SPOILED.job(plan)
        spoil(plan)

    with site.open() as workspace:
        with pytest.raises(StageRejectedError, match=reason):
            run(workspace, site.request(SPOILED), job)
        check_refused(site, reason)
        refresh_in(workspace, site, replace(SPOILED, token="again"))
        assert content(workspace) == {"1": [10, 11], "2": [2], "3": [30]}
        check_all_settled(site, workspace)


@pytest.mark.sampled
@pytest.mark.parametrize("honest", [True, False])
def test_rows_of_a_partition_that_was_not_planned(site: Site, fault_report: FaultReport, honest: bool) -> None:
    refresh(site, BASE)
    fault_report.injected("spoiled stage")
    request = site.request(replace(SPOILED, planned=("1",)))

    def job(plan: RefreshPlan) -> None:
        SPOILED.job(plan)
        if not honest:
            claiming(partitions=({"ds": "1"},))(plan)

    with site.open() as workspace, pytest.raises(StageRejectedError, match="partition ds=3, which was not planned"):
        run(workspace, request, job)
    check_refused(site, "partition ds=3, which was not planned")


@pytest.mark.needs("required columns")
def test_nulls_for_a_column_that_may_have_none(site: Site, fault_report: FaultReport) -> None:
    refresh(site, BASE)
    fault_report.injected("spoiled stage")
    with site.open() as workspace:
        catalog = workspace.catalog("lake")
        assert isinstance(catalog, SqlCatalog)
        with catalog.iceberg.load_table(("sales", "revenue")).update_schema(allow_incompatible_changes=True) as update:
            update.update_column("n", required=True)
        with pytest.raises(StageRejectedError, match="'n' is not nullable, but the query may return nulls"):
            refresh_in(workspace, site, SPOILED)
    check_refused(site, "'n' is not nullable")


def check_refused(site: Site, reason: str) -> None:
    """The table is as it was, the history says why, and the stage is gone."""
    with site.open() as workspace:
        assert content(workspace) == {"1": [1], "2": [2]}
        told, stage = workspace.ledger.get_refresh("spoiled"), workspace.ledger.get_stage("spoiled")
        assert (told.state, stage.state) == (RefreshState.FAILED, StageState.ABORTED)
        assert reason in (told.error or "")
        assert data_files(site, "spoiled") == []
        check_all_settled(site, workspace)
