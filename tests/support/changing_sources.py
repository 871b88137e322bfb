"""Tables of other engines that tests change as those do: written by PyIceberg and delta-rs, and folders of Parquet files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, LongType, NestedField

from airflow_dynamic_tables.services.workspace import Workspace

Row = tuple[Any, ...]
Columns = dict[str, IcebergType]


def _schema(columns: Columns) -> Schema:
    return Schema(*(NestedField(number, name, kind) for number, (name, kind) in enumerate(columns.items(), 1)))


def as_arrow(rows: Sequence[Row], columns: Columns) -> pa.Table:
    """Return rows as a table."""
    fields = [field.remove_metadata() for field in schema_to_pyarrow(_schema(columns))]
    schema = pa.schema([pa.field(each.name, pa.string() if each.type == pa.large_string() else each.type) for each in fields])
    return pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema)


class IcebergSource:
    """A table of an Iceberg catalog, written by PyIceberg."""

    def __init__(self, workspace: Workspace, _: Path, name: str, columns: Columns, key: str | None) -> None:
        self.definition = f"{{name: raw.{name}, format: iceberg}}"
        self._name, self._columns, self._key = f"raw.{name}", columns, key
        self._catalog = workspace.catalog("lake").stores()[0].tables  # type: ignore[attr-defined]
        self._catalog.create_namespace_if_not_exists("raw")
        self._create()

    def _create(self) -> None:
        spec = UNPARTITIONED_PARTITION_SPEC
        if self._key is not None:
            number = list(self._columns).index(self._key) + 1
            spec = PartitionSpec(PartitionField(number, 1000, IdentityTransform(), self._key))
        self._table: Table = self._catalog.create_table(self._name, _schema(self._columns), partition_spec=spec)

    @property
    def table(self) -> Table:
        """The table as it is now."""
        return self._table.refresh()

    def rows(self) -> pa.Table:
        """Return the current rows."""
        return self.table.scan().to_arrow()

    def append(self, rows: pa.Table) -> None:
        """Add rows."""
        self.table.append(rows)

    def overwrite(self, rows: pa.Table) -> None:
        """Replace all rows."""
        self.table.overwrite(rows)

    def replace(self, rows: pa.Table, value: str) -> None:
        """Replace the rows of a partition."""
        self.table.overwrite(rows, f"{self._key} = '{value}'")

    def delete(self, condition: str) -> None:
        """Delete rows."""
        self.table.delete(condition)

    def recreate(self, rows: pa.Table) -> None:
        """Drop the table and create it again, with these rows."""
        self._catalog.drop_table(self._name)
        self._create()
        self.append(rows)

    def compact(self) -> None:
        """Write the same rows again, in other files."""
        self.overwrite(self.rows())

    def forget(self) -> None:
        """Expire all snapshots but the current one."""
        table = self.table
        others = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != table.metadata.current_snapshot_id]
        table.maintenance.expire_snapshots().by_ids(others).commit()

    def add_column(self, name: str = "more") -> None:
        """Add a column of nulls."""
        with self.table.update_schema() as update:
            update.add_column(name, LongType())

    def restore(self, number: int) -> None:
        """Go back by a number of versions, or as many as there are."""
        snapshots = self._versions()
        self.table.manage_snapshots().set_current_snapshot(snapshots[max(0, len(snapshots) - 1 - number)]).commit()

    def _versions(self) -> list[int]:
        table = self.table
        known = {one.snapshot_id for one in table.snapshots()}
        return [one.snapshot_id for one in table.history() if one.snapshot_id in known]


class DeltaSource:
    """A Delta table in a folder, written by delta-rs."""

    def __init__(self, _: Workspace, folder: Path, name: str, columns: Columns, key: str | None) -> None:
        self.folder = folder / name
        self.definition = f"{{name: raw.{name}, format: delta, path: {self.folder}}}"
        self._key = [key] if key else None
        self.append(as_arrow([], columns))

    def rows(self) -> pa.Table:
        """Return the current rows."""
        return DeltaTable(self.folder).to_pyarrow_table()

    def append(self, rows: pa.Table) -> None:
        """Add rows."""
        write_deltalake(self.folder, rows, partition_by=self._key, mode="append", schema_mode="merge")

    def overwrite(self, rows: pa.Table) -> None:
        """Replace all rows."""
        write_deltalake(self.folder, rows, partition_by=self._key, mode="overwrite", schema_mode="merge")

    def replace(self, rows: pa.Table, value: str) -> None:
        """Replace the rows of a partition."""
        predicate = f"{(self._key or [''])[0]} = '{value}'"
        write_deltalake(self.folder, rows, partition_by=self._key, mode="overwrite", predicate=predicate, schema_mode="merge")

    def delete(self, condition: str) -> None:
        """Delete rows."""
        DeltaTable(self.folder).delete(condition)

    def recreate(self, rows: pa.Table) -> None:
        """Drop the table and create it again, with these rows."""
        shutil.rmtree(self.folder)
        self.append(rows)

    def compact(self) -> None:
        """Write the same rows again, in other files."""
        DeltaTable(self.folder).optimize.compact()

    def forget(self) -> None:
        """Delete the log before the current version."""
        table = DeltaTable(self.folder)
        table.create_checkpoint()
        for version in range(table.version()):
            (self.folder / "_delta_log" / f"{version:020}.json").unlink(missing_ok=True)

    def add_column(self, name: str = "more") -> None:
        """Add a column of nulls."""
        table = DeltaTable(self.folder).to_pyarrow_table()
        more = table.append_column(name, pa.nulls(table.num_rows, pa.int64()))
        write_deltalake(self.folder, more, partition_by=self._key, mode="overwrite", schema_mode="overwrite")

    def restore(self, number: int) -> None:
        """Go back by a number of versions, or as many as there are."""
        table = DeltaTable(self.folder)
        kept = min(int(file.stem) for file in (self.folder / "_delta_log").glob("*.json"))
        if (version := max(kept, table.version() - number)) < table.version():
            table.restore(version)


class FolderSource:
    """Parquet files, in folders by partition."""

    def __init__(self, _: Workspace, folder: Path, name: str, columns: Columns, key: str | None) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self._empty, self._key, self._files = as_arrow([], columns), key, count()
        schema = ", ".join(f"{each} {'bigint' if str(kind) == 'long' else kind}" for each, kind in columns.items())
        keys = f", partitioned_by: [{key}]" if key else ""
        self.definition = f"{{name: raw.{name}, format: parquet, path: {self.folder}, schema: '{schema}'{keys}}}"

    def rows(self) -> pa.Table:
        """Return the current rows."""
        tables = [self._empty]
        for file in self.files:
            table = pq.read_table(file, partitioning=None)
            if self._key:
                values = pa.array([file.parent.name.partition("=")[2]] * table.num_rows, pa.string())
                table = table.append_column(self._key, values)
            tables.append(table.select(self._empty.column_names).cast(self._empty.schema))
        return pa.concat_tables(tables)

    def append(self, rows: pa.Table, *, hours: int = 1) -> None:
        """Add a file to each partition of the rows, which looks as if it had been written some hours ago."""
        for value in pc.unique(rows[self._key]).to_pylist() if self._key else [None]:
            part, folder = rows, self.folder
            if self._key:
                part = rows.filter(pc.equal(rows[self._key], value)).drop_columns(self._key)
                folder /= f"{self._key}={value}"
            folder.mkdir(exist_ok=True)
            number = next(self._files)
            file = folder / f"{number}.parquet"
            # A file appears under its name when it is complete; until then its name is hidden.
            pq.write_table(part, folder / f"_{number}.parquet")
            stamp = (datetime.now(UTC) - timedelta(hours=hours)).timestamp() + number
            os.utime(folder / f"_{number}.parquet", (stamp, stamp))
            (folder / f"_{number}.parquet").rename(file)

    @property
    def files(self) -> list[Path]:
        """The current files, without hidden ones."""
        return sorted(self.folder.rglob("[!_]*.parquet"))

    def write_again(self, file: Path) -> None:
        """Replace a file by another one of the same name, which has its rows twice."""
        table = pq.read_table(file, partitioning=None)
        pq.write_table(pa.concat_tables([table] * 2), file)
        stamp = (datetime.now(UTC) - timedelta(hours=1)).timestamp() + next(self._files)
        os.utime(file, (stamp, stamp))

    def add_column(self, name: str = "more") -> None:
        """Add a file whose columns have another order, and one more."""
        rows = self.rows()[:2]
        self.append(rows.select(rows.column_names[::-1]).append_column(name, pa.nulls(rows.num_rows, pa.int64())))

    def overwrite(self, rows: pa.Table) -> None:
        """Replace all rows."""
        for entry in self.folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        self.append(rows)

    def replace(self, rows: pa.Table, value: str) -> None:
        """Replace the rows of a partition."""
        shutil.rmtree(self.folder / f"{self._key}={value}", ignore_errors=True)
        self.append(rows)

    def compact(self) -> None:
        """Write the same rows again, in other files."""
        self.overwrite(self.rows())

    def recreate(self, rows: pa.Table) -> None:
        """Remove the folder and create it again, with these rows."""
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        self.append(rows)


ChangingSource = IcebergSource | DeltaSource | FolderSource
