"""A table to stage into and a job that writes with PyArrow: the bench that the contract suite works on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from airflow_dynamic_tables.catalog.base import ReadableWritableCatalog
from airflow_dynamic_tables.clients.stores import MetastoreStore, Store
from airflow_dynamic_tables.core.formats import DEFAULT_FORMAT, FORMATS
from airflow_dynamic_tables.core.identifiers import ObjectPath, TableIdentifier
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshResult, StagedFile
from airflow_dynamic_tables.core.schema import Column, Rebuild
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.formats.base import CommitRequest, LakeTable, StagedTable
from airflow_dynamic_tables.formats.registry import open_table
from tests.support.benches.registering import register, register_in

COLUMNS = (Column("ds", "string"), Column("n", "bigint"))
REVENUE = ObjectPath("sales", "revenue")
NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


@dataclass
class Bench:
    store: Store
    path: ObjectPath = REVENUE
    partition_keys: tuple[str, ...] = ("ds",)
    columns: tuple[Column, ...] = COLUMNS
    hive_format: str | None = None
    """File format of a Hive table, whose partition keys only the folders have; without one it is an Iceberg table."""
    format: str = ""
    """Format of the table, when it is not that of its files."""
    catalog: ReadableWritableCatalog | None = None
    """The catalog that has to have the table before anything is staged, but for a Hive table: that of its metastore has it."""
    is_registered: bool = False
    """Whether it has."""
    names: ObjectPath = field(default_factory=lambda: ObjectPath("Säle.1", 'Rev "x"/y'))
    """As odd as names may be there."""
    planned: dict[str, PartitionSet] = field(default_factory=dict)
    """What each stage replaces, by token; the whole table, when nothing is said."""

    @property
    def table(self) -> LakeTable:
        named = TableIdentifier("lake", self.path.database, self.path.name)
        return open_table(named, self.format or self.hive_format or DEFAULT_FORMAT, (self.store,), "none")

    @property
    def keys_in_files(self) -> bool:
        """Whether the files have the partition keys, too, and not only the names of their folders."""
        return self.hive_format is None and FORMATS[self.format or DEFAULT_FORMAT].keys_in_files

    @property
    def has_files(self) -> bool:
        return not FORMATS[self.format or DEFAULT_FORMAT].in_server

    def stage(self, token: str, *days: str) -> StagedTable:
        """A stage that replaces these days; no day is the whole table."""
        if days or token not in self.planned:  # who only looks a token up does not change its plan
            self.planned[token] = PartitionSet.of({"ds": day} for day in days) if days else WHOLE_TABLE
        if isinstance(self.store, MetastoreStore) and not self.is_registered:
            register(self.store, self.path, self.hive_format or "parquet", self.partition_keys)
            self.is_registered = True
        if self.catalog is not None and not self.is_registered:
            register_in(self.catalog, self.path, self.format, self.partition_keys)
            self.is_registered = True
        return self.table.stage(token)

    def write(
        self, staged: StagedTable, rows: dict[str, list[int]], columns: tuple[Column, ...] | None = None, first: int = 0
    ) -> RefreshResult:
        """Write rows by day into a stage, one file a day with a number from the first on, and say so."""
        columns, stage, files = columns or self.columns, staged.begin(), []
        for number, (day, values) in enumerate(rows.items(), first):
            table: dict[str, Any] = {column.name: _filled(column, day, values) for column in columns}
            name = f"data/{self._folder(day, values)}part-{number}.{self.hive_format or 'parquet'}"
            file = Path(stage.removeprefix("file://"), name)
            file.parent.mkdir(parents=True, exist_ok=True)
            self._write_file(pa.table(table), file)
            files.append(StagedFile(f"{stage}/{name}", file.stat().st_size))
        touched = tuple({"ds": day} for day in rows) if self.partition_keys else ()
        return RefreshResult(stage.rpartition("/")[2], "job", sum(map(len, rows.values())), tuple(files), columns, touched)

    def scatter(self, rows: dict[str, list[int]], *days: str) -> Version:
        staged = self.stage(str(uuid4()), *days)
        results = []
        for number, (day, value) in enumerate((day, value) for day, values in rows.items() for value in values):
            results.append(self.write(staged, {day: [value]}, first=number))
        files = tuple(file for result in results for file in result.files)
        touched = tuple({"ds": day} for day in rows) if self.partition_keys else ()
        return self.commit(staged, replace(results[0], rows=len(files), files=files, partitions=touched))

    def _folder(self, day: str, values: list[int]) -> str:
        if self.keys_in_files:
            return f"_partition_0={quote(day, safe='')}/"
        named = {"ds": quote(day, safe=" !äöüßÄÖÜ漢字"), "n": str(values[0]) if values else ""}
        return "".join(f"{key}={named[key]}/" for key in self.partition_keys)

    def _write_file(self, table: pa.Table, file: Path) -> None:
        if not self.keys_in_files:
            table = table.drop_columns(list(self.partition_keys))
        if self.hive_format == "orc":
            orc.write_table(table, file)
        else:
            pq.write_table(table, file)

    def commit(
        self,
        staged: StagedTable,
        result: RefreshResult,
        before_publish: Callable[[], None] = lambda: None,
        at: datetime = NOON,
        rebuild: Rebuild = Rebuild.NOTHING,
    ) -> Version:
        return staged.commit(replace(self.request(result, at), rebuild=rebuild), before_publish)

    def request(self, result: RefreshResult, at: datetime = NOON) -> CommitRequest:
        planned = self.planned.get(unquote(result.token), WHOLE_TABLE)
        return CommitRequest(result, at, {"lake.raw.orders": "files:1"}, self.partition_keys, planned, "how much")

    def refresh(self, rows: dict[str, list[int]], *days: str, at: datetime = NOON) -> Version:
        staged = self.stage(str(uuid4()), *days)
        return self.commit(staged, self.write(staged, rows), at=at)

    def rebuild(self, rows: dict[str, list[int]], *columns: Column, before: Callable[[], None] = lambda: None) -> Version:
        """A full refresh that makes the table anew, with these columns, as far as its layout lets it."""
        staged = self.stage(str(uuid4()))
        layout = self.table.layout()
        assert layout is not None
        layout.check_keys(self.path, self.partition_keys, layout.rebuild)
        layout.evolved(columns, layout.rebuild)
        return self.commit(staged, self.write(staged, rows, columns), before, rebuild=layout.rebuild)

    def rows(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for row in self.table.sample(10_000):
            found.setdefault(row["ds"], []).append(row["n"])
        return {day: sorted(values) for day, values in sorted(found.items())}


def _filled(column: Column, day: str, values: list[int]) -> Any:
    if column.name == "ds":
        return pa.array([day] * len(values), pa.string())
    return pa.array(values, pa.int64()) if column.type == "bigint" else pa.array([f"{value}!" for value in values], pa.string())
