"""The demo's data: they end where they shall, and every day is the same whenever it is written."""

from __future__ import annotations

import shutil
import sys
from datetime import date, timedelta
from importlib import import_module
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
GENERATOR = Path(sys.executable).with_name("tpchgen-cli")
SCALE = 0.01
LAST_DAY = date(2026, 11, 21)


@pytest.mark.large
def test_a_lake_ends_on_its_last_day_and_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    write_tpch = import_module("tpch").write_tpch
    lake, later = tmp_path / "lake", tmp_path / "later"

    assert write_tpch(lake, GENERATOR, SCALE, LAST_DAY)
    assert not write_tpch(lake, GENERATOR, SCALE, LAST_DAY)
    assert last_days(lake) == {"orders": LAST_DAY, "lineitem": LAST_DAY}
    begun = rows(lake)
    orders, lineitem = (ds.dataset(lake / name) for name in ("orders", "lineitem"))
    ordered = set(orders.to_table(columns=["o_orderkey"])["o_orderkey"].to_pylist())
    assert set(lineitem.to_table(columns=["l_orderkey"])["l_orderkey"].to_pylist()) <= ordered

    for name in ("orders", "lineitem"):  # a lake that was not finished
        shutil.rmtree(lake / name / f"ds={LAST_DAY}")
    next_day = LAST_DAY + timedelta(days=1)
    assert write_tpch(lake, GENERATOR, SCALE, next_day)
    assert last_days(lake) == {"orders": next_day, "lineitem": next_day}
    grown = rows(lake)
    assert {file: grown[file] for file in begun} == begun
    assert write_tpch(later, GENERATOR, SCALE, next_day)
    assert rows(later).items() <= grown.items()


def last_days(lake: Path) -> dict[str, date]:
    days = {"orders": "o_orderdate", "lineitem": "l_shipdate"}
    return {name: pc.max(ds.dataset(lake / name).to_table(columns=[day])[day]).as_py() for name, day in days.items()}


def rows(lake: Path) -> dict[str, object]:
    return {str(file.relative_to(lake)): file.read_bytes() for file in lake.rglob("*.parquet")}
