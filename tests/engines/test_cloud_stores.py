"""Tables in Google Cloud Storage and in Azure, by emulators: what the worker does there. See ``test_s3a.py`` for Spark's part."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from airflow_dynamic_tables.clients.delta.log import put_if_absent
from airflow_dynamic_tables.clients.files import (
    create_text,
    delete_entries,
    delete_folder,
    exists,
    list_entries,
    list_files,
    move_folder,
    plain_path,
    read_text,
    write_text,
)
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.exceptions import ConfigurationError
from tests.support.cloud_stores import CloudStore, running_azure, running_gcs
from tests.support.faults.stores import SPECIAL, check_nothing_is_left, define, is_atomic, rows, rows_of, site_of
from tests.support.faults.victims import Attempt, Site, refresh, restore
from tests.support.pyarrow_job import write_days

pytestmark = [
    pytest.mark.large,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:GCS project not set"),  # PyIceberg names none
]

STORES = {"gcs": running_gcs, "azure": running_azure}


@pytest.fixture(scope="module", params=STORES)
def store(request: pytest.FixtureRequest) -> Iterator[CloudStore]:
    with STORES[request.param]() as running:
        yield running


@pytest.fixture
def folder(store: CloudStore) -> str:
    """A folder of this test's own."""
    return f"{store.uri}/{uuid4().hex}"


def test_files_keep_their_uris(folder: str) -> None:
    names = [f"ds={day}/part 1.csv" for day in SPECIAL if day != ".."]
    for name in names:
        write_text(f"{folder}/{name}", name)
    write_text(f"{folder}/_hidden/part.csv", "hidden")
    files = list_files(folder)
    assert list(files) == sorted(f"{folder}/{name}" for name in names)
    assert [read_text(uri) for uri in files] == [uri.removeprefix(f"{folder}/") for uri in files]
    assert all(info["size"] for info in files.values())
    (only,) = list_files(f"{folder}/{names[0]}")
    assert only == f"{folder}/{names[0]}"
    with pytest.raises(FileNotFoundError):
        list_files(f"{folder}/nothing")


def test_files_are_created_once_moved_and_deleted(folder: str) -> None:
    create_text(f"{folder}/a/1.json", "first")
    with pytest.raises(FileExistsError):
        create_text(f"{folder}/a/1.json", "second")
    assert read_text(f"{folder}/a/1.json") == "first"
    move_folder(f"{folder}/a", f"{folder}/b")
    assert [entry.path for entry in list_entries(folder) if not entry.is_folder] == [plain_path(f"{folder}/b/1.json")]
    with pytest.raises(ConfigurationError, match="nothing is deleted"):
        delete_entries(f"{folder}/c", list_entries(f"{folder}/b"))
    assert delete_entries(folder, list_entries(folder)).files == 1
    write_text(f"{folder}/d/1.json", "")
    delete_folder(folder, f"{folder}/d")
    delete_folder(folder, f"{folder}/d")
    assert not exists(f"{folder}/d")


def test_one_of_many_writers_of_a_delta_entry_wins(folder: str) -> None:
    entry = f"{folder}/_delta_log/{0:020d}.json"
    with ThreadPoolExecutor(8) as threads:
        have_won = list(threads.map(lambda number: put_if_absent(entry, str(number).encode()), range(16)))
    assert have_won.count(True) == 1
    assert read_text(entry) == str(have_won.index(True))


@pytest.fixture
def site(request: pytest.FixtureRequest, folder: str, tmp_path: Path, empty_state: Path) -> Site:
    site = site_of(request.param, folder, tmp_path, empty_state)
    define(site, rows_of({}))
    return site


@pytest.mark.parametrize("site", ["iceberg", "delta", "folder"], indirect=True)
def test_a_table_in_a_bucket(site: Site) -> None:
    refresh(site, Attempt("first", {"1": [1], "2": [2]}))
    refresh(site, Attempt("second", {"2": [20]}, planned=("2", "3")))
    assert rows(site) == {"1": [1], "2": [20]}
    with pytest.raises(RuntimeError, match="lost"):
        refresh(site, Lost("killed", {"1": [10]}, planned=("1",)))
    assert rows(site) == {"1": [1], "2": [20]}
    if is_atomic(site):
        restore(site, 1, "back", with_columns=False)
        assert rows(site) == {"1": [1], "2": [2]}
    check_nothing_is_left(site)


class Lost(Attempt):
    """A refresh whose job writes a file, and ends before its result."""

    def job(self, plan: RefreshPlan) -> None:
        write_days(plan, self.days, _lose)


def _lose(step: str) -> None:
    if step == "written":
        raise RuntimeError("lost")


@pytest.mark.parametrize("site", ["iceberg", "delta"], indirect=True)
def test_writers_of_a_partition_each_all_land(site: Site) -> None:
    attempts = [Attempt(f"t{number}", {str(number): [number]}, f"process {number}", (str(number),)) for number in range(8)]
    with ThreadPoolExecutor(4) as threads:
        landed = [version.number for version in threads.map(lambda attempt: refresh(site, attempt), attempts)]
    assert sorted(landed) == [*range(1, 9)]
    assert rows(site) == {str(number): [number] for number in range(8)}
    check_nothing_is_left(site)
