"""Whether data that others write are there: a file, here and in an object store, rows, and what nobody can look for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import s3fs

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.sources import AwaitedData, AwaitedRows
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.refresh.upstream import what_is_not_there
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.object_store import BUCKET, running_object_store


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(WorkspaceSettings(f"sqlite:///{tmp_path}/state.db", f"file://{tmp_path}/warehouse")) as opened:
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
        s3fs.S3FileSystem().mkdir(BUCKET)
        assert look(workspace, uri) == f"{uri} is not there yet"
        s3fs.S3FileSystem().touch(uri)
        assert look(workspace, uri) is None
        assert look(workspace, "s3a" + uri.removeprefix("s3")) is None
    assert str(look(workspace, uri)).startswith(f"{uri} cannot be looked for: ")
    s3fs.S3FileSystem.clear_instance_cache()


def test_rows(workspace: Workspace, tmp_path: Path) -> None:
    orders = TableIdentifier("default", "raw", "orders")
    folder = tmp_path / "orders" / "ds=1"
    rows = AwaitedRows(1000, "parquet", str(tmp_path / "orders"))
    for text, place in (("", str(orders)), ("ds=1", f"partition ds=1 of {orders}")):
        shutil.rmtree(tmp_path / "orders", ignore_errors=True)
        awaited = AwaitedData(text, orders, rows)
        assert what_is_not_there(workspace, awaited) == f"{orders} is not there yet"
        folder.mkdir(parents=True)
        assert what_is_not_there(workspace, awaited) == f"{place} has 0 of 1000 rows"
        pq.write_table(pa.table({"x": [1] * 999}), folder / "a.parquet")
        assert what_is_not_there(workspace, awaited) == f"{place} has 999 of 1000 rows"
        (folder / "b.parquet").touch()
        told = str(what_is_not_there(workspace, awaited))
        assert told.startswith(f"1000 rows in {place} cannot be looked for: Source {orders}: File ")
        pq.write_table(pa.table({"x": [1]}), folder / "b.parquet")
        assert what_is_not_there(workspace, awaited) is None


def test_rows_of_a_catalog_of_another_type_are_not_waited_for(workspace: Workspace) -> None:
    with pytest.raises(ConfigurationError, match="catalog default is not of type jdbc"):
        what_is_not_there(workspace, AwaitedData("", TableIdentifier("default", "raw", "orders"), AwaitedRows(1, "jdbc")))


def test_rows_of_a_server_that_is_away(tmp_path: Path) -> None:
    file = tmp_path / "catalogs.yaml"
    file.write_text("catalogs: [{name: gone, type: jdbc, connection-params: {url: 'postgresql://me@127.0.0.1:1/gone'}}]\n")
    awaited = AwaitedData("", TableIdentifier("gone", "gone", "orders"), AwaitedRows(5, "jdbc"))
    with open_workspace(WorkspaceSettings(f"sqlite:///{tmp_path}/state.db", f"file://{tmp_path}/warehouse", file)) as workspace:
        told = str(what_is_not_there(workspace, awaited))
    assert told.startswith("5 rows in gone.gone.orders cannot be looked for: Cannot read jdbc:postgresql://127.0.0.1:1/gone")
