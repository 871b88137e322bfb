"""A folder of Parquet or ORC files in Hive's layout, for ``atomicity: none``: anybody can read it, nobody is promised a version.

The job writes to a stage as always, and its result is checked as always. Then the files of the planned partitions are replaced,
one after the other, and a small JSON file that tells of the version is written last. Whoever reads meanwhile sees a part of the
refresh; whoever dies meanwhile leaves a part of it, until the same partitions are refreshed again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.identifiers import quote as quoted
from airflow_dynamic_tables.core.schema import Column, evolve
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    CommitRejectedError,
    CommitUnknownError,
    StageRejectedError,
    TableNotFoundError,
)
from airflow_dynamic_tables.staging.base import (
    CommitRequest,
    RowCounts,
    StagedTable,
    StagingContext,
    SupportsStaging,
    TableContent,
    kept_version,
)
from airflow_dynamic_tables.staging.checking import check_result, coverage
from airflow_dynamic_tables.staging.hive_files import count_rows, partition_of, read_rows, staged_partitions
from airflow_dynamic_tables.storage import (
    Deleted,
    create_text,
    delete_entries,
    delete_files,
    delete_folder,
    exists,
    list_entries,
    list_files,
    move_file,
    plain_path,
    read_text,
)

STAGES = "_stages"
VERSIONS = "_versions"
"""Folders beside the data; for Spark and Hive, names that begin with an underscore are no data."""

_ATTEMPTS = 10

_RECORDS = 20
"""How many records are kept, for the outcome of refreshes that ended side by side."""


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
        schema = ", ".join(f"{quoted(column.name)} {column.type}" for column in _columns(record))
        keys = tuple(record["partition_keys"])
        return TableContent(
            str(record["number"]), tuple(folder.files()), schema, self._format, folder.location if keys else None, keys
        )

    def snapshot(self, path: ObjectPath) -> str:
        """See :meth:`SupportsStaging.snapshot`."""
        return str(self._folder(path).filled()["number"])

    def count(self, path: ObjectPath, partitions: Sequence[Mapping[str, str]]) -> RowCounts | None:
        """See :meth:`SupportsStaging.count`."""
        folder = self._folder(path)
        if folder.record() is None:
            return None
        files = folder.files()
        return RowCounts.of(zip(map(folder.partition, files), count_rows(files, self._format), strict=True), partitions)

    def sample(self, path: ObjectPath, rows: int, version: int | None = None) -> list[dict[str, Any]]:
        """See :meth:`SupportsStaging.sample`."""
        folder = self._folder(path)
        names = [column.name for column in _columns(folder.filled())]
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

    def _folder(self, path: ObjectPath) -> _Folder:
        names = (quote(name, safe="") for name in (path.database, path.name))
        return _Folder("/".join((self._warehouse, *names)), self._format)


class FolderStagedTable(StagedTable):
    """The stage of one refresh: a hidden folder in the folder of the table."""

    def __init__(self, folder: _Folder, context: StagingContext) -> None:
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
        return next((_version(record) for record in records if record["token"] == self._context.token), None)

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
        return evolve(_columns(record), columns)

    def _replace(self, staged: Sequence[str]) -> None:
        """Put in the staged files, then take out the old ones of the same partitions."""
        covers, data = coverage(self._context.partitions), f"{self.begin()}/data"
        old = [file for file in self._folder.files() if covers(self._folder.partition(file))]
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
                return _version(record)
        raise CommitUnknownError(
            f"{self._folder.location} was refreshed by others {_ATTEMPTS} times meanwhile; refresh it again."
        )


class _Folder:
    """The folder of one table: its data files, and the records of its latest versions."""

    def __init__(self, location: str, file_format: str) -> None:
        self.location = location
        self.format = file_format

    def files(self) -> list[str]:
        """Data files, sorted, spelled as the location is."""
        if not exists(self.location):
            return []
        root = plain_path(self.location)
        return [self.location + plain_path(file)[len(root) :] for file in list_files(self.location)]

    def partition(self, file: str) -> dict[str, str]:
        """The partition that the folder of a file names."""
        return partition_of(file.rpartition("/")[0][len(self.location) + 1 :])

    def records(self) -> Iterator[dict[str, Any]]:
        """Records of the latest versions, newest first; one that nobody finished writing tells nothing.

        :raises CatalogUnavailableError: when they cannot be read.
        """
        for name in reversed(self._names()):
            try:
                yield json.loads(read_text(f"{self.location}/{VERSIONS}/{name}"))
            except ValueError:
                continue
            except OSError as error:
                raise CatalogUnavailableError(f"Cannot read the versions of {self.location}: {error}") from error

    def record(self) -> dict[str, Any] | None:
        """The record of the current version."""
        return next(self.records(), None)

    def filled(self) -> dict[str, Any]:
        """As :meth:`record`.

        :raises TableNotFoundError: when there is none.
        """
        if (record := self.record()) is None:
            raise TableNotFoundError(f"Table {self.location} does not exist or has no version yet.")
        return record

    def current(self) -> Version | None:
        """The current version."""
        record = self.record()
        return _version(record) if record is not None else None

    def last_number(self) -> int:
        """The highest number of any version, finished or not; 0 when there is none."""
        return max((int(name.partition(".")[0]) for name in self._names()), default=0)

    def add(self, record: Mapping[str, Any]) -> bool:
        """Write a record; False when somebody else was first to take its number."""
        try:
            create_text(f"{self.location}/{VERSIONS}/{record['number']:08d}.json", json.dumps(record, indent=1))
        except FileExistsError:
            return False
        versions = f"{self.location}/{VERSIONS}"
        delete_files(versions, [f"{versions}/{name}" for name in self._names()[:-_RECORDS]])
        return True

    def _names(self) -> list[str]:
        entries = list_entries(f"{self.location}/{VERSIONS}")
        return sorted(entry.path.rpartition("/")[2] for entry in entries if entry.path.endswith(".json"))


def _columns(record: Mapping[str, Any]) -> tuple[Column, ...]:
    return tuple(Column(**column) for column in record["columns"])


def _version(record: Mapping[str, Any]) -> Version:
    return Version(
        number=record["number"],
        token=record["token"],
        snapshot=str(record["number"]),
        data_timestamp=datetime.fromisoformat(record["data_timestamp"]) if record["data_timestamp"] else None,
        committed_at=datetime.fromisoformat(record["committed_at"]),
        sources=record["sources"],
    )
