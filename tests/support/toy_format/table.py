"""Toy tables: Parquet files below a folder, and a list of those that count for every state of the table.

A state is a JSON file with a number for a name. Whoever makes the next one first has committed; who comes too late reads again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_dynamic_tables.clients.files import delete_folder, list_entries, open_file, read_text
from airflow_dynamic_tables.clients.stores import FolderStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import PartitionSet, describe
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.schema import Column, TableLayout, spark_ddl
from airflow_dynamic_tables.core.versions import Version, recorded
from airflow_dynamic_tables.exceptions import StageRejectedError, TableNotFoundError
from airflow_dynamic_tables.formats.base import CommitRequest, LakeTable, LoadedTable, RowCounts, StagedTable, TableContent
from airflow_dynamic_tables.formats.commits import check_base, check_result, check_rows, fresh_until, until_done
from airflow_dynamic_tables.formats.fingerprints import fingerprints, schema_digest


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file: its rows, all of one partition."""

    path: str
    rows: int
    partition: dict[str, str]


@dataclass(frozen=True, slots=True)
class State:
    """The table at some time; ``version`` is that of the latest commit, if there was one."""

    number: int
    version: Version | None = None
    keys: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    files: tuple[DataFile, ...] = ()

    @property
    def latest(self) -> Version:
        assert self.version is not None
        return self.version


class ToyTable(LakeTable):
    def __init__(self, store: FolderStore, path: ObjectPath, file_format: str) -> None:
        assert file_format == "parquet"
        self.location = "/".join((store.warehouse, quote(path.database, safe=""), quote(path.name, safe="")))

    def stage(self, token: str) -> ToyStage:
        return ToyStage(self, token)

    def load(self) -> LoadedToyTable:
        return LoadedToyTable(self.location, tuple(self.states()))

    def states(self) -> Iterator[State]:
        names = sorted((entry.path.rpartition("/")[2] for entry in list_entries(f"{self.location}/_states")), reverse=True)
        for name in names:
            yield from_plain(State, json.loads(read_text(f"{self.location}/_states/{name}")))


@dataclass(frozen=True, slots=True)
class LoadedToyTable(LoadedTable):
    location: str
    states: tuple[State, ...]

    def folder(self) -> str:
        return self.location

    def current(self) -> Version | None:
        return next((state.version for state in self.states), None)

    def layout(self) -> TableLayout | None:
        return next((TableLayout(state.columns, state.keys) for state in self.states if state.version is not None), None)

    def versions(self) -> list[Version]:
        versions = {state.version.number: state.version for state in self.states if state.version is not None}
        return [versions[number] for number in sorted(versions)]

    def read(self, spark_name: str | None = None) -> TableContent:  # noqa: ARG002 - its files can always be read
        state = self._filled()
        files, columns = tuple(file.path for file in state.files), spark_ddl(state.columns)
        partitions = fingerprints((file.partition, (file.path, {"size": file.rows})) for file in state.files)
        like = SourceState(state.latest.snapshot, None, self.location, schema_digest(columns), partitions)
        return TableContent(state.latest.snapshot, files, columns, state=like)

    def count(self, partitions: PartitionSet) -> RowCounts | None:
        state = next(iter(self.states), State(0))
        if state.version is None:
            return None
        return RowCounts.of(((file.partition, file.rows) for file in state.files), partitions)

    def sample(self, rows: int, version: int | None = None) -> list[dict[str, Any]]:
        assert version is None
        state = self._filled()
        found = [row for file in state.files for row in read_parquet(file.path).to_pylist()]
        return [{column.name: row.get(column.name) for column in state.columns} for row in found[:rows]]

    def _filled(self) -> State:
        state = next(iter(self.states), State(0))
        if state.version is None:
            raise TableNotFoundError(f"{self.location} has no version yet.")
        return state


class ToyStage(StagedTable):
    def __init__(self, table: ToyTable, token: str) -> None:
        self._table = table
        self._token = token

    def begin(self) -> str:
        return f"{self._table.location}/{quote(self._token, safe='')}"

    def commit(self, request: CommitRequest, before_publish: Callable[[], None]) -> Version:
        check_result(request, self._token, self.begin())
        added = self._added(request)

        def attempt() -> Version | None:
            if version := self.outcome():
                return version
            check_base(self._table.location, request, self._table.current(), self._table.versions)
            state = self._next(next(self._table.states(), State(0)), request, added)
            before_publish()
            return state.latest if self._publish(state) else None

        return until_done(attempt, self._table.location, "committing")

    def outcome(self) -> Version | None:
        return next((version for version in self._table.versions() if version.token == self._token), None)

    def fence(self) -> None:
        def attempt() -> bool | None:
            state = next(self._table.states(), State(0))
            return True if self.outcome() else self._publish(replace(state, number=state.number + 1)) or None

        until_done(attempt, self._table.location, "fencing", pause=False)

    def abort(self, location: str | None = None) -> None:  # noqa: ARG002 - it needs no reminder
        delete_folder(self._table.location, self.begin())

    def _publish(self, state: State) -> bool:
        folder = Path(self._table.location.removeprefix("file://"), "_states")
        folder.mkdir(parents=True, exist_ok=True)
        whole = folder.parent / f"_{uuid4()}"
        whole.write_text(json.dumps(to_plain(state)))
        try:
            os.link(whole, folder / f"{state.number:08d}")  # nobody reads half a state
        except FileExistsError:
            return False
        return True

    def _next(self, state: State, request: CommitRequest, added: tuple[DataFile, ...]) -> State:
        columns = request.result.columns
        if state.version is not None:
            layout = TableLayout(state.columns, state.keys)
            layout.check_keys(self._table.location, request.partition_keys, request.rebuild)
            columns = layout.evolved(columns, request.rebuild)
        number = state.version.number + 1 if state.version is not None else 1
        version = Version(
            number=number,
            token=self._token,
            snapshot=str(number),
            data_timestamp=fresh_until(request.data_timestamp, state.version),
            committed_at=datetime.now(UTC),
            sources=dict(request.sources),
            partitions=recorded(request.partitions),
        )
        kept = tuple(file for file in state.files if not request.partitions.covers(file.partition))
        return State(state.number + 1, version, request.partition_keys, columns, (*kept, *added))

    def _added(self, request: CommitRequest) -> tuple[DataFile, ...]:
        files = []
        for staged in request.result.files:
            try:
                table = read_parquet(staged.path)
            except (OSError, pa.ArrowException) as error:
                raise StageRejectedError(f"Staged file {staged.path} is missing or damaged: {error}") from error
            with open_file(staged.path) as stream:
                size = stream.seek(0, 2)
            if size != staged.bytes:
                raise StageRejectedError(f"Staged file {staged.path} has {size} bytes, not {staged.bytes}.")
            for spec in table.select(list(request.partition_keys)).slice(0, 1).to_pylist():
                partition = {key: str(value) for key, value in spec.items()}
                if not request.partitions.covers(partition):
                    raise StageRejectedError(
                        f"Staged file {staged.path} is of partition {describe(partition)}, which was not planned."
                    )
                files.append(DataFile(staged.path, table.num_rows, partition))
        if not request.partition_keys:
            files = [DataFile(staged.path, read_parquet(staged.path).num_rows, {}) for staged in request.result.files]
        check_rows(sum(file.rows for file in files), request.result)
        return tuple(files)


def read_parquet(path: str) -> pa.Table:
    """All rows of a file; columns in the names of folders are no part of it."""
    with open_file(path) as stream:
        return pq.ParquetFile(stream).read()
