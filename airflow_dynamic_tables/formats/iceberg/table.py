"""Iceberg: Spark writes Parquet below the table's location; PyIceberg publishes one snapshot that replaces exactly the plan.

The snapshot's summary holds the token, so that the outcome of a commit can always be looked up in the table itself.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import Any
from urllib.parse import quote

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, TableProperties, Transaction
from sqlalchemy.exc import IntegrityError

from airflow_dynamic_tables.clients.files import Deleted, delete_folder
from airflow_dynamic_tables.clients.iceberg.types import columns_of, schema_of, to_iceberg
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.refresh.plan import RefreshResult
from airflow_dynamic_tables.core.tables.partitions import PartitionSet, describe
from airflow_dynamic_tables.core.tables.retention import Retention
from airflow_dynamic_tables.core.tables.schema import Column, evolve
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    CommitRejectedError,
    CommitUnknownError,
    StageRejectedError,
    TableNotFoundError,
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
from airflow_dynamic_tables.formats.iceberg import snapshots as tables
from airflow_dynamic_tables.formats.iceberg.files import ReplaceFiles, read_footers, staged_partition
from airflow_dynamic_tables.formats.iceberg.history import RestoreFiles, delete_orphans, due, expire
from airflow_dynamic_tables.formats.iceberg.pointer import preparing, swap

_ATTEMPTS = 10


class IcebergStaging(SupportsStaging):
    """Iceberg tables of one PyIceberg catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def stage(self, context: StagingContext) -> IcebergStagedTable:
        """See :meth:`SupportsStaging.stage`."""
        return IcebergStagedTable(self._catalog, context)

    def current(self, path: ObjectPath) -> Version | None:
        """See :meth:`SupportsStaging.current`."""
        table = tables.load(self._catalog, path)
        return next(tables.versions(table), None) if table is not None else None

    def versions(self, path: ObjectPath) -> list[Version]:
        """See :meth:`SupportsStaging.versions`."""
        table = tables.load(self._catalog, path)
        return list(tables.versions(table))[::-1] if table is not None else []

    def read(self, path: ObjectPath) -> TableContent:
        """See :meth:`SupportsStaging.read`."""
        return tables.content(self._filled(path), path)

    def snapshot(self, path: ObjectPath) -> str:
        """See :meth:`SupportsStaging.snapshot`."""
        return tables.snapshot_id(self._filled(path))

    def count(self, path: ObjectPath, partitions: PartitionSet) -> RowCounts | None:
        """See :meth:`SupportsStaging.count`."""
        return tables.count(tables.load(self._catalog, path), partitions)

    def sample(self, path: ObjectPath, rows: int, version: int | None = None) -> list[dict[str, Any]]:
        """See :meth:`SupportsStaging.sample`."""
        table = self._filled(path)
        snapshot = None if version is None else int(kept_version(tables.versions(table), version, path).snapshot)
        found: list[dict[str, Any]] = table.scan(snapshot_id=snapshot, limit=rows).to_arrow().to_pylist()
        return found

    def expire(self, path: ObjectPath, retention: Retention, now: datetime, pinned: Collection[str]) -> int:
        """See :meth:`SupportsStaging.expire`."""
        return expire(self._catalog, path, lambda table: due(table, retention, now, pinned))

    def delete_orphans(self, path: ObjectPath, before: datetime, held: Callable[[], Collection[str]]) -> Deleted:
        """See :meth:`SupportsStaging.delete_orphans`."""
        return delete_orphans(self._catalog, path, before, held)

    def _filled(self, path: ObjectPath) -> Table:
        table = tables.load(self._catalog, path)
        if table is None or table.current_snapshot() is None:
            raise TableNotFoundError(f"Table {path} in catalog {self._catalog.name} does not exist or has no version yet.")
        return table


class IcebergStagedTable(StagedTable):
    """The stage of one refresh of an Iceberg table."""

    def __init__(self, catalog: Catalog, context: StagingContext) -> None:
        self._catalog = catalog
        self._context = context
        self._path = ObjectPath(context.database, context.table)

    def begin(self) -> str:
        """See :meth:`StagedTable.begin`."""
        return f"{self._location}/data/{quote(self._context.token, safe='')}"

    def commit(self, request: CommitRequest, before_publish: Callable[[], None]) -> Version:
        """See :meth:`StagedTable.commit`."""
        check_result(self._context, self.begin(), request.result)
        return self._committed(lambda table: self._transaction(table, request), before_publish)

    def restore(self, number: int, before_publish: Callable[[], None]) -> Version:
        """See :meth:`StagedTable.restore`."""
        return self._committed(lambda table: self._restoration(table, number), before_publish)

    def _committed(self, change: Callable[[Table | None], Transaction], before_publish: Callable[[], None]) -> Version:
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(random.uniform(0.05, 0.1) * 2**attempt / 2)
            table = tables.load(self._catalog, self._path)
            if landed := tables.find(table, self._context.token):
                return landed
            with preparing(self._path):
                transaction = change(table)
            before_publish()
            if self._publish(transaction):
                return self._landed()
        raise CommitRejectedError(f"{self._path} was changed by others {_ATTEMPTS} times while committing; try again.")

    def outcome(self) -> Version | None:
        """See :meth:`StagedTable.outcome`."""
        return tables.find(tables.load(self._catalog, self._path), self._context.token)

    def fence(self) -> bool:
        """See :meth:`StagedTable.fence`: an empty snapshot moves the table on, so that an older base no longer fits."""
        for _ in range(_ATTEMPTS):
            table = tables.load(self._catalog, self._path)
            if table is None:
                return False
            if tables.find(table, self._context.token):
                return True
            transaction = tables.without_retries(table).transaction()
            fence = transaction.update_snapshot(snapshot_properties={tables.FENCE: self._context.token}).fast_append()
            with preparing(self._path):
                fence.commit()
            if swap(transaction, self._path):
                return True
        raise CommitRejectedError(f"{self._path} was changed by others {_ATTEMPTS} times while fencing; try again.")

    def abort(self) -> None:
        """See :meth:`StagedTable.abort`."""
        delete_folder(self.begin())

    @cached_property
    def _location(self) -> str:
        table = tables.load(self._catalog, self._path)
        if table is not None:
            return table.location().rstrip("/")
        warehouse = self._catalog.properties["warehouse"].rstrip("/")
        return f"{warehouse}/{quote(self._path.database, safe='')}/{quote(self._path.name, safe='')}"

    def _transaction(self, table: Table | None, request: CommitRequest) -> Transaction:
        """Everything the commit changes, staged on the table as it is now: schema, files out, files in, token."""
        columns = request.result.columns
        transaction = self._creation(columns) if table is None else self._evolution(table, columns)
        added = self._data_files(transaction, request.result)
        producer = ReplaceFiles(transaction, self._io(), self._context.partitions, self._summary(table, request))
        for file in added:
            producer.append_data_file(file)
        producer.commit()
        return transaction

    def _restoration(self, table: Table | None, number: int) -> Transaction:
        if table is None:
            raise TableNotFoundError(f"Table {self._path} in catalog {self._catalog.name} does not exist.")
        old = kept_version(tables.versions(table), number, self._path)
        transaction = tables.without_retries(table).transaction()
        summary = tables.summary(self._context.token, tables.next_number(table), old.data_timestamp, old.sources)
        RestoreFiles(transaction, self._io(), int(old.snapshot), summary).commit()
        return transaction

    def _creation(self, columns: tuple[Column, ...]) -> Transaction:
        context = self._context
        with suppress(IntegrityError):  # somebody else made it just now
            self._catalog.create_namespace_if_not_exists((context.database,))
        properties = {
            "format-version": "2",
            TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
            **context.properties,
            **({"comment": context.comment} if context.comment else {}),
        }
        transaction = self._catalog.create_table_transaction(
            (context.database, context.table), schema_of(columns), location=self._location, properties=properties
        )
        with transaction.update_spec() as spec:
            for key in context.partition_keys:
                spec.add_identity(key)
        return tables.find_columns_by_name(transaction)

    def _evolution(self, table: Table, columns: tuple[Column, ...]) -> Transaction:
        keys = tuple(field.name for field in table.spec().fields)
        if keys != self._context.partition_keys:
            raise StageRejectedError(
                f"{self._path} is partitioned by ({', '.join(keys)}), its definition now by "
                f"({', '.join(self._context.partition_keys)}); drop the table or give it another name."
            )
        known = columns_of(table.schema())
        wanted = evolve(known, columns)
        transaction = tables.without_retries(table).transaction()
        if wanted != known:
            with transaction.update_schema() as update:
                for old, new in zip(known, wanted, strict=False):
                    if old.comment != new.comment:
                        update.update_column((new.name,), doc=new.comment)
                for column in wanted[len(known) :]:
                    update.add_column((column.name,), to_iceberg(column.type), doc=column.comment)
        if self._context.comment and self._context.comment != table.properties.get("comment"):
            transaction.set_properties(comment=self._context.comment)
        return tables.find_columns_by_name(transaction)

    def _io(self) -> FileIO:
        return load_file_io(self._catalog.properties, self._location)

    def _data_files(self, transaction: Transaction, result: RefreshResult) -> list[DataFile]:
        """Read every footer: what is really there decides, not what the job says."""
        metadata = transaction.table_metadata
        found = []
        for data_file in read_footers(self._io(), metadata, result.files):
            if data_file.record_count == 0:
                continue  # nothing to publish, and no partition to read from it
            spec = staged_partition(data_file, metadata)
            if not self._context.partitions.covers(spec):
                raise StageRejectedError(
                    f"Staged file {data_file.file_path} is of partition {describe(spec)}, which was not planned."
                )
            found.append(data_file)
        rows = sum(data_file.record_count for data_file in found)
        if rows != result.rows:
            raise StageRejectedError(f"The staged files hold {rows} rows, the job wrote {result.rows}.")
        return found

    def _summary(self, table: Table | None, request: CommitRequest) -> dict[str, str]:
        previous = next(tables.versions(table), None) if table is not None else None
        known = previous.data_timestamp if previous is not None else None
        times = [time for time in (request.data_timestamp, known) if time is not None]
        return tables.summary(self._context.token, tables.next_number(table), max(times, default=None), request.sources)

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

    def _landed(self) -> Version:
        version = self.outcome()
        if version is None:
            raise CommitUnknownError(f"The commit of {self._path} was accepted but is not in the table.")
        return version
