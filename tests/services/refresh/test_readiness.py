"""Whether data that others write are there: a file, here and in an object store, and what nobody can look for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import s3fs

from airflow_dynamic_tables.core.refresh.awaited import AwaitedData
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.refresh.readiness import what_is_not_there
from airflow_dynamic_tables.services.settings import Settings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.object_store import BUCKET, running_object_store


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(Settings(f"sqlite:///{tmp_path}/state.db", f"file://{tmp_path}/warehouse")) as opened:
        yield opened


def look(workspace: Workspace, path: str | Path) -> str | None:
    return what_is_not_there(workspace, AwaitedData(str(path)))


def test_a_file_or_a_folder(workspace: Workspace, tmp_path: Path) -> None:
    marker = tmp_path / "odd [place]" / "_SUCCESS"
    assert look(workspace, marker) == f"{marker} is not there yet"
    marker.parent.mkdir()
    assert look(workspace, marker) == f"{marker} is not there yet"
    marker.touch()
    assert look(workspace, marker) is None
    assert look(workspace, marker.as_uri().replace("%20", " ").replace("%5B", "[").replace("%5D", "]")) is None
    assert look(workspace, marker.parent) is None
    assert look(workspace, marker / "below a file") == f"{marker}/below a file is not there yet"


def test_what_cannot_be_looked_for_is_not_there(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / ("x" * 300)
    assert str(look(workspace, path)).startswith(f"{path} cannot be looked for: ")
    assert str(look(workspace, path)).endswith("File name too long")


def test_no_waiting_makes_a_file_system(workspace: Workspace) -> None:
    with pytest.raises(ConfigurationError, match="no file system for this address"):
        look(workspace, "nowhere://x/_SUCCESS")


def test_an_object_store_and_one_that_is_away(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"s3://{BUCKET}/orders/_SUCCESS"
    with running_object_store() as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir(BUCKET)
        assert look(workspace, uri) == f"{uri} is not there yet"
        s3fs.S3FileSystem().touch(uri)
        assert look(workspace, uri) is None
        assert look(workspace, "s3a" + uri.removeprefix("s3")) is None
    s3fs.S3FileSystem.clear_instance_cache()
    assert str(look(workspace, uri)).startswith(f"{uri} cannot be looked for: ")
    s3fs.S3FileSystem.clear_instance_cache()
