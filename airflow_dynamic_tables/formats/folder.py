"""Folders of Parquet or ORC files in Hive's layout, for ``atomicity: none``: readable by any engine, without atomic versions.

The job writes to a stage, and its result is checked, as for other formats. Then the files of the planned partitions are replaced
one by one, and a JSON record of the version is written last. Concurrent readers see a partial refresh. A crash leaves a partial
refresh until the same partitions are refreshed again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any
from urllib.parse import quote

from airflow_dynamic_tables.clients.files import (
    Deleted,
    create_text,
    delete_files,
    delete_folder,
    exists,
    list_entries,
    list_files,
    move_file,
    plain_path,
    read_text,
)
from airflow_dynamic_tables.clients.stores import FolderStore
from airflow_dynamic_tables.core.identifiers import ObjectPath, folder_name
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.schema import Column, TableLayout, partition_of, spark_ddl
from airflow_dynamic_tables.core.versions import Version, recorded
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    CommitRejectedError,
    CommitUnknownError,
    StageRejectedError,
    TableNotFoundError,
)
from airflow_dynamic_tables.formats.base import (
    CommitRequest,
    LakeTable,
    LoadedTable,
    RowCounts,
    StagedTable,
    TableContent,
    kept_version,
)
from airflow_dynamic_tables.formats.commits import check_base, check_result, fresh_until, until_done
from airflow_dynamic_tables.formats.data_files import count_rows, first_rows, staged_partitions
from airflow_dynamic_tables.formats.fingerprints import fingerprints, schema_digest
from airflow_dynamic_tables.formats.orphans import check_own_folder, delete_old

STAGES = "_stages"
"""Folder beside the data; Spark and Hive ignore names that begin with an underscore."""

VERSIONS = "_versions"
"""Folder of the records; Spark and Hive ignore names that begin with an underscore."""

_RECORDS = 20
"""Number of records kept, so that concurrent refreshes can look up their outcome."""

_Record = tuple[Version, TableLayout]
"""A version, and the layout of the table after its commit."""


class FolderTable(LakeTable):
    """A table that is a folder below a warehouse.

    :param file_format: ``parquet`` or ``orc``.
    """

    is_atomic = False

    def __init__(self, store: FolderStore, path: ObjectPath, file_format: str) -> None:
        names = map(folder_name, (path.database, path.name))
        self._path = path
        self._warehouse = store.warehouse
        self._folder = _TableFolder("/".join((store.warehouse.rstrip("/"), *names)), file_format)

    def stage(self, token: str) -> FolderStagedTable:
        return FolderStagedTable(self._folder, token)

    def load(self) -> _LoadedFolderTable:
        return _LoadedFolderTable(self._folder, self._path)

    def delete_orphans(self, before: datetime, held: Callable[[], Collection[str]]) -> Deleted:
        """See :meth:`LakeTable.delete_orphans`: files are replaced immediately, so only stages can be orphans."""
        stages = f"{self._folder.location}/{STAGES}"
        check_own_folder(self._folder.location, (self._warehouse,))
        check_own_folder(stages, ())
        entries = list_entries(stages)
        kept = map(plain_path, held())
        return delete_old(stages, entries, kept, lambda _: before)


class _LoadedFolderTable(LoadedTable):
    """The record of the current version, and the files in the folder when they are first used."""

    def __init__(self, folder: _TableFolder, path: ObjectPath) -> None:
        self._folder = folder
        self._path = path

    def folder(self) -> str:
        return self._folder.location

    def current(self) -> Version | None:
        return self._record and self._record[0]

    def layout(self) -> TableLayout | None:
        return self._record and self._record[1]

    def versions(self) -> list[Version]:
        """See :meth:`LoadedTable.versions`: only the current version is kept."""
        return [self._record[0]] if self._record is not None else []

    def read(self, spark_name: str | None = None) -> TableContent:  # noqa: ARG002 - always read from files
        folder = self._folder
        version, layout = self._filled
        schema = spark_ddl(layout.columns)
        return TableContent(
            snapshot=version.snapshot,
            files=tuple(self._files),
            schema=schema,
            format=folder.format,
            base_path=folder.location if layout.partition_keys else None,
            partition_keys=layout.partition_keys,
            state=SourceState(
                version=version.snapshot,
                location=folder.location,
                schema=schema_digest(schema),
                partitions=fingerprints((folder.partition(file), (file, info)) for file, info in self._files.items()),
            ),
        )

    def count(self, partitions: PartitionSet) -> RowCounts | None:
        if self._record is None:
            return None
        rows = count_rows(list(self._files), self._folder.format)
        return RowCounts.of(zip(map(self._folder.partition, self._files), rows, strict=True), partitions)

    def sample(self, rows: int, version: int | None = None) -> list[dict[str, Any]]:
        folder = self._folder
        columns = self._filled[1].columns
        if version is not None:
            kept_version(self.versions(), version, self._path)
        return first_rows(((file, folder.partition(file)) for file in self._files), columns, folder.format, rows)

    @cached_property
    def _record(self) -> _Record | None:
        return self._folder.record()

    @property
    def _filled(self) -> _Record:
        if self._record is None:
            raise TableNotFoundError(f"Table {self._folder.location} does not exist or has no version yet.")
        return self._record

    @cached_property
    def _files(self) -> dict[str, Mapping[str, Any]]:
        return self._folder.listing()


class FolderStagedTable(StagedTable):
    """The stage of one refresh: a hidden folder in the folder of the table."""

    def __init__(self, folder: _TableFolder, token: str) -> None:
        self._folder = folder
        self._token = token

    def begin(self) -> str:
        return f"{self._folder.location}/{STAGES}/{quote(self._token, safe='')}"

    def commit(self, request: CommitRequest, before_publish: Callable[[], None]) -> Version:
        """See :meth:`StagedTable.commit`; it is not atomic here, and a failure during it is an unknown outcome."""
        if version := self.outcome():
            return version
        check_result(request, self._token, self.begin())
        check_base(
            self._folder.location, request, self._folder.current(), lambda: (version for version, _ in self._folder.records())
        )
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
        return next((version for version, _ in self._folder.records() if version.token == self._token), None)

    def fence(self) -> None:
        """See :meth:`StagedTable.fence`: a commit cannot continue without its files."""
        self.abort()

    def abort(self, location: str | None = None) -> None:  # noqa: ARG002 - known without it
        delete_folder(self._folder.location, self.begin())

    def _evolution(self, request: CommitRequest) -> tuple[Column, ...]:
        record = self._folder.record()
        columns = request.result.columns
        if record is None:
            for file in self._folder.listing():
                raise StageRejectedError(f"{file} is there already and of no refresh; choose another name for the table.")
            return tuple(columns)
        _, layout = record
        layout.check_keys(self._folder.location, request.partition_keys, request.rebuild)
        return layout.evolved(columns, request.rebuild)

    def _replace(self, request: CommitRequest, staged: Sequence[str]) -> None:
        """Move the staged files, then delete the old files of the same partitions."""
        data = f"{self.begin()}/data"
        old = [file for file in self._folder.listing() if request.partitions.covers(self._folder.partition(file))]
        targets = {file: self._folder.location + file[len(data) :] for file in staged}
        for file, target in targets.items():
            move_file(file, target)
        delete_files(self._folder.location, sorted(set(old) - set(targets.values())))

    def _record(self, request: CommitRequest, columns: Sequence[Column]) -> Version:
        # The rows are already published, and without a record their version is unknown.
        attempt = partial(self._recorded, request, columns)
        return until_done(attempt, self._folder.location, "recording a version", pause=False, error=CommitUnknownError)

    def _recorded(self, request: CommitRequest, columns: Sequence[Column]) -> Version | None:
        """Return the version once recorded under a free number; ``None`` if the number was taken concurrently."""
        if not exists(self.begin()):
            raise CommitRejectedError(f"The stage of {self._token} was given up meanwhile.")
        number = self._folder.last_number() + 1
        version = Version(
            number=number,
            token=self._token,
            snapshot=str(number),
            data_timestamp=fresh_until(request.data_timestamp, self._folder.current()),
            committed_at=datetime.now(UTC),  # the time of the commit, as in Iceberg
            sources=dict(request.sources),
            partitions=recorded(request.partitions),
        )
        if not self._folder.add(version, request.partition_keys, columns):
            return None
        self.abort()
        return version


class _TableFolder:
    """The folder of one table: its data files, and the records of its latest versions."""

    def __init__(self, location: str, file_format: str) -> None:
        self.location = location
        self.format = file_format

    def listing(self) -> dict[str, Mapping[str, Any]]:
        """Return data files, sorted and spelled like the location, with attributes: size, time or tag of the last change."""
        if not exists(self.location):
            return {}
        root = plain_path(self.location)
        return {self.location + plain_path(file)[len(root) :]: info for file, info in list_files(self.location).items()}

    def partition(self, file: str) -> dict[str, str]:
        """Return the partition in the folder name of a file."""
        return partition_of(file.rpartition("/")[0][len(self.location) + 1 :])

    def records(self) -> Iterator[_Record]:
        """Yield the records of the latest versions, newest first, skipping incomplete ones.

        :raises CatalogUnavailableError: if they cannot be read.
        """
        for name in reversed(self._names()):
            try:
                told = json.loads(read_text(f"{self.location}/{VERSIONS}/{name}"))
            except ValueError:
                continue
            except OSError as error:
                raise CatalogUnavailableError(f"Cannot read the versions of {self.location}: {error}") from error
            known = {field.name: told[field.name] for field in fields(Version) if field.name in told}
            columns = from_plain(tuple[Column, ...], told["columns"])
            version = from_plain(Version, {**known, "snapshot": str(told["number"])})
            yield version, TableLayout(columns, tuple(told["partition_keys"]))

    def record(self) -> _Record | None:
        """Return the record of the current version."""
        return next(self.records(), None)

    def current(self) -> Version | None:
        """Return the current version."""
        record = self.record()
        return record and record[0]

    def last_number(self) -> int:
        """Return the highest version number, including incomplete records; 0 if there is none."""
        return max((int(name.partition(".")[0]) for name in self._names()), default=0)

    def add(self, version: Version, keys: Sequence[str], columns: Sequence[Column]) -> bool:
        """Record a version and its layout; return False if its number was taken concurrently."""
        told = {key: value for key, value in to_plain(version).items() if key != "snapshot"}
        record = {**told, "partition_keys": list(keys), "columns": to_plain(tuple(columns))}
        try:
            create_text(f"{self.location}/{VERSIONS}/{version.number:08d}.json", json.dumps(record, indent=1))
        except FileExistsError:
            return False
        versions = f"{self.location}/{VERSIONS}"
        delete_files(versions, [f"{versions}/{name}" for name in self._names()[:-_RECORDS]])
        return True

    def _names(self) -> list[str]:
        entries = list_entries(f"{self.location}/{VERSIONS}")
        return sorted(entry.path.rpartition("/")[2] for entry in entries if entry.path.endswith(".json"))
