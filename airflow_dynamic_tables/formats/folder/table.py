"""A folder of Parquet or ORC files in Hive's layout, for ``atomicity: none``: anybody can read it, nobody is promised a version.

The job writes to a stage as always, and its result is checked as always. Then the files of the planned partitions are replaced,
one after the other, and a small JSON file that tells of the version is written last. Whoever reads meanwhile sees a part of the
refresh; whoever dies meanwhile leaves a part of it, until the same partitions are refreshed again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from airflow_dynamic_tables.clients.files import (
    Deleted,
    delete_entries,
    delete_files,
    delete_folder,
    exists,
    list_entries,
    move_file,
    plain_path,
)
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.partitions import PartitionSet
from airflow_dynamic_tables.core.tables.schema import Column, evolve, spark_ddl
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.exceptions import (
    CommitRejectedError,
    CommitUnknownError,
    StageRejectedError,
)
from airflow_dynamic_tables.formats.base import (
    CommitRequest,
    RowCounts,
    StagedTable,
    StagingContext,
    SupportsStaging,
    TableContent,
    kept_version,
)
from airflow_dynamic_tables.formats.commits import check_result
from airflow_dynamic_tables.formats.data_files import count_rows, read_rows, staged_partitions
from airflow_dynamic_tables.formats.folder.records import TableFolder, columns_in, version_in

STAGES = "_stages"
"""A folder beside the data; for Spark and Hive, names that begin with an underscore are no data."""

_ATTEMPTS = 10


class FolderStaging(SupportsStaging):
    """Tables that are folders below a warehouse.

    :param warehouse: URI of a folder; each database is a folder in it, each table one in that.
    :param file_format: ``parquet`` or ``orc``.
    """

    def __init__(self, warehouse: str, file_format: str) -> None:
        self._warehouse = warehouse.rstrip("/")
        self._format = file_format

    def stage(self, context: StagingContext) -> FolderStagedTable:
        """See :meth:`SupportsStaging.stage`."""
        return FolderStagedTable(self._folder(ObjectPath(context.database, context.table)), context)

    def current(self, path: ObjectPath) -> Version | None:
        """See :meth:`SupportsStaging.current`."""
        return self._folder(path).current()

    def versions(self, path: ObjectPath) -> list[Version]:
        """See :meth:`SupportsStaging.versions`: nothing but the current one is kept."""
        current = self.current(path)
        return [current] if current is not None else []

    def read(self, path: ObjectPath) -> TableContent:
        """See :meth:`SupportsStaging.read`."""
        folder = self._folder(path)
        record = folder.filled()
        schema = spark_ddl(columns_in(record))
        keys = tuple(record["partition_keys"])
        return TableContent(
            str(record["number"]), tuple(folder.files()), schema, self._format, folder.location if keys else None, keys
        )

    def snapshot(self, path: ObjectPath) -> str:
        """See :meth:`SupportsStaging.snapshot`."""
        return str(self._folder(path).filled()["number"])

    def count(self, path: ObjectPath, partitions: PartitionSet) -> RowCounts | None:
        """See :meth:`SupportsStaging.count`."""
        folder = self._folder(path)
        if folder.record() is None:
            return None
        files = folder.files()
        return RowCounts.of(zip(map(folder.partition, files), count_rows(files, self._format), strict=True), partitions)

    def sample(self, path: ObjectPath, rows: int, version: int | None = None) -> list[dict[str, Any]]:
        """See :meth:`SupportsStaging.sample`."""
        folder = self._folder(path)
        names = [column.name for column in columns_in(folder.filled())]
        if version is not None:
            kept_version(self.versions(path), version, path)
        found = read_rows([(file, folder.partition(file)) for file in folder.files()], self._format, rows)
        return [{name: row.get(name) for name in names} for row in found]

    def delete_orphans(self, path: ObjectPath, before: datetime, held: Callable[[], Collection[str]]) -> Deleted:
        """See :meth:`SupportsStaging.delete_orphans`: files are replaced at once, so only stages can be left."""
        stages = f"{self._folder(path).location}/{STAGES}"
        found = list_entries(stages)
        folders = tuple(f"{plain_path(stage)}/" for stage in held())
        old = [entry for entry in found if entry.changed_at is not None and entry.changed_at < before]
        return delete_entries(stages, [entry for entry in old if not f"{entry.path}/".startswith(folders)])

    def _folder(self, path: ObjectPath) -> TableFolder:
        names = (quote(name, safe="") for name in (path.database, path.name))
        return TableFolder("/".join((self._warehouse, *names)), self._format)


class FolderStagedTable(StagedTable):
    """The stage of one refresh: a hidden folder in the folder of the table."""

    def __init__(self, folder: TableFolder, context: StagingContext) -> None:
        self._folder = folder
        self._context = context

    def begin(self) -> str:
        """See :meth:`StagedTable.begin`."""
        return f"{self._folder.location}/{STAGES}/{quote(self._context.token, safe='')}"

    def commit(self, request: CommitRequest, before_publish: Callable[[], None]) -> Version:
        """See :meth:`StagedTable.commit`; here it is not one step, and a failure in the middle is an unknown outcome."""
        if landed := self.outcome():
            return landed
        context, result = self._context, request.result
        check_result(context, self.begin(), result)
        columns = self._evolution(result.columns)
        partitions = staged_partitions(
            result, f"{self.begin()}/data", self._folder.format, context.partition_keys, context.partitions
        )
        filled = {folder.location for folder in partitions.values()}
        before_publish()
        try:
            self._replace([file.path for file in result.files if file.path.rpartition("/")[0] in filled])
            return self._record(request, columns)
        except OSError as error:
            raise CommitUnknownError(
                f"{self._folder.location} is replaced in part ({error}); refresh the same partitions again."
            ) from error

    def outcome(self) -> Version | None:
        """See :meth:`StagedTable.outcome`."""
        records = self._folder.records()
        return next((version_in(record) for record in records if record["token"] == self._context.token), None)

    def fence(self) -> bool:
        """See :meth:`StagedTable.fence`: without its files a commit can go no further."""
        self.abort()
        return True

    def abort(self) -> None:
        """See :meth:`StagedTable.abort`."""
        delete_folder(self.begin())

    def _evolution(self, columns: Sequence[Column]) -> tuple[Column, ...]:
        context, record = self._context, self._folder.record()
        if record is None:
            if exists(self._folder.location) and (found := self._folder.files()):
                raise StageRejectedError(f"{found[0]} is there already and of no refresh; choose another name for the table.")
            return tuple(columns)
        if tuple(record["partition_keys"]) != context.partition_keys:
            raise StageRejectedError(
                f"{self._folder.location} is partitioned by ({', '.join(record['partition_keys'])}), its definition now by "
                f"({', '.join(context.partition_keys)}); give the table another name."
            )
        return evolve(columns_in(record), columns)

    def _replace(self, staged: Sequence[str]) -> None:
        """Put in the staged files, then take out the old ones of the same partitions."""
        planned, data = self._context.partitions, f"{self.begin()}/data"
        old = [file for file in self._folder.files() if planned.covers(self._folder.partition(file))]
        for file in staged:
            move_file(file, self._folder.location + file[len(data) :])
        delete_files(self._folder.location, old)

    def _record(self, request: CommitRequest, columns: Sequence[Column]) -> Version:
        for _ in range(_ATTEMPTS):
            if not exists(self.begin()):
                raise CommitRejectedError(f"The stage of {self._context.token} was given up meanwhile.")
            previous = self._folder.current()
            known = previous.data_timestamp if previous is not None else None
            times = [time for time in (request.data_timestamp, known) if time is not None]
            record = {
                "number": self._folder.last_number() + 1,
                "token": self._context.token,
                "data_timestamp": max(times).astimezone(UTC).isoformat() if times else None,
                "committed_at": datetime.now(UTC).isoformat(),  # as Iceberg does it: the time of the commit itself
                "sources": dict(request.sources),
                "partition_keys": list(self._context.partition_keys),
                "columns": [asdict(column) for column in columns],
            }
            if self._folder.add(record):
                self.abort()
                return version_in(record)
        raise CommitUnknownError(
            f"{self._folder.location} was refreshed by others {_ATTEMPTS} times meanwhile; refresh it again."
        )
