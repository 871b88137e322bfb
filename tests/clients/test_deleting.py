"""Nothing is deleted outside of the folder that is named, nor through a link."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_dynamic_tables.clients.files import FileEntry, delete_entries, delete_files, delete_folder, list_entries
from airflow_dynamic_tables.exceptions import ConfigurationError


def _delete_entry(root: str, path: str) -> None:
    delete_entries(root, [FileEntry(path, None, 1, is_folder=False)])


DELETE: dict[str, Callable[[str, str], None]] = {
    "folder": delete_folder,
    "entries": _delete_entry,
    "files": lambda root, path: delete_files(root, [path]),
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for name in ("table/data/stage/part", "other/data/part"):
        file = tmp_path / name
        file.parent.mkdir(parents=True)
        file.write_text("rows")
    (tmp_path / "table/data/link").symlink_to(tmp_path / "other/data")
    return tmp_path / "table"


@pytest.mark.parametrize("delete", DELETE.values(), ids=DELETE.keys())
@pytest.mark.parametrize(
    "path",
    ["", "/", "/.", "/..", "/../other", "/../other/data/part", "/data/../../other/data/part", "/data/link/part", "/../table_2"],
)
def test_what_lies_elsewhere_stays(table: Path, delete: Callable[[str, str], None], path: str) -> None:
    with pytest.raises(ConfigurationError, match="is not in the folder"):
        delete(f"file://{table}", f"{table}{path}")
    assert (table.parent / "other/data/part").exists()
    assert (table / "data/stage/part").exists()


def test_nothing_is_deleted_when_one_of_many_lies_elsewhere(table: Path) -> None:
    inside = FileEntry(f"{table}/data/stage/part", None, 4, is_folder=False)
    outside = FileEntry(f"{table.parent}/other/data/part", None, 4, is_folder=False)
    with pytest.raises(ConfigurationError):
        delete_entries(f"file://{table}", [inside, outside])
    assert (table / "data/stage/part").exists()


@pytest.mark.parametrize("delete", DELETE.values(), ids=DELETE.keys())
def test_what_lies_inside_goes(table: Path, delete: Callable[[str, str], None]) -> None:
    delete(f"file://{table}", f"{table}/data/stage/part")
    assert not (table / "data/stage/part").exists()


def test_a_link_goes_with_its_folder_and_what_it_leads_to_stays(table: Path) -> None:
    delete_folder(f"file://{table}", f"file://{table}/data")
    assert not (table / "data").exists()
    assert (table.parent / "other/data/part").exists()


def test_a_root_behind_a_link_is_as_good(table: Path, tmp_path: Path) -> None:
    (tmp_path / "door").symlink_to(tmp_path)
    delete_folder(f"file://{tmp_path}/door/table", f"file://{tmp_path}/door/table/data/stage")
    assert not (table / "data/stage").exists()


def test_links_are_neither_followed_nor_deleted(table: Path) -> None:
    (table / "loop").symlink_to(table)
    entries = list_entries(f"file://{table}")
    assert len(entries) == len(["data", "data/stage", "data/stage/part", "data/link", "loop"])
    assert delete_entries(f"file://{table}", entries).files == 1
    assert (table / "loop").is_symlink()
    assert (table / "data/link/part").exists()
