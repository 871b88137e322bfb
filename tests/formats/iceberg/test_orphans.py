"""Every table has a folder of its own, and in a folder that tables share nothing is deleted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.core.identifiers import ObjectPath
from tests.support.benches.staging import REVENUE, Bench

RENAMED = ObjectPath("sales", "renamed")


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = SqlCatalog("lake", Database(f"sqlite:///{tmp_path}/state.db"), f"file://{tmp_path}/warehouse")
    catalog.open()
    yield catalog
    catalog.close()


def bench_of(catalog: SqlCatalog, path: ObjectPath = REVENUE) -> Bench:
    return Bench(catalog.stores()[0], path)


def tidy_up(bench: Bench) -> int:
    """The maintenance of a month later."""
    return bench.table.delete_orphans(datetime.now(UTC) + timedelta(days=30), lambda: ()).files


def left_over(bench: Bench) -> Path:
    """A file of a stage that is over."""
    staged = bench.stage("over")
    return Path(bench.write(staged, {"9": [9]}).files[0].path.removeprefix("file://"))


def test_a_renamed_table_keeps_its_rows(catalog: SqlCatalog) -> None:
    bench_of(catalog).refresh({"1": [1]})
    catalog.rename_table(REVENUE, RENAMED.name)
    bench_of(catalog).refresh({"2": [2]})
    left = left_over(bench_of(catalog))
    assert tidy_up(bench_of(catalog)) > 0
    tidy_up(bench_of(catalog, RENAMED))
    assert not left.exists()
    assert bench_of(catalog).rows() == {"2": [2]}
    assert bench_of(catalog, RENAMED).rows() == {"1": [1]}


def test_two_installations_may_share_a_warehouse(catalog: SqlCatalog, tmp_path: Path) -> None:
    other = SqlCatalog("lake", Database(f"sqlite:///{tmp_path}/other.db"), f"file://{tmp_path}/warehouse")
    other.open()
    bench_of(catalog).refresh({"1": [1]})
    bench_of(other).refresh({"2": [2]})
    tidy_up(bench_of(catalog))
    tidy_up(bench_of(other))
    assert (bench_of(catalog).rows(), bench_of(other).rows()) == ({"1": [1]}, {"2": [2]})
    other.close()


def test_nothing_is_deleted_in_a_folder_that_two_tables_of_the_first_release_share(
    catalog: SqlCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    """The first release placed tables by their names alone."""
    bench_of(catalog).refresh({"1": [1]})
    table = catalog.iceberg.load_table(("sales", "revenue"))
    catalog.rename_table(REVENUE, RENAMED.name)
    shared = catalog.iceberg.create_table(("sales", "revenue"), table.schema(), location=table.location())
    with shared.update_spec() as spec:
        spec.add_identity("ds")
    bench_of(catalog).refresh({"2": [2]})
    left = left_over(bench_of(catalog))
    assert (tidy_up(bench_of(catalog)), tidy_up(bench_of(catalog, RENAMED))) == (0, 0)
    assert "is of another table than sales.revenue, in the same folder; nothing in it is deleted" in caplog.text
    assert left.exists()
    assert (bench_of(catalog).rows(), bench_of(catalog, RENAMED).rows()) == ({"2": [2]}, {"1": [1]})


def test_a_table_whose_first_refresh_failed_has_no_rows_and_no_columns(catalog: SqlCatalog) -> None:
    bench = bench_of(catalog)
    bench.write(bench.stage("failed"), {"1": [1]})
    bench.stage("failed").abort()
    assert bench.table.current() is None
    assert bench.refresh({"2": [2]}).number == 1
    assert bench.rows() == {"2": [2]}
