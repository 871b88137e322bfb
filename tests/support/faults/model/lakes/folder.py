"""Plain folders of Parquet files as somebody sees and changes them who knows nothing but files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from tests.support.faults.model.lakes.base import Lake, Seen, rows_of
from tests.support.faults.model.lakes.files import data_files, read_rows, write_rows
from tests.support.faults.model.state import Row, Rows
from tests.support.faults.model.strikes import FILE
from tests.support.faults.victims import REVENUE, Site


class FolderLake(Lake):
    """The folder of a table that is refreshed with ``atomicity: none``."""

    format = "parquet"
    is_atomic = False
    can_move = False
    kept = 1
    points = (FILE, FILE, FILE, "statement", "sent")

    def __init__(self, site: Site) -> None:
        self._folder = Path(site.home, "warehouse", REVENUE.catalog, REVENUE.database, REVENUE.table)

    @property
    def table(self) -> TableIdentifier:
        return REVENUE

    def versions(self, name: str) -> list[Seen]:  # noqa: ARG002 - there is one table only
        records = sorted((self._folder / "_versions").glob("*.json"))
        if not records:
            return []
        told = json.loads(records[-1].read_text())
        fresh = told["data_timestamp"]
        return [Seen(told["number"], told["token"], datetime.fromisoformat(fresh) if fresh else None, str(told["number"]))]

    def rows(self, name: str, snapshot: str | None = None) -> Rows:  # noqa: ARG002 - only the current one can be read
        return rows_of(self._rows())

    def problems(self, name: str) -> list[str]:  # noqa: ARG002 - a file that is missing shows in the rows
        return []

    def left_over(self, name: str) -> list[str]:  # noqa: ARG002 - there is one table only
        return [str(file) for file in (self._folder / "_stages").rglob("*") if file.is_file()]

    def append(self, name: str, day: str, row: Row) -> None:  # noqa: ARG002 - there is one table only
        number, width = row
        write_rows(self._folder / f"ds={day}", [{"n": number} | {f"c{place}": number for place in range(1, width + 1)}])

    def delete(self, name: str, day: str) -> None:  # noqa: ARG002 - there is one table only
        for file in data_files(self._folder / f"ds={day}"):
            file.unlink()

    def compact(self, name: str) -> None:  # noqa: ARG002 - there is one table only
        for folder in self._folder.glob("ds=*"):
            if old := list(data_files(folder)):
                write_rows(folder, [row for file in old for row in read_rows(file)])
                for file in old:
                    file.unlink()

    def _rows(self) -> Iterator[dict[str, Any]]:
        for folder in self._folder.glob("ds=*"):
            for file in data_files(folder):
                for row in read_rows(file):
                    yield {"ds": folder.name.removeprefix("ds="), **row}
