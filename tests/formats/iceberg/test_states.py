"""The state of an unchanged table is the recorded one, without its manifests being read; after any change it is read again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType

from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.clients.files import plain_path
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, UnsupportedError
from tests.formats.iceberg.test_snapshots import append, forget_all_but_the_last, loaded
from tests.support.benches.staging import Bench
from tests.support.iceberg_tables import forget_history


@pytest.fixture
def bench(catalog: SqlCatalog) -> Bench:
    bench = Bench(catalog.stores()[0])
    bench.refresh({"1": [1], "2": [2]})
    bench.refresh({"3": [3]}, "3")
    return bench


def recorded(bench: Bench) -> SourceState:
    """The state as a refresh records it."""
    state = bench.table.load().read().state
    assert state is not None
    return replace(state, same_rows=())


@contextmanager
def unreadable_manifests(catalog: SqlCatalog) -> Iterator[None]:
    """Manifests of the same length, which cannot be read."""
    table = loaded(catalog)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    files = [Path(plain_path(manifest.manifest_path)) for manifest in snapshot.manifests(table.io)]
    contents = [file.read_bytes() for file in files]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(b"?" * len(content))
    yield
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)


def test_the_manifests_of_an_unchanged_table_are_not_read(bench: Bench, catalog: SqlCatalog) -> None:
    before = recorded(bench)
    with unreadable_manifests(catalog):
        assert bench.table.load().state(before) == before


def rolled_back(table: Table) -> None:
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()


def deleted(table: Table) -> None:
    table.delete("ds = '1'")


def renamed_column(table: Table) -> None:
    with table.update_schema() as update:
        update.rename_column("n", "m")


def renamed_back(table: Table) -> None:
    for names in (("n", "m"), ("m", "n")):
        with table.update_schema() as update:
            update.rename_column(*names)


def added_column(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("more", StringType())


def other_keys(table: Table) -> None:
    with table.update_spec() as update:
        update.add_field("n", IdentityTransform())


def created_again(table: Table) -> None:
    """Recreate the table with the same files, which gives it the same rows."""
    files = [task.file.file_path for task in table.scan().plan_files()]
    catalog, name = table.catalog, table.name()
    schema, spec, location, properties = table.schema(), table.spec(), table.location(), table.properties
    catalog.drop_table(name)
    catalog.create_table(name, schema, location, spec, properties=properties).add_files(files)


CHANGES: list[Callable[[Table], None]] = [
    rolled_back,
    deleted,
    renamed_column,
    renamed_back,
    added_column,
    other_keys,
    created_again,
    forget_history,
]


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_other_engines_give_the_state_that_reading_gives(
    bench: Bench, catalog: SqlCatalog, change: Callable[[Table], None]
) -> None:
    before = recorded(bench)
    change(loaded(catalog))
    try:
        there = bench.table.load().read().state
    except UnsupportedError as error:
        with pytest.raises(UnsupportedError, match=str(error)[:40].replace("(", "\\(")):
            bench.table.load().state(before)
        return
    assert bench.table.load().state(before) == there


def test_another_snapshot_is_read(bench: Bench, catalog: SqlCatalog) -> None:
    before = recorded(bench)
    append(catalog, "4")
    now = bench.table.load().state(before)
    assert now is not None
    assert now.partitions is not None
    assert "ds=4" in now.partitions
    forget_all_but_the_last(catalog)
    assert bench.table.load().state(before) == now
    assert bench.table.load().state(now) == now


@pytest.mark.parametrize("content", [None, b"", b"Obj"])
def test_a_missing_or_incomplete_manifest_is_an_error(bench: Bench, catalog: SqlCatalog, content: bytes | None) -> None:
    before = recorded(bench)
    table = loaded(catalog)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    file = Path(plain_path(snapshot.manifests(table.io)[-1].manifest_path))
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises((CatalogUnavailableError, OSError)):
        bench.table.load().state(before)


def test_a_state_without_certain_partitions_is_read_again(bench: Bench) -> None:
    before = recorded(bench)
    for incomplete in (replace(before, partitions=None), replace(before, partitions={}, unsettled=("ds=1",))):
        assert bench.table.load().state(incomplete) == before
    assert bench.table.load().state(None) == before
