"""How many rows a folder of files has, without reading them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq
import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, TableNotFoundError
from airflow_dynamic_tables.formats.plain import count

ORDERS = TableIdentifier("lake", "raw", "orders")
PARTITIONS: tuple[dict[str, str], ...] = ({}, {"ds": "1"}, {"land": "d/e"}, {"ds": "1", "land": "fr"}, {"ds": "01"})


def numbers(rows: int) -> pa.Table:
    return pa.table({"x": list(range(rows))})


@pytest.mark.parametrize(("file_format", "write"), [("parquet", pq.write_table), ("orc", pa_orc.write_table)])
def test_rows_of_a_folder_and_of_its_partitions(tmp_path: Path, file_format: str, write: object) -> None:
    assert callable(write)
    for rows, name in enumerate(("ds=1/land=d%2Fe/a", "ds=1/land=d%2Fe/_hidden", "ds=1/land=fr/a", "ds=2/land=d%2Fe/a"), start=1):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write(numbers(rows), str(tmp_path / name))
    source = Source(ORDERS, file_format, str(tmp_path), ("ds", "land"))
    assert [count(source, None, partition, 1000) for partition in PARTITIONS] == [8, 4, 5, 3, 0]


def test_it_ends_at_the_number_that_was_asked_for(tmp_path: Path) -> None:
    for number in range(70):
        pq.write_table(numbers(1), tmp_path / f"{number:02}.parquet")
    (tmp_path / "99.parquet").write_bytes(b"nobody needs it")
    assert count(Source(ORDERS, "parquet", str(tmp_path)), None, {}, 5) >= 5


def test_what_is_missing_or_not_written_to_its_end_is_no_number(tmp_path: Path) -> None:
    source = Source(ORDERS, "parquet", str(tmp_path / "orders"))
    with pytest.raises(TableNotFoundError, match=r"Source lake\.raw\.orders: there is nothing at "):
        count(source, None, {}, 1)
    (tmp_path / "orders").mkdir()
    assert count(source, None, {}, 1) == 0
    (tmp_path / "orders" / "a.parquet").write_bytes(b"PAR1 half")
    with pytest.raises(CatalogUnavailableError, match=r"Source lake\.raw\.orders: File .*a\.parquet is missing or damaged: "):
        count(source, None, {}, 1)
