"""Iceberg: Spark writes Parquet below the table's location; PyIceberg publishes one snapshot that replaces exactly the plan.

The snapshot's summary holds the token, so that the outcome of a commit can always be looked up in the table itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import Any
from urllib.parse import quote

from pyiceberg.io import FileIO, load_file_io
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, TableProperties, Transaction

from airflow_dynamic_tables.clients.files import Deleted, delete_folder
from airflow_dynamic_tables.clients.iceberg.types import columns_of, schema_of, to_iceberg
from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.partitions import WHOLE_TABLE, PartitionSet, describe
from airflow_dynamic_tables.core.tables.retention import Retention
from airflow_dynamic_tables.core.tables.schema import evolve
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.exceptions import (
    AlreadyExistsError,
    CatalogUnavailableError,
    CommitRejectedError,
    CommitUnknownError,
    StageRejectedError,
    TableNotFoundError,
    UnsupportedError,
)
from airflow_dynamic_tables.formats.base import (
    CommitRequest,
    LakeTable,
    RowCounts,
    StagedTable,
    TableContent,
    kept_version,
)
from airflow_dynamic_tables.formats.commits import (
    FENCE,
    check_partition_keys,
    check_result,
    check_rows,
    fresh_until,
    landed,
    until_done,
)
from airflow_dynamic_tables.formats.iceberg import snapshots as tables
from airflow_dynamic_tables.formats.iceberg.files import ReplaceFiles, read_footers, staged_partition
from airflow_dynamic_tables.formats.iceberg.history import RestoreFiles, delete_orphans, due, expire
from airflow_dynamic_tables.formats.iceberg.pointer import preparing, swap


class IcebergTable(LakeTable):
    """A table of an Iceberg catalog."""

    def __init__(self, store: IcebergStore, path: ObjectPath, file_format: str = "parquet") -> None:  # noqa: ARG002 - no choice
        self._store = store
        self._path = path

    def stage(self, token: str) -> IcebergStagedTable:
        """See :meth:`LakeTable.stage`."""
        return IcebergStagedTable(self._store, self._path, token)

    def current(self) -> Version | None:
        """See :meth:`LakeTable.current`."""
        table = tables.load(self._store, self._path)
        return next(tables.versions(table), None) if table is not None else None

    def versions(self) -> list[Version]:
        """See :meth:`LakeTable.versions`."""
        table = tables.load(self._store, self._path)
        return list(tables.versions(table))[::-1] if table is not None else []

    def read(self, spark_name: str | None = None) -> TableContent:
        """See :meth:`LakeTable.read`."""
        table = self._filled()
        try:
            return tables.content(table, self._path)
        except UnsupportedError:
            if spark_name is None:
                raise
            return TableContent(tables.snapshot_id(table), table=spark_name, state=tables.state(table))

    def snapshot(self) -> str:
        """See :meth:`LakeTable.snapshot`."""
        return tables.snapshot_id(self._filled())

    def count(self, partitions: PartitionSet) -> RowCounts | None:
        """See :meth:`LakeTable.count`."""
        return tables.count(tables.load(self._store, self._path), partitions)

    def sample(self, rows: int, version: int | None = None) -> list[dict[str, Any]]:
        """See :meth:`LakeTable.sample`."""
        table = self._filled()
        snapshot = None if version is None else int(kept_version(tables.versions(table), version, self._path).snapshot)
        first: list[dict[str, Any]] = table.scan(snapshot_id=snapshot, limit=rows).to_arrow().to_pylist()
        return first

    def expire(self, retention: Retention, now: datetime, pinned: Collection[str]) -> int:
        """See :meth:`LakeTable.expire`."""
        return expire(self._store, self._path, lambda table: due(table, retention, now, pinned))

    def delete_orphans(self, before: datetime, held: Callable[[], Collection[str]]) -> Deleted:
        """See :meth:`LakeTable.delete_orphans`."""
        return delete_orphans(self._store, self._path, before, held)

    def _filled(self) -> Table:
        table = tables.load(self._store, self._path)
        if table is None or table.current_snapshot() is None:
            raise TableNotFoundError(f"Table {self._path} in catalog {self._store.catalog} does not exist or has no version yet.")
        return table


class IcebergStagedTable(StagedTable):
    """The stage of one refresh of an Iceberg table."""

    def __init__(self, store: IcebergStore, path: ObjectPath, token: str) -> None:
        self._store = store
        self._path = path
        self._token = token

    def begin(self) -> str:
        """See :meth:`StagedTable.begin`."""
        return f"{self._location}/data/{quote(self._token, safe='')}"

    def commit(self, request: CommitRequest, before_publish: Callable[[], None]) -> Version:
        """See :meth:`StagedTable.commit`."""
        check_result(request, self._token, self.begin())
        return self._committed(lambda table: self._transaction(table, request), before_publish)

    def restore(self, number: int, before_publish: Callable[[], None]) -> Version:
        """See :meth:`StagedTable.restore`."""
        return self._committed(lambda table: self._restoration(table, number), before_publish)

    def _committed(self, change: Callable[[Table | None], Transaction], before_publish: Callable[[], None]) -> Version:
        def attempt() -> Version | None:
            table = tables.load(self._store, self._path)
            if version := tables.find(table, self._token):
                return version
            with preparing(self._path):
                transaction = change(table)
            before_publish()
            return landed(self, self._path) if self._publish(transaction) else None

        return until_done(attempt, self._path, "committing")

    def outcome(self) -> Version | None:
        """See :meth:`StagedTable.outcome`."""
        return tables.find(tables.load(self._store, self._path), self._token)

    def fence(self) -> bool:
        """See :meth:`StagedTable.fence`: an empty snapshot moves the table on, so that an older base no longer fits."""
        return until_done(self._fenced, self._path, "fencing", pause=False)

    def _fenced(self) -> bool | None:
        """As :meth:`fence`; ``None`` when the table is to be read again."""
        table = tables.load(self._store, self._path)
        if table is None:
            return False
        if tables.find(table, self._token):
            return True
        transaction = tables.without_retries(table).transaction()
        fence = transaction.update_snapshot(snapshot_properties={FENCE: self._token}).fast_append()
        with preparing(self._path):
            fence.commit()
        return swap(transaction, self._path) or None

    def abort(self) -> None:
        """See :meth:`StagedTable.abort`."""
        delete_folder(self.begin())

    @cached_property
    def _location(self) -> str:
        table = tables.load(self._store, self._path)
        if table is not None:
            return table.location().rstrip("/")
        warehouse = self._store.tables.properties["warehouse"].rstrip("/")
        return f"{warehouse}/{quote(self._path.database, safe='')}/{quote(self._path.name, safe='')}"

    def _transaction(self, table: Table | None, request: CommitRequest) -> Transaction:
        """Everything the commit changes, staged on the table as it is now: schema, files out, files in, token."""
        transaction = self._creation(request) if table is None else self._evolution(table, request)
        added = self._data_files(transaction, request)
        producer = ReplaceFiles(transaction, self._io(), request.partitions, self._summary(table, request))
        for file in added:
            producer.append_data_file(file)
        producer.commit()
        return transaction

    def _restoration(self, table: Table | None, number: int) -> Transaction:
        if table is None:
            raise TableNotFoundError(f"Table {self._path} in catalog {self._store.catalog} does not exist.")
        old = kept_version(tables.versions(table), number, self._path)
        transaction = tables.without_retries(table).transaction()
        summary = tables.summary(self._token, tables.next_number(table), old.data_timestamp, old.sources, WHOLE_TABLE)
        RestoreFiles(transaction, self._io(), int(old.snapshot), summary).commit()
        return transaction

    def _creation(self, request: CommitRequest) -> Transaction:
        catalog, path = self._store.tables, self._path
        with suppress(AlreadyExistsError), self._store.errors():  # somebody else made it just now
            catalog.create_namespace_if_not_exists((path.database,))
        properties = {
            "format-version": "2",
            TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
            **({"comment": request.comment} if request.comment else {}),
        }
        transaction = catalog.create_table_transaction(
            (path.database, path.name), schema_of(request.result.columns), location=self._location, properties=properties
        )
        with transaction.update_spec() as spec:
            for key in request.partition_keys:
                spec.add_identity(key)
        return tables.find_columns_by_name(transaction)

    def _evolution(self, table: Table, request: CommitRequest) -> Transaction:
        check_partition_keys(self._path, tuple(field.name for field in table.spec().fields), request.partition_keys)
        known = columns_of(table.schema())
        wanted = evolve(known, request.result.columns)
        transaction = tables.without_retries(table).transaction()
        if wanted != known:
            with transaction.update_schema() as update:
                for old, new in zip(known, wanted, strict=False):
                    if old.comment != new.comment:
                        update.update_column((new.name,), doc=new.comment)
                for column in wanted[len(known) :]:
                    update.add_column((column.name,), to_iceberg(column.type), doc=column.comment)
        if request.comment and request.comment != table.properties.get("comment"):
            transaction.set_properties(comment=request.comment)
        return tables.find_columns_by_name(transaction)

    def _io(self) -> FileIO:
        return load_file_io(self._store.tables.properties, self._location)

    def _data_files(self, transaction: Transaction, request: CommitRequest) -> list[DataFile]:
        """Read every footer: what is really there decides, not what the job says."""
        metadata = transaction.table_metadata
        staged = []
        for data_file in read_footers(self._io(), metadata, request.result.files):
            if data_file.record_count == 0:
                continue  # nothing to publish, and no partition to read from it
            spec = staged_partition(data_file, metadata)
            if not request.partitions.covers(spec):
                raise StageRejectedError(
                    f"Staged file {data_file.file_path} is of partition {describe(spec)}, which was not planned."
                )
            staged.append(data_file)
        check_rows(sum(data_file.record_count for data_file in staged), request.result)
        return staged

    def _summary(self, table: Table | None, request: CommitRequest) -> dict[str, str]:
        previous = next(tables.versions(table), None) if table is not None else None
        fresh = fresh_until(request.data_timestamp, previous)
        return tables.summary(self._token, tables.next_number(table), fresh, request.sources, request.partitions)

    def _publish(self, transaction: Transaction) -> bool:
        """Swap the table's pointer; False when this attempt did not land and can no longer.

        :raises CommitUnknownError: when the answer was lost and the table cannot be asked, or not be fenced.
        """
        try:
            return swap(transaction, self._path)
        except CommitUnknownError:
            with suppress(CatalogUnavailableError, CommitRejectedError, CommitUnknownError):
                if self.outcome() or self.fence():
                    return self.outcome() is not None
            raise
