"""TPC-H data as a data lake has it, ending on a day that is asked for: Parquet, orders and lineitem in a folder for every day.

A day has the same rows whenever it is written. So a lake grows by the days that it does not have yet, and no other day changes.
"""

from __future__ import annotations

import shutil
import subprocess
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

FIRST = date(1992, 8, 1)
PERIOD = timedelta(days=2190)
"""The days of TPC-H that are shown, six years, again and again; before them TPC-H has fewer shipments, after them no orders."""
SHIPPED = timedelta(days=91)
"""The days of shipments that are kept: all years would be thousands of tiny files."""
UNDER_WAY = timedelta(days=121)
"""The longest that TPC-H takes from an order to its shipment."""
DATED = ("orders", "lineitem")
PLAIN = ("nation", "customer")


def write_tpch(folder: Path, generator: Path, scale: float, last_day: date) -> bool:
    """Write nation, customer, orders and lineitem below a folder, or the days that are missing there.

    :param generator: the program ``tpchgen-cli``.
    :param scale: TPC-H scale factor, 1 is about 1 GB.
    :param last_day: the day of the last orders and shipments; what is shipped later is in no file.
    :return: whether anything was written.
    """
    last_shipments = Path("lineitem", f"ds={last_day}")
    if (folder / last_shipments).exists():
        return False
    new = folder.with_name(f"{folder.name}.writing")
    shutil.rmtree(new, ignore_errors=True)
    raw = new / "raw"
    raw.mkdir(parents=True)
    tables = ",".join((*PLAIN, *DATED))
    command = [str(generator), "parquet", "-s", str(scale), f"--tables={tables}", f"--output-dir={raw}"]
    subprocess.run(command, check=True, capture_output=True)
    for name in PLAIN:
        (new / name).mkdir()
        (raw / f"{name}.parquet").rename(new / name / "part-0.parquet")
    first_day = last_day - SHIPPED + timedelta(days=1)
    _write_days(raw / "orders.parquet", "o_orderdate", (first_day - UNDER_WAY, last_day), new / "orders")
    _write_days(raw / "lineitem.parquet", "l_shipdate", (first_day, last_day), new / "lineitem")
    shutil.rmtree(raw)
    parts = [path.relative_to(new) for path in (*map(new.joinpath, PLAIN), *new.glob("*/ds=*"))]
    for part in sorted(parts, key=lambda part: part == last_shipments):  # the last one says that all are there
        if not (folder / part).exists():
            (folder / part).parent.mkdir(parents=True, exist_ok=True)
            (new / part).rename(folder / part)
    shutil.rmtree(new)
    return True


def _write_days(file: Path, day: str, days: tuple[date, date], folder: Path) -> None:
    """Write the rows of these days, both included, into a folder for each day; the file has them in TPC-H's own time."""
    later = PERIOD * ((days[1] - FIRST) // PERIOD)
    first, last = (end - later for end in days)
    table = _read(file).filter((pc.field(day) >= first) & (pc.field(day) <= last))
    for index, column in enumerate(table.schema):
        if column.type == pa.date32():
            shifted = pc.add(table[column.name].cast(pa.int32()), pa.scalar(later.days, pa.int32()))
            table = table.set_column(index, column, shifted.cast(pa.date32()))
    ds.write_dataset(
        table.append_column("ds", pc.strftime(table[day], format="%Y-%m-%d")),
        folder,
        format="parquet",
        partitioning=ds.partitioning(pa.schema([("ds", pa.string())]), flavor="hive"),
        use_threads=False,  # the order of the rows is that of the file
    )


def _read(file: Path) -> pa.Table:
    table = pq.read_table(file)
    # Arrow can neither filter nor partition the generator's string views yet.
    kinds = [pa.string() if field.type == pa.string_view() else field.type for field in table.schema]
    return table.cast(pa.schema(zip(table.column_names, kinds, strict=True)))
