"""The maintenance leaves no table's own folder, whatever its location is."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.formats.orphans import check_own_folder


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    warehouse = tmp_path / "warehouse"
    (warehouse / "sales" / "orders").mkdir(parents=True)
    return warehouse


def test_a_folder_of_its_own(warehouse: Path) -> None:
    others = [f"file://{warehouse}", f"file://{warehouse}/sales/orders_2", f"file://{warehouse}/sales/other"]
    check_own_folder(f"file://{warehouse}/sales/orders", others)
    check_own_folder(f"file://{warehouse}/sales/orders/", others)
    check_own_folder(f"file:{warehouse}/sales/nothing_yet", others)
    check_own_folder("s3://bucket/warehouse/sales/orders", ["s3://bucket/warehouse"])


@pytest.mark.parametrize(
    "below", ["", "/", "/sales", "/sales/", "/.", "/..", "/sales/..", "/sales/orders/..", "/sales/orders/../..", "//"]
)
def test_what_holds_more_than_one_table(warehouse: Path, below: str) -> None:
    others = [f"file://{warehouse}", f"file://{warehouse}/sales/orders"]
    with pytest.raises(ConfigurationError, match="nothing in it is deleted"):
        check_own_folder(f"file://{warehouse}{below}", others)


@pytest.mark.parametrize("location", ["file:///", "s3://bucket", "s3://bucket/warehouse", "s3://bucket/warehouse/sales/.."])
def test_roots_and_parents_of_the_warehouse(location: str) -> None:
    with pytest.raises(ConfigurationError, match="nothing in it is deleted"):
        check_own_folder(location, ["s3://bucket/warehouse", "file:///warehouse"])


def test_a_link_is_no_folder_of_its_own(warehouse: Path) -> None:
    link = warehouse / "sales" / "link"
    link.symlink_to(warehouse / "sales" / "orders")
    with pytest.raises(ConfigurationError, match=r"leads to .*/sales/orders, which is not the folder of one table"):
        check_own_folder(f"file://{link}", [])


def test_a_warehouse_may_be_behind_a_link(warehouse: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(warehouse)
    check_own_folder(f"file://{tmp_path}/link/sales/orders", [f"file://{tmp_path}/link"])
    with pytest.raises(ConfigurationError, match="is not of this table"):
        check_own_folder(f"file://{tmp_path}/link/sales", [f"file://{warehouse}/sales/orders"])
