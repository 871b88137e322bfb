"""Every table has a folder of its own, and in a folder that tables share nothing is deleted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from sqlalchemy import text

from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.exceptions import ConfigurationError
from tests.support.benches.staging import REVENUE, Bench

RENAMED = ObjectPath("sales", "renamed")


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


@pytest.mark.parametrize("place", ["", "/sales", "/sales/..", "/sales/other/..", "/sales/revenue/../.."])
def test_nothing_is_deleted_from_a_location_that_holds_other_tables(catalog: SqlCatalog, tmp_path: Path, place: str) -> None:
    """Whoever may write to the catalog can say that a table lies there; its ``data`` may then be the database of that name."""
    source = tmp_path / "warehouse" / "data" / "orders" / "jan.csv"
    source.parent.mkdir(parents=True)
    source.write_text("1")
    other = bench_of(catalog, ObjectPath("sales", "other"))
    other.refresh({"2": [2]})
    left = left_over(other)
    catalog.iceberg.create_namespace_if_not_exists("sales")
    catalog.iceberg.create_table(("sales", "revenue"), Schema(), location=f"{catalog.warehouse}{place}")
    with pytest.raises(ConfigurationError, match="nothing in it is deleted"):
        tidy_up(bench_of(catalog))
    assert source.exists()
    assert left.exists()
    assert other.rows() == {"2": [2]}


def test_a_folder_that_another_engine_spells_otherwise_is_that_of_the_table(catalog: SqlCatalog) -> None:
    bench = bench_of(catalog)
    bench.refresh({"1": [1]})
    left = left_over(bench)
    with catalog.iceberg.engine.begin() as connection:
        respelled = "UPDATE iceberg_tables SET metadata_location = replace(metadata_location, 'file:///', 'file:/')"
        assert connection.execute(text(respelled)).rowcount == 1
    assert tidy_up(bench) > 0
    assert not left.exists()
    assert bench.rows() == {"1": [1]}


def test_links_in_the_folder_of_a_table_are_left_alone(catalog: SqlCatalog, tmp_path: Path) -> None:
    bench = bench_of(catalog)
    bench.refresh({"1": [1]})
    left = left_over(bench)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "rows.parquet").write_text("rows")
    link = left.parent / "link"
    link.symlink_to(elsewhere)
    assert tidy_up(bench) > 0
    assert (left.exists(), link.is_symlink(), (elsewhere / "rows.parquet").exists()) == (False, True, True)


def test_a_stage_behind_a_link_is_not_deleted(catalog: SqlCatalog, tmp_path: Path) -> None:
    bench = bench_of(catalog)
    bench.refresh({"1": [1]})
    staged = bench.stage("linked")
    data = Path(staged.begin().removeprefix("file://")).parent
    moved = data.rename(tmp_path / "moved")
    data.symlink_to(moved)
    (moved / "linked").mkdir()
    with pytest.raises(ConfigurationError, match="or is so only by a link"):
        staged.abort()
    assert (moved / "linked").exists()


def test_files_that_another_engine_states_to_share_are_kept(catalog: SqlCatalog) -> None:
    bench = bench_of(catalog)
    bench.refresh({"1": [1]})
    left = left_over(bench)
    table = catalog.stores()[0].tables.load_table((REVENUE.database, REVENUE.name))
    with table.transaction() as transaction:
        transaction.set_properties({"gc.enabled": "false"})
    assert tidy_up(bench) == 0
    assert left.exists()
    with table.refresh().transaction() as transaction:
        transaction.remove_properties("gc.enabled")
    assert tidy_up(bench) > 0
    assert not left.exists()
