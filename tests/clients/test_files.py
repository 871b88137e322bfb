"""Listings and small files, on a local disk as on any other file system of fsspec."""

from pathlib import Path

import pytest

from airflow_dynamic_tables.clients.files import list_files, read_text, write_text
from airflow_dynamic_tables.exceptions import ConfigurationError


@pytest.mark.parametrize("scheme", ["file://", ""])
def test_text_comes_back_and_folders_are_made(tmp_path: Path, scheme: str) -> None:
    uri = f"{scheme}{tmp_path}/stage/one/_plan.json"
    write_text(uri, "Grüße\n")
    assert read_text(uri) == "Grüße\n"


def test_text_on_another_file_system() -> None:
    write_text("memory://stage/_plan.json", "{}")
    assert read_text("memory://stage/_plan.json") == "{}"


def test_only_data_files_are_listed_with_their_full_address(tmp_path: Path) -> None:
    for name in (
        "ds=2024-01-01/a.parquet",
        "_ds=x/b.parquet",
        "_SUCCESS",
        ".c.crc",
        "_temporary/0/d.parquet",
        "ds=a b%2F/e.parquet",
    ):
        file = tmp_path / "orders" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    base = f"file://{tmp_path}/orders"
    assert sorted(list_files(base)) == sorted(
        [f"{base}/ds=2024-01-01/a.parquet", f"{base}/_ds=x/b.parquet", f"{base}/ds=a b%2F/e.parquet"]
    )


def test_a_hidden_parent_folder_does_not_hide_the_data(tmp_path: Path) -> None:
    file = tmp_path / ".demo" / "_data" / "a.parquet"
    file.parent.mkdir(parents=True)
    file.write_text("x")
    assert list(list_files(str(file.parent))) == [file.as_uri()]


def test_a_single_file_is_listed(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("x")
    assert list(list_files(str(file))) == [file.as_uri()]


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list_files(str(tmp_path / "nothing"))


def test_an_unknown_file_system_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="no file system for this address"):
        list_files("nosuch://bucket/key")
