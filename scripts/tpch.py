"""TPC-H data as a data lake has it: Parquet, orders and lineitem in a folder for every day."""

from __future__ import annotations

import shutil
import subprocess
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

DATED = ("orders", "lineitem")
QUARTER = (date(1995, 4, 1), date(1995, 6, 30))
"""The orders that are kept, with their line items: seven years of days would be 5,000 tiny files."""
PLAIN = ("nation", "customer")


def write_tpch(folder: Path, generator: Path, scale: float) -> bool:
    """Write nation, customer, orders and lineitem below a folder, once.

    :param generator: the program ``tpchgen-cli``.
    :param scale: TPC-H scale factor, 1 is about 1 GB.
    :return: whether anything was written.
    """
    if folder.exists():
        return False
    half = folder.with_name(f"{folder.name}.writing")
    shutil.rmtree(half, ignore_errors=True)
    raw = half / "raw"
    raw.mkdir(parents=True)
    tables = ",".join((*PLAIN, *DATED))
    command = [str(generator), "parquet", "-s", str(scale), f"--tables={tables}", f"--output-dir={raw}"]
    subprocess.run(command, check=True, capture_output=True)
    for name in PLAIN:
        (half / name).mkdir()
        (raw / f"{name}.parquet").rename(half / name / "part-0.parquet")
    ordered = pc.field("o_orderdate")
    orders = _read(raw / "orders.parquet").filter((ordered >= QUARTER[0]) & (ordered <= QUARTER[1]))
    lineitem = _read(raw / "lineitem.parquet").filter(pc.field("l_orderkey").isin(orders["o_orderkey"]))
    _partition(orders, "o_orderdate", half / "orders")
    _partition(lineitem, "l_shipdate", half / "lineitem")
    shutil.rmtree(raw)
    half.rename(folder)
    return True


def _read(file: Path) -> pa.Table:
    table = pq.read_table(file)
    # Arrow can neither filter nor partition the generator's string views yet.
    kinds = [pa.string() if field.type == pa.string_view() else field.type for field in table.schema]
    return table.cast(pa.schema(zip(table.column_names, kinds, strict=True)))


def _partition(table: pa.Table, day: str, folder: Path) -> None:
    ds.write_dataset(
        table.append_column("ds", pc.strftime(table[day], format="%Y-%m-%d")),
        folder,
        format="parquet",
        partitioning=ds.partitioning(pa.schema([("ds", pa.string())]), flavor="hive"),
    )
