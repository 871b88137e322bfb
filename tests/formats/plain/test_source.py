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
from airflow_dynamic_tables.formats.plain import bind, files_since

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


def added(source: Source, since: SourceState) -> list[str] | str:
    """The names of the files that were added, or why that is not certain."""
    found = files_since(source, None, "orders", since)
    return found.ended or [Path(file).name for file in found.binding.files] if found.binding or found.ended else []


def old(file: Path, seconds: int) -> None:
    """Let a file be written that looks as if that were some seconds after midnight."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(file.name)
    os.utime(file, (1_700_000_000 + seconds, 1_700_000_000 + seconds))


def test_the_files_that_were_added_are_found(source: Source) -> None:
    folder, same = Path(source.path or ""), "ds=1/land=d e"
    for number, name in enumerate((f"{same}/a.csv", f"{same}/b.csv", "ds=2/land=fr/a.csv")):
        old(folder / name, number)
    before = state(source)
    assert not before.unsettled
    assert added(source, before) == []
    old(folder / same / "a0.csv", 10)
    old(folder / "ds=3/land=it/x.csv", 0)  # new partitions may have old files
    assert added(source, before) == ["a0.csv", "x.csv"]
    assert added(replace(source, schema=None), before) == "its columns are those of its files; declare a schema"
    assert added(replace(source, schema=f"more INT, {source.schema}"), before) == "its columns changed"
    old(folder / same / "c.csv", -1)  # a copy that kept its time cannot be told from a file that was there
    assert added(source, before) == f"files of {same} may have been changed or removed"
    (folder / same / "c.csv").unlink()
    assert added(source, replace(before, unsettled=(same,))) == f"{same} was changed just before it was read"
    assert added(source, before) == ["a0.csv", "x.csv"]
    for hidden in (folder / same / "_x.csv", folder / same / ".x.csv", folder / "ds=3/_temporary/x.csv"):
        old(hidden, 12)
    assert added(source, before) == ["a0.csv", "x.csv"]
    old(folder / same / "a00.csv", 1)  # as b.csv
    assert added(source, before) == f"files of {same} may have been changed or removed"
    (folder / same / "a00.csv").unlink()
    old(folder / "astray.csv", 12)
    assert str(added(source, before)).endswith("astray.csv is in no folder of a partition")
    (folder / "astray.csv").unlink()
    old(folder / same / "b.csv", 11)
    assert added(source, before) == f"files of {same} may have been changed or removed"
    (folder / "ds=2/land=fr/a.csv").unlink()
    assert added(source, before) == "the files of ds=2/land=fr were removed"
