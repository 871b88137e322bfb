"""A folder of Parquet or ORC files in Hive's layout, for ``atomicity: none``: anybody can read it, nobody is promised a version.

The job writes to a stage as always, and its result is checked as always. Then the files of the planned partitions are replaced,
one after the other, and a small JSON file that tells of the version is written last. Whoever reads meanwhile sees a part of the
refresh; whoever dies meanwhile leaves a part of it, until the same partitions are refreshed again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote

from airflow_dynamic_tables.clients.deleting import Deleted, delete_entries, delete_files, delete_folder
from airflow_dynamic_tables.clients.files import exists, list_entries, move_file, plain_path
from airflow_dynamic_tables.clients.stores import FolderStore
from airflow_dynamic_tables.core.identifiers import ObjectPath, folder_name
from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.core.tables.partitions import PartitionSet
from airflow_dynamic_tables.core.tables.schema import Column, TableLayout, spark_ddl
from airflow_dynamic_tables.core.tables.versions import Version, recorded
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    CommitRejectedError,
    CommitUnknownError,
    StageRejectedError,
)
from airflow_dynamic_tables.formats.base import CommitRequest, LakeTable, StagedTable, kept_version
from airflow_dynamic_tables.formats.commits import check_base, check_result, fresh_until, until_done
from airflow_dynamic_tables.formats.contents import RowCounts, TableContent
from airflow_dynamic_tables.formats.data_files import count_rows, read_rows, staged_partitions
from airflow_dynamic_tables.formats.fingerprints import fingerprints, schema_digest
from airflow_dynamic_tables.formats.folder.records import TableFolder, columns_in, layout_in, record_of, version_in
from airflow_dynamic_tables.formats.own_folder import check_own_folder

STAGES = "_stages"
"""A folder beside the data; for Spark and Hive, names that begin with an underscore are no data."""


class FolderTable(LakeTable):
    """A table that is a folder below a warehouse.

    :param file_format: ``parquet`` or ``orc``.
    """

    is_atomic = False

    def __init__(self, store: FolderStore, path: ObjectPath, file_format: str) -> None:
        names = map(folder_name, (path.database, path.name))
        self._path = path
        self._warehouse = store.warehouse
        self._folder = TableFolder("/".join((store.warehouse.rstrip("/"), *names)), file_format)

    def stage(self, token: str) -> FolderStagedTable:
        """See :meth:`LakeTable.stage`."""
        return FolderStagedTable(self._folder, token)

    def folder(self) -> str:
        """See :meth:`LakeTable.folder`."""
        return self._folder.location

    def current(self) -> Version | None:
        """See :meth:`LakeTable.current`."""
        return self._folder.current()

    def layout(self) -> TableLayout | None:
        """See :meth:`LakeTable.layout`."""
        record = self._folder.record()
        return layout_in(record) if record is not None else None

    def versions(self) -> list[Version]:
        """See :meth:`LakeTable.versions`: nothing but the current one is kept."""
        current = self.current()
        return [current] if current is not None else []

    def read(self, spark_name: str | None = None) -> TableContent:  # noqa: ARG002 - its files can always be read
        """See :meth:`LakeTable.read`."""
        folder = self._folder
        record = folder.filled()
        keys = tuple(record["partition_keys"])
        files = folder.listing()
        schema = spark_ddl(columns_in(record))
        return TableContent(
            snapshot=str(record["number"]),
            files=tuple(files),
            schema=schema,
            format=folder.format,
            base_path=folder.location if keys else None,
            partition_keys=keys,
            state=SourceState(
                version=str(record["number"]),
                location=folder.location,
                schema=schema_digest(schema),
                partitions=fingerprints((folder.partition(file), (file, info)) for file, info in files.items()),
            ),
        )

    def snapshot(self) -> str:
        """See :meth:`LakeTable.snapshot`."""
        return str(self._folder.filled()["number"])

    def count(self, partitions: PartitionSet) -> RowCounts | None:
        """See :meth:`LakeTable.count`."""
        if self._folder.record() is None:
            return None
        files = self._folder.files()
        rows = count_rows(files, self._folder.format)
        return RowCounts.of(zip(map(self._folder.partition, files), rows, strict=True), partitions)

    def sample(self, rows: int, version: int | None = None) -> list[dict[str, Any]]:
        """See :meth:`LakeTable.sample`."""
        folder = self._folder
        names = [column.name for column in columns_in(folder.filled())]
        if version is not None:
            kept_version(self.versions(), version, self._path)
        read = read_rows([(file, folder.partition(file)) for file in folder.files()], folder.format, rows)
        return [{name: row.get(name) for name in names} for row in read]

    def delete_orphans(self, before: datetime, held: Callable[[], Collection[str]]) -> Deleted:
        """See :meth:`LakeTable.delete_orphans`: files are replaced at once, so only stages can be left."""
        stages = f"{self._folder.location}/{STAGES}"
        check_own_folder(self._folder.location, (self._warehouse,))
        check_own_folder(stages, ())
        entries = list_entries(stages)
        folders = tuple(f"{plain_path(stage)}/" for stage in held())
        old = [entry for entry in entries if entry.changed_at is not None and entry.changed_at < before]
        return delete_entries(stages, [entry for entry in old if not f"{entry.path}/".startswith(folders)])


class FolderStagedTable(StagedTable):
    """The stage of one refresh: a hidden folder in the folder of the table."""

    def __init__(self, folder: TableFolder, token: str) -> None:
        self._folder = folder
        self._token = token

    def begin(self) -> str:
        """See :meth:`StagedTable.begin`."""
        return f"{self._folder.location}/{STAGES}/{quote(self._token, safe='')}"

    def commit(self, request: CommitRequest, before_publish: Callable[[], None]) -> Version:
        """See :meth:`StagedTable.commit`; here it is not one step, and a failure in the middle is an unknown outcome."""
        if version := self.outcome():
            return version
        check_result(request, self._token, self.begin())
        check_base(self._folder.location, request, self._folder.current(), lambda: map(version_in, self._folder.records()))
        columns = self._evolution(request)
        partitions = staged_partitions(request, f"{self.begin()}/data", self._folder.format)
        filled = {folder.location for folder in partitions.values()}
        staged = [file.path for file in request.result.files if file.path.rpartition("/")[0] in filled]
        before_publish()
        try:
            self._replace(request, staged)
            return self._record(request, columns)
        except (OSError, CatalogUnavailableError) as error:
            raise CommitUnknownError(
                f"{self._folder.location} is replaced in part ({error}); refresh the same partitions again."
            ) from error

    def outcome(self) -> Version | None:
        """See :meth:`StagedTable.outcome`."""
        records = self._folder.records()
        return next((version_in(record) for record in records if record["token"] == self._token), None)

    def fence(self) -> None:
        """See :meth:`StagedTable.fence`: without its files a commit can go no further."""
        self.abort()

    def abort(self, location: str | None = None) -> None:  # noqa: ARG002 - it needs no reminder
        """See :meth:`StagedTable.abort`."""
        delete_folder(self._folder.location, self.begin())

    def _evolution(self, request: CommitRequest) -> tuple[Column, ...]:
        record = self._folder.record()
        columns = request.result.columns
        if record is None:
            if exists(self._folder.location) and (files := self._folder.files()):
                raise StageRejectedError(f"{files[0]} is there already and of no refresh; choose another name for the table.")
            return tuple(columns)
        layout = layout_in(record)
        layout.check_keys(self._folder.location, request.partition_keys, request.rebuild)
        return layout.evolved(columns, request.rebuild)

    def _replace(self, request: CommitRequest, staged: Sequence[str]) -> None:
        """Put in the staged files, then take out the old ones of the same partitions."""
        data = f"{self.begin()}/data"
        old = [file for file in self._folder.files() if request.partitions.covers(self._folder.partition(file))]
        targets = {file: self._folder.location + file[len(data) :] for file in staged}
        for file, target in targets.items():
            move_file(file, target)
        delete_files(self._folder.location, sorted(set(old) - set(targets.values())))

    def _record(self, request: CommitRequest, columns: Sequence[Column]) -> Version:
        # Without its record nobody knows which version the rows are of, though they are there.
        attempt = partial(self._recorded, request, columns)
        return until_done(attempt, self._folder.location, "recording a version", pause=False, error=CommitUnknownError)

    def _recorded(self, request: CommitRequest, columns: Sequence[Column]) -> Version | None:
        """The version, once its number was free and is taken."""
        if not exists(self.begin()):
            raise CommitRejectedError(f"The stage of {self._token} was given up meanwhile.")
        number = self._folder.last_number() + 1
        version = Version(
            number=number,
            token=self._token,
            snapshot=str(number),
            data_timestamp=fresh_until(request.data_timestamp, self._folder.current()),
            committed_at=datetime.now(UTC),  # as Iceberg does it: the time of the commit itself
            sources=dict(request.sources),
            partitions=recorded(request.partitions),
        )
        if not self._folder.add(record_of(version, request.partition_keys, columns)):
            return None
        self.abort()
        return version
