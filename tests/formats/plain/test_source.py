"""What a folder of files is like when it is read: one fingerprint a partition, and a rewrite in place is noticed."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.exceptions import CatalogUnavailableError
from airflow_dynamic_tables.formats.plain import bind

ORDERS = TableIdentifier("lake", "raw", "orders")


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """Three files in two partitions."""
    for name in ("ds=1/land=d e/a.csv", "ds=1/land=d e/b.csv", "ds=2/land=fr/a.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return Source(ORDERS, "csv", str(tmp_path), ("ds", "land"), "n bigint, ds string, land string")


def state(source: Source) -> SourceState:
    found = bind(source, None, "orders", {}).state
    assert found is not None
    assert found.partitions is not None
    return found


def changed(before: SourceState, after: SourceState) -> set[str]:
    """The partitions that came, went or hold something else."""
    assert (before.location, before.schema) == (after.location, after.schema)
    assert before.partitions is not None
    assert after.partitions is not None
    return {name for name, _ in before.partitions.items() ^ after.partitions.items()}


def test_what_changed_can_be_told(source: Source) -> None:
    before, folder = state(source), Path(source.path or "")
    assert before.partitions is not None
    assert before.partitions.keys() == {"ds=1/land=d e", "ds=2/land=fr"}
    assert state(source) == before
    (folder / "ds=1/land=d e/c.csv").write_text("more")
    assert changed(before, state(source)) == {"ds=1/land=d e"}
    (folder / "ds=2/land=fr/a.csv").unlink()
    (folder / "ds=3/land=it").mkdir(parents=True)
    (folder / "ds=3/land=it/a.csv").write_text("new")
    assert changed(before, state(source)) == {"ds=1/land=d e", "ds=2/land=fr", "ds=3/land=it"}


def test_a_rewrite_in_place_is_noticed(source: Source) -> None:
    before, file = state(source), Path(source.path or "") / "ds=2/land=fr/a.csv"
    size = file.stat().st_size
    file.write_text("x" * size)
    os.utime(file, (1, 1))
    assert changed(before, state(source)) == {"ds=2/land=fr"}
    assert state(source).version != before.version


def test_a_folder_that_is_not_partitioned_has_one_entry(source: Source) -> None:
    whole = replace(source, partition_keys=())
    assert list(state(whole).partitions or ()) == [""]


def test_other_columns_are_another_schema(source: Source) -> None:
    assert state(replace(source, schema="n int")).schema != state(source).schema


def test_what_cannot_be_listed_is_said_of_the_source(source: Source) -> None:
    loop = Path(source.path or "") / "ds=3"
    loop.symlink_to(loop.parent)
    with pytest.raises(CatalogUnavailableError, match=rf"Source {ORDERS}: {loop} cannot be listed"):
        bind(source, None, "orders", {})


def test_ten_thousand_partitions_are_no_work(tmp_path: Path) -> None:
    for number in range(10_000):
        folder = tmp_path / f"ds={number}"
        folder.mkdir()
        (folder / "a.csv").touch()
    source = Source(ORDERS, "csv", str(tmp_path), ("ds",))
    start = time.process_time()
    found = state(source)
    assert len(found.partitions or ()) == 10_000
    assert time.process_time() - start < 10, "listing included"
