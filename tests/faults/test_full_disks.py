"""No space, no permission: a clear error, the last version untouched, and all well again when the cause is gone."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import psycopg
import pytest

from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConflictError
from airflow_dynamic_tables.ledger.base import RefreshState, StageState
from airflow_dynamic_tables.services.refresh.requests import Skipped
from airflow_dynamic_tables.services.refresh.running import begin
from tests.support.disks import limit_files
from tests.support.faults.report import FaultReport
from tests.support.faults.truth import check_all_settled, content, data_files
from tests.support.faults.victims import REVENUE, Attempt, Child, Site, refresh, sweep, victim

BASE = Attempt("base", {"1": [1], "2": [2]})
STRUCK = Attempt("struck", {"1": [10]}, planned=("1",))
NEXT = Attempt("next", {"3": [30]}, "somebody else", planned=("3",))
LARGE = replace(STRUCK, days={"1": range(200_000)})


@pytest.fixture
def small_disk(site: Site) -> Iterator[Path]:
    """The warehouse has half a megabyte."""
    warehouse = site.home / "warehouse"
    warehouse.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", warehouse], check=True)
    try:
        yield warehouse
    finally:
        subprocess.run(["umount", "--lazy", warehouse], check=True)


@pytest.fixture
def server_disk(site: Site) -> Iterator[Path]:
    """The disk on which the PostgreSQL server keeps the tables of a site has 32 megabytes."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    disk = Path(tempfile.mkdtemp(prefix="postgres-disk-"))
    assert site.tables_url is not None
    with psycopg.connect(site.tables_url, autocommit=True) as connection:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m,mode=777", "tmpfs", disk], check=True)
        try:
            (disk / "tables").mkdir()
            shutil.chown(disk / "tables", "postgres")
            connection.execute(f"CREATE TABLESPACE small LOCATION '{disk / 'tables'}'".encode())
            connection.execute(f"ALTER DATABASE {REVENUE.database} SET default_tablespace = small".encode())
            yield disk
        finally:
            (disk / "filler").unlink(missing_ok=True)
            connection.execute(f"ALTER DATABASE {REVENUE.database} RESET default_tablespace".encode())
            connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            connection.execute("DROP TABLESPACE IF EXISTS small")
            subprocess.run(["umount", "--lazy", disk], check=True)
            disk.rmdir()


def fill(disk: Path) -> None:
    try:
        with (disk / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1024))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


def lock(folder: Path) -> None:
    """Let nobody change a folder, not even root."""
    subprocess.run([*(["chattr", "+i"] if os.geteuid() == 0 else ["chmod", "a-w"]), folder], check=True)


def unlock(folder: Path) -> None:
    subprocess.run([*(["chattr", "-i"] if os.geteuid() == 0 else ["chmod", "u+w"]), folder], check=True)


@contextmanager
def unlocked_afterwards(folder: Path) -> Iterator[Path]:
    """Whatever happens, the folder can be deleted."""
    try:
        yield folder
    finally:
        unlock(folder)


def table_folder(site: Site) -> Path:
    (folder,) = site.home.glob("warehouse/*/*/revenue-*")
    return folder


def check_failed(site: Site, reason: str) -> None:
    """The refresh failed for that reason, all of its files are gone, and the table is as it was."""
    with site.open() as workspace:
        assert content(workspace) == {"1": [1], "2": [2]}
        told, stage = workspace.ledger.get_refresh("struck"), workspace.ledger.get_stage("struck")
        assert (told.state, stage.state) == (RefreshState.FAILED, StageState.ABORTED)
        assert reason in (told.error or "")
        assert data_files(site, "struck") == []
        check_all_settled(site, workspace)


def check_all_well(site: Site) -> None:
    """The cause is gone: the next refresh commits and nothing is left behind."""
    refresh(site, NEXT)
    sweep(site)
    with site.open() as workspace:
        assert content(workspace) == {"1": [1], "2": [2], "3": [30]}
        check_all_settled(site, workspace)


def error_of(child: Child) -> str:
    _, error = child.answer()
    assert error is not None
    return error


def test_a_disk_that_is_full_before_the_job_has_written(site: Site, small_disk: Path, fault_report: FaultReport) -> None:
    refresh(site, BASE)
    fault_report.injected("disk full")
    with pytest.raises(OSError, match="No space left on device"):
        refresh(site, LARGE)
    check_failed(site, "No space left on device")
    assert not (small_disk / "filler").exists()
    check_all_well(site)


@pytest.mark.parametrize("point", ["commit", "publishing"], ids=["before the manifests", "before the metadata file"])
def test_a_disk_that_is_full_while_committing(site: Site, small_disk: Path, fault_report: FaultReport, point: str) -> None:
    refresh(site, BASE)
    fault_report.injected("disk full")
    error = error_of(victim(point, partial(fill, small_disk), refresh, site, STRUCK))
    assert error.startswith("CommitRejectedError: The metadata of sales.revenue could not be written")
    assert "No space left on device" in error
    check_failed(site, "No space left on device")
    (small_disk / "filler").unlink()
    check_all_well(site)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("site", "point"),
    [
        *(("sqlite", point) for point in ("begin", "commit", "publishing")),
        *(pytest.param("postgres", point, marks=pytest.mark.postgres) for point in ("begin", "commit", "publishing")),
        # Of a commit on a server no file is written here.
        *(pytest.param("jdbc", point, marks=pytest.mark.postgres) for point in ("begin", "commit")),
    ],
    indirect=["site"],
)
def test_a_file_that_may_not_grow(site: Site, fault_report: FaultReport, point: str) -> None:
    """On SQLite the ledger cannot be written either: whoever comes next puts it right."""
    refresh(site, BASE)
    fault_report.injected("file too large")
    error_of(victim(point, partial(limit_files, 100), refresh, site, STRUCK))
    with site.open() as workspace:
        assert content(workspace) == {"1": [1], "2": [2]}
    check_all_well(site)


def test_a_folder_of_stages_that_is_read_only(site: Site, fault_report: FaultReport) -> None:
    refresh(site, BASE)
    fault_report.injected("permission denied")
    with unlocked_afterwards(table_folder(site) / "data") as folder:
        lock(folder)
        with pytest.raises(CatalogUnavailableError, match=r"_plan\.json cannot be written"):
            refresh(site, STRUCK)
    check_failed(site, "cannot be written: ")
    check_all_well(site)


@pytest.mark.parametrize("point", ["commit", "publishing"], ids=["before the manifests", "before the metadata file"])
def test_a_folder_of_metadata_that_is_read_only(site: Site, fault_report: FaultReport, point: str) -> None:
    refresh(site, BASE)
    fault_report.injected("permission denied")
    with unlocked_afterwards(table_folder(site) / "metadata") as folder:
        error = error_of(victim(point, partial(lock, folder), refresh, site, STRUCK))
        assert error.startswith("CommitRejectedError: The metadata of sales.revenue could not be written")
        check_failed(site, "not permitted" if os.geteuid() == 0 else "denied")
    check_all_well(site)


@pytest.mark.parametrize("site", ["delta"], indirect=True)
def test_a_disk_that_is_full_while_a_delta_table_is_committed(site: Site, small_disk: Path, fault_report: FaultReport) -> None:
    refresh(site, BASE)
    fault_report.injected("disk full")
    error = error_of(victim("publishing", partial(fill, small_disk), refresh, site, STRUCK))
    assert error.startswith("CommitRejectedError")
    assert "so nothing was committed: [Errno 28] No space left on device" in error
    check_failed(site, "No space left on device")
    (small_disk / "filler").unlink()
    check_all_well(site)


@pytest.mark.parametrize("site", ["delta"], indirect=True)
def test_a_log_that_is_read_only(site: Site, fault_report: FaultReport) -> None:
    refresh(site, BASE)
    fault_report.injected("permission denied")
    with unlocked_afterwards(table_folder(site) / "_delta_log") as folder:
        error = error_of(victim("publishing", partial(lock, folder), refresh, site, STRUCK))
        assert error.startswith("CommitRejectedError")
        check_failed(site, "not permitted" if os.geteuid() == 0 else "denied")
    check_all_well(site)


@pytest.mark.sampled
@pytest.mark.postgres
@pytest.mark.parametrize("site", ["jdbc"], indirect=True)
@pytest.mark.parametrize("point", ["planned", "publishing"], ids=["before the job has written", "while committing"])
def test_a_disk_of_a_server_that_is_full(site: Site, server_disk: Path, fault_report: FaultReport, point: str) -> None:
    refresh(site, BASE)
    fault_report.injected("disk full")
    error = error_of(victim(point, partial(fill, server_disk), refresh, site, LARGE))
    assert error.startswith(
        "DiskFull" if point == "planned" else "CommitRejectedError: The commit of struck was refused, and changed"
    )
    assert "No space left on device" in error
    check_failed(site, "No space left on device")
    (server_disk / "filler").unlink()
    check_all_well(site)


def test_files_that_cannot_be_deleted_are_in_nobodys_way(site: Site, fault_report: FaultReport) -> None:
    refresh(site, BASE)
    fault_report.injected("permission denied")
    with site.open() as workspace:
        begun = begin(workspace, site.request(STRUCK))
    assert not isinstance(begun, Skipped)
    STRUCK.job(begun.plan)
    with unlocked_afterwards(table_folder(site) / "data" / "struck" / "data") as folder:
        lock(folder)
        assert refresh(site, replace(STRUCK, token="retry")).number == 2
        assert sweep(site).kept == ("struck",)
    assert sweep(site).aborted == ("struck",)
    with site.open() as workspace:
        assert content(workspace) == {"1": [10], "2": [2]}
        check_all_settled(site, workspace)


def test_a_commit_that_cannot_be_fenced_off_is_in_the_way_until_it_can(site: Site, fault_report: FaultReport) -> None:
    """Its owner died, and the fence is a snapshot, whose metadata nobody can write: until then it may still land."""
    refresh(site, BASE)
    with site.open() as workspace:
        begun = begin(workspace, site.request(STRUCK))
        assert not isinstance(begun, Skipped)
        STRUCK.job(begun.plan)
        workspace.ledger.move_stage("struck", (StageState.OPEN,), StageState.COMMITTING)
        workspace.ledger.renew_lease("struck", workspace.now() - timedelta(seconds=1))
    fault_report.injected("permission denied")
    heir = replace(STRUCK, token="heir", owner="somebody else")
    with unlocked_afterwards(table_folder(site) / "metadata") as folder:
        lock(folder)
        for _ in range(2):
            with pytest.raises(ConflictError, match="stage struck may still land: "):
                refresh(site, heir)
        assert sweep(site).kept == ("struck",)
        assert len(data_files(site, "struck")) == 3, "plan, result and a file of data"
    assert refresh(site, heir).number == 2
    with site.open() as workspace:
        stage = workspace.ledger.get_stage("struck")
        assert stage.state is StageState.ABORTED
        assert content(workspace) == {"1": [10], "2": [2]}
        check_all_settled(site, workspace)
