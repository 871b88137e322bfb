"""Hive tables as somebody sees and changes them who knows Thrift and Parquet, and nothing of versions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from hive_metastore.ttypes import InvalidOperationException, NoSuchObjectException, Partition, Table

from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.stores import MetastoreStore
from airflow_dynamic_tables.core.identifiers import ObjectPath, TableIdentifier
from airflow_dynamic_tables.formats.hive.table import HiveTable
from tests.support.faults.model.lakes.base import Lake, Seen, rows_of
from tests.support.faults.model.lakes.files import data_files, read_rows, write_rows
from tests.support.faults.model.state import Row, Rows
from tests.support.faults.model.strikes import CALL, FILE

ALL = -1
"""Partitions asked for in one call: however many there are."""


class HiveLake(Lake):
    """The Hive tables of a database that is the checker's own; their files are Parquet."""

    format = "parquet"
    can_put_back = True
    points = (CALL, CALL, CALL, FILE, "statement", "sent")

    def __init__(self, uri: str, database: str, *, partitioned: bool = True) -> None:
        self._metastore = Metastore(uri)
        self._table = TableIdentifier("lake", database, "revenue")
        self.partitioned = partitioned
        self._read: list[Partition] = []

    @property
    def table(self) -> TableIdentifier:
        return self._table

    def versions(self, name: str) -> list[Seen]:
        path = ObjectPath(self._table.database, name)
        versions = HiveTable(MetastoreStore("lake", self._metastore), path, self.format).versions()
        return [Seen(version.number, version.token, version.data_timestamp, version.snapshot) for version in versions]

    def rows(self, name: str, snapshot: str | None = None) -> Rows:  # noqa: ARG002 - only the current one can be read
        return rows_of(self._rows(name))

    def problems(self, name: str) -> list[str]:  # noqa: ARG002 - there is nothing to look at
        """See :meth:`Lake.problems`: a file that is missing shows in the rows."""
        return []

    def left_over(self, name: str) -> list[str]:
        """See :meth:`Lake.left_over`; also partitions that are there for a commit only."""
        table = self._load(name)
        if table is None or "dynamic-tables.location" not in table.parameters:  # nothing was ever committed
            return []
        places = dict(self._places(table))
        left = [
            f"partition {day}" for day, place in places.items() if "/_versions/" in str(place) and not list(data_files(place))
        ]
        root = Path(_local(table.parameters["dynamic-tables.location"]), "_versions")
        used = {*places.values(), root / "_tables"}
        return [*left, *(str(file) for file in root.rglob("*") if file.is_file() and not {*file.parents} & used)]

    def append(self, name: str, day: str, row: Row) -> None:
        table = self._filled(name)
        places = dict(self._places(table))
        if self.partitioned and day not in places:
            places[day] = Path(_local(table.sd.location), f"written-{uuid4()}", f"ds={day}")
            made = Partition([day], table.dbName, table.tableName, 0, 0, table.sd, {})
            made.sd.location = f"file://{places[day]}"
            self._metastore.call("add_partition", made)
        number, width = row
        values = {"n": number} | {f"c{place}": number for place in range(1, width + 1)}
        write_rows(places[day if self.partitioned else ""], [values if self.partitioned else {"ds": day, **values}])

    def delete(self, name: str, day: str) -> None:
        self._metastore.call("drop_partition", self._table.database, name, [day], False)

    def compact(self, name: str) -> None:
        for _, place in self._places(self._filled(name)):
            if old := list(data_files(place)):
                write_rows(place, [row for file in old for row in read_rows(file)])
                for file in old:
                    file.unlink()

    def read_partitions(self, name: str) -> None:
        found = self._metastore.ask("get_partitions", self._table.database, name, ALL)
        self._read = [one for one in found if not one.sd.location.endswith("/empty")]

    def write_partitions(self, name: str) -> list[str]:
        """See :meth:`Lake.write_partitions`; a folder that is gone since would be a fault of its own."""
        read, self._read = self._read, []
        days = []
        for one in read:
            if Path(_local(one.sd.location)).exists():
                with suppress(NoSuchObjectException, InvalidOperationException):
                    self._metastore.call("alter_partitions", self._table.database, name, [one])
                    days.append(one.values[0])
        return days

    def places(self, name: str) -> dict[str, str]:
        table = self._load(name)
        return {day: str(place) for day, place in self._places(table)} if table is not None else {}

    def close(self) -> None:
        self._metastore.close()

    def _load(self, name: str) -> Table | None:
        try:
            return self._metastore.ask("get_table", self._table.database, name)
        except NoSuchObjectException:
            return None

    def _filled(self, name: str) -> Table:
        table = self._load(name)
        if table is None:
            raise ValueError(f"{name} is not there")
        return table

    def _places(self, table: Table) -> Iterator[tuple[str, Path]]:
        """The folder of every partition by its day; that of a table without partitions by nothing."""
        if not self.partitioned:
            yield "", Path(_local(table.sd.location))
            return
        for partition in self._metastore.ask("get_partitions", table.dbName, table.tableName, ALL):
            yield partition.values[0], Path(_local(partition.sd.location))

    def _rows(self, name: str) -> Iterator[dict[str, Any]]:
        table = self._load(name)
        for day, place in self._places(table) if table is not None else ():
            for file in data_files(place):
                for row in read_rows(file):
                    yield {"ds": day, **row}


def _local(uri: str) -> str:
    return uri.removeprefix("file://").removeprefix("file:").rstrip("/")
