"""The folders of a Hive table: one that is not there, or cannot be listed, is not an empty one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_dynamic_tables.exceptions import CatalogUnavailableError
from airflow_dynamic_tables.formats.hive.folders import Folder, list_folders
from tests.support.processes import as_nobody


@pytest.fixture
def folders() -> Iterator[list[Folder]]:
    """Two partitions below one folder, and one that lies elsewhere; everybody may read them."""
    with tempfile.TemporaryDirectory() as root:
        Path(root).chmod(0o755)
        places = {"1": Path(root, "ds=1"), "2": Path(root, "ds=2"), "3": Path(root, "elsewhere")}
        for place in places.values():
            place.mkdir()
            (place / "a.parquet").write_text("x")
        yield [(f"file://{place}", {"ds": day}) for day, place in places.items()]
        for place in places.values():
            place.chmod(0o755)


def path_of(folder: Folder) -> Path:
    return Path(folder[0].removeprefix("file://"))


def test_all_files_are_listed(folders: list[Folder]) -> None:
    assert list(list_folders(folders).files) == [f"{uri}/a.parquet" for uri, _ in folders]


def test_an_empty_folder_is_empty(folders: list[Folder]) -> None:
    (path_of(folders[0]) / "a.parquet").unlink()
    assert len(list_folders(folders).files) == 2


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_missing_folder_is_not_empty(folders: list[Folder], which: int) -> None:
    (path_of(folders[which]) / "a.parquet").unlink()
    path_of(folders[which]).rmdir()
    with pytest.raises(CatalogUnavailableError, match=f"{folders[which][0]} is not there"):
        list_folders(folders)
    path_of(folders[which]).mkdir()


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_folder_that_may_not_be_listed_is_not_empty(folders: list[Folder], which: int) -> None:
    path_of(folders[which]).chmod(0)
    assert as_nobody(lambda: list_folders(folders)) == f"{path_of(folders[which])} cannot be listed: Permission denied."
