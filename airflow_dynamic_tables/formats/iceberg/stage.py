"""Stages of refreshes of Iceberg tables, each published as one snapshot that replaces exactly the planned partitions.

The snapshot summary contains the token, so the outcome of a commit can always be looked up in the table.

A new table is created empty before anything is staged, in a folder that no other table ever uses. A commit only changes an
existing table. Therefore the first commit can be fenced like any other, and a renamed table never shares its folder with a new
table of the old name.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from urllib.parse import quote
from uuid import UUID

from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction

from airflow_dynamic_tables.clients.files import as_os_errors, delete_folder
from airflow_dynamic_tables.clients.iceberg.catalog import LATEST_VERSION, NEW_TABLE, PREVIOUS_METADATA, new_location
from airflow_dynamic_tables.clients.iceberg.replacing import replacement
from airflow_dynamic_tables.clients.iceberg.schemas import are_known, check_names, key_fields, keys_of, schema_of, to_iceberg
from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet, describe
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import (
    AlreadyExistsError,
    CatalogUnavailableError,
    CommitRejectedError,
    CommitUnknownError,
    SchemaEvolutionError,
    StageRejectedError,
)
from airflow_dynamic_tables.formats.base import CommitRequest, StagedTable, kept_version
from airflow_dynamic_tables.formats.commits import (
    check_addition,
    check_base,
    check_position,
    check_result,
    check_rows,
    fresh_until,
    not_restored,
    snapshot_properties,
    unknown,
    until_done,
)
from airflow_dynamic_tables.formats.iceberg import snapshots as tables
from airflow_dynamic_tables.formats.iceberg.files import AllFiles, FenceOff, ReplaceFiles, TableTransaction
from airflow_dynamic_tables.formats.iceberg.history import RestoreFiles, position, remember_position
from airflow_dynamic_tables.formats.small_files import Compacted, Limits

_REFUSED = (AuthorizationExpiredError, BadRequestError, ForbiddenError, UnauthorizedError)
"""Server errors that mean that the commit was not made."""

_NOT_WRITTEN = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}


def is_writable(table: Table) -> bool:
    """Return whether PyIceberg can write to the table, not only read it."""
    return table.format_version <= LATEST_VERSION


def check_writable(table: Table, path: ObjectPath) -> None:
    """Check that PyIceberg can write to the table."""
    if not is_writable(table):
        raise CommitRejectedError(
            f"{path} has Iceberg's format version {table.format_version}, which another engine gave it: it can be read as a "
            f"source, but commits here write versions up to {LATEST_VERSION}, and no table goes back. Drop it and refresh it "
            "again."
        )


def swap(transaction: Transaction, path: ObjectPath) -> Table | None:
    """Publish a transaction; return ``None`` after a concurrent commit.


    :raises CommitRejectedError: if the new metadata could not be written, which precedes the swap.
    :raises CommitUnknownError: if the response was lost.
    """
    try:
        return transaction.commit_transaction()
    except (CommitFailedException, TableAlreadyExistsError):
        return None
    except _REFUSED as error:
        raise CommitRejectedError(f"The catalog refuses the commit of {path}, its last version is untouched: {error}.") from error
    except Exception as error:
        if isinstance(error, OSError) and (isinstance(error, PermissionError) or error.errno in _NOT_WRITTEN):
            raise _untouched(path, error) from error
        raise unknown(path, error) from error


@contextmanager
def preparing(path: ObjectPath) -> Iterator[None]:
    """Translate errors of the reads and writes that precede the swap.

    :raises CommitRejectedError: if one fails.
    """
    try:
        with as_os_errors():
            yield
    except OSError as error:
        raise _untouched(path, error) from error


def _untouched(path: ObjectPath, error: OSError) -> CommitRejectedError:
    todo = "check that the warehouse is a folder with room that this process may write to"
    return CommitRejectedError(f"The metadata of {path} could not be written, its last version is untouched: {error}; {todo}.")


def load_or_make(store: IcebergStore, path: ObjectPath) -> Table:
    """Load the table, or create an empty one without columns and versions.

    :raises CatalogUnavailableError: if the catalog's database or the table's metadata cannot be reached.
    :raises CommitRejectedError: if its metadata cannot be written.
    """

    def attempt() -> Table | None:
        table = tables.load(store, path)
        if table is None:
            _make(store, path)
            table = tables.load(store, path)
        return table

    return until_done(attempt, path, "being made")


def _make(store: IcebergStore, path: ObjectPath) -> None:
    """Create the table, unless a concurrent process does."""
    with suppress(AlreadyExistsError), store.errors():
        store.tables.create_namespace_if_not_exists((path.database,))
    location: str | None = None
    try:
        with preparing(path), store.errors():
            location = new_location(store.tables, path)
            store.tables.create_table((path.database, path.name), Schema(), location=location, properties=NEW_TABLE)
    except (TableAlreadyExistsError, AlreadyExistsError):
        _forget(location)
    except CommitRejectedError:
        with suppress(OSError):  # the disk may be full
            _forget(location)
        raise


def _forget(location: str | None) -> None:
    """Delete the folder of a table that was not created; a folder chosen by the server is left to the server."""
    if location is not None:
        delete_folder(location.rpartition("/")[0], location)


class IcebergStagedTable(StagedTable):
    """The stage of one refresh of an Iceberg table."""

    def __init__(self, store: IcebergStore, path: ObjectPath, token: str) -> None:
        self._store = store
        self._path = path
        self._token = token
        self._uuid: UUID | None = None
        """The table of the stage; a server may create a new table in the same folder."""

    def begin(self) -> str:
        """See :meth:`StagedTable.begin`; creates the table if it does not exist."""
        table = load_or_make(self._store, self._path)
        check_writable(table, self._path)
        self._uuid = table.metadata.table_uuid
        return self._folder(table)

    def commit(self, request: CommitRequest, before_publish: Callable[[], None]) -> Version:
        return self._committed(lambda table: self._transaction(table, request), before_publish)

    def restore(self, number: int, before_publish: Callable[[], None], *, with_columns: bool = False) -> Version:
        return self._committed(lambda table: self._restoration(table, number, with_columns=with_columns), before_publish)

    def compact(self, partitions: PartitionSet, limits: Limits, before_publish: Callable[[], None]) -> Compacted | None:
        from airflow_dynamic_tables.formats.iceberg import compaction as compacting

        table = tables.load(self._store, self._path)
        if table is None:
            raise CommitRejectedError(f"{self._path} was dropped meanwhile.")
        if why := compacting.why_not(table):
            raise StageRejectedError(f"{self._path} {why}, so it is not compacted.")
        with preparing(self._path):
            done = compacting.merged(table, partitions, limits, self._folder(table))
        if not done:
            return None
        self._committed(lambda table: compacting.transaction(table, done, self._token), before_publish)
        sources = [file for one in done for file in one.sources]
        return Compacted(len(sources), len(done), sum(file.file_size_in_bytes for file in sources))

    def _committed(self, change: Callable[[Table], Transaction], before_publish: Callable[[], None]) -> Version:
        def attempt() -> Version | None:
            table = tables.load(self._store, self._path)
            if table is None:
                raise CommitRejectedError(f"{self._path} was dropped meanwhile.")
            if version := tables.find(table, self._token):
                return version
            if table.metadata.table_uuid != (self._uuid or table.metadata.table_uuid):
                raise _made_again(self._path)
            self._uuid = table.metadata.table_uuid
            check_writable(table, self._path)
            with preparing(self._path):
                transaction = change(table)
            before_publish()
            return self._publish(transaction)

        return until_done(attempt, self._path, "committing")

    def outcome(self) -> Version | None:
        table = tables.load(self._store, self._path)
        try:
            with as_os_errors():
                return tables.find(table, self._token) or tables.find_files(table, self._token)
        except OSError as error:
            raise CatalogUnavailableError(f"Cannot read the metadata of {self._path}: {error}") from error

    def fence(self) -> None:
        """See :meth:`StagedTable.fence`: an empty snapshot advances the table, so that commits based on an older one fail."""
        until_done(self._fenced, self._path, "fencing", pause=False)

    def _fenced(self) -> bool | None:
        """Return True once fenced; ``None`` if the table has to be read again."""
        table = tables.load(self._store, self._path)
        if table is None:
            return True  # a commit creates no table
        if tables.find(table, self._token) or not is_writable(
            table
        ):  # no commit succeeds on a table that another engine upgraded
            return True
        transaction = TableTransaction(table)
        with preparing(self._path):
            FenceOff(transaction, table.io, self._token).commit()
        return None if swap(transaction, self._path) is None else True

    def abort(self, location: str | None = None) -> None:  # noqa: ARG002 - known without it
        """See :meth:`StagedTable.abort`; the files of a dropped table are kept."""
        table = tables.load(self._store, self._path)
        if table is not None:
            delete_folder(table.location(), self._folder(table))

    def _folder(self, table: Table) -> str:
        return f"{table.location().rstrip('/')}/data/{quote(self._token, safe='')}"

    def _transaction(self, table: Table, request: CommitRequest) -> Transaction:
        """Create the transaction of a commit on the current table: schema, removed files, added files and token."""
        self._check_same_table(table, request)
        check_result(request, self._token, self._folder(table), can_add=True)
        check_base(self._path, request, tables.current(table), lambda: tables.versions(table))
        check_position(self._path, request, lambda: position(table))
        check_addition(self._path, request, tables.snapshot_id(table))
        is_kept = tables.is_new(table) or tables.layout(table).is_kept(request.result.columns, request.partition_keys)
        transaction = self._evolution(table, request)
        added = self._data_files(transaction, table.io, request)
        summary = self._summary(table, request)
        producer: ReplaceFiles | AllFiles = (
            ReplaceFiles(transaction, table.io, request.replaced, summary)
            if is_kept
            else AllFiles(transaction, table.io, summary)
        )
        tables.remember(transaction, summary, producer.snapshot_id, producer.timestamp_ms)
        remember_position(transaction, request.position, producer.snapshot_id)
        for file in added:
            producer.append_data_file(file)
        producer.commit()
        if not is_kept:
            transaction.forget_keys()
        return transaction

    def _check_same_table(self, table: Table, request: CommitRequest) -> None:
        """Report that the stage is in the folder of another table, even if the job wrote no files."""
        folder = self._folder(table)
        stage = folder[len(table.location().rstrip("/")) :]
        strays = (file.path for file in request.result.files if not file.path.startswith(f"{folder}/"))
        if request.stage not in ("", folder) or any(f"{stage}/" in stray for stray in strays):
            raise _made_again(self._path)

    def _restoration(self, table: Table, number: int, *, with_columns: bool) -> Transaction:
        old = kept_version(tables.versions(table), number, self._path)
        transaction = TableTransaction(table)
        if with_columns:
            self._restore_layout(transaction, table, int(old.snapshot))
        made = tables.next_number(table)
        summary = snapshot_properties(self._token, made, old.data_timestamp, old.sources, WHOLE_TABLE) | tables.line(table, made)
        try:
            producer = RestoreFiles(transaction, table.io, int(old.snapshot), summary)
        except SchemaEvolutionError as error:
            raise not_restored(number, self._path, error) from error
        tables.remember(transaction, summary, producer.snapshot_id, producer.timestamp_ms)
        remember_position(transaction, None, producer.snapshot_id)
        producer.commit()
        if with_columns:
            transaction.forget_keys()
        return transaction

    def _restore_layout(self, transaction: TableTransaction, table: Table, snapshot: int) -> None:
        """Restore the columns and partition keys as of a snapshot, if they differ."""
        then = tables.layout(tables.as_of(table, snapshot))
        restored = next(one for one in table.snapshots() if one.snapshot_id == snapshot)
        used = [table.specs()[manifest.partition_spec_id] for manifest in restored.manifests(table.io)]
        spec = used[0] if used else table.spec()
        if not are_known(spec):
            return  # spec of another engine
        keys = keys_of(spec, tables.as_of(table, snapshot).schema())
        if tables.layout(table) != replace(then, partition_keys=keys):
            tables.remember_dropped(transaction, table, (column.name for column in then.columns))
            transaction.replace(replacement(table.metadata, then.columns, keys))

    def _evolution(self, table: Table, request: CommitRequest) -> TableTransaction:
        check_names(request.result.columns, request.partition_keys)
        transaction = TableTransaction(table)
        if tables.is_new(table):
            self._define(transaction, request)
        else:
            self._evolve(transaction, table, request)
        if request.comment and request.comment != table.properties.get("comment"):
            transaction.set_properties(comment=request.comment)
        if PREVIOUS_METADATA.keys() - table.properties.keys():
            transaction.set_properties(PREVIOUS_METADATA)
        tables.find_columns_by_name(transaction)
        return transaction

    def _define(self, transaction: TableTransaction, request: CommitRequest) -> None:
        """Add columns and partition keys to an empty table."""
        with transaction.update_schema() as schema:
            for field in schema_of(request.result.columns).fields:
                schema.add_column((field.name,), field.field_type, doc=field.doc)
        with transaction.update_spec() as spec:
            for key in key_fields(transaction.table_metadata.schema(), request.partition_keys):
                spec.add_field(key.source.name, key.transform, key.name)

    def _evolve(self, transaction: TableTransaction, table: Table, request: CommitRequest) -> None:
        """Append new columns, or replace all columns where a rebuild is permitted."""
        layout = tables.layout(table)
        keys = request.partition_keys
        layout.check_keys(self._path, keys, request.rebuild)
        known = layout.columns
        wanted = layout.evolved(request.result.columns, request.rebuild)
        is_kept = layout.is_kept(request.result.columns, keys)
        if not is_kept:
            tables.remember_dropped(transaction, table, (column.name for column in wanted))
        if not is_kept or tables.are_former(table, wanted[len(known) :]):
            transaction.replace(replacement(table.metadata, wanted, keys))
            return
        if wanted == known:
            return
        with transaction.update_schema() as update:
            for old, new in zip(known, wanted, strict=False):
                if old.comment != new.comment:
                    update.update_column((new.name,), doc=new.comment or "")  # None would keep the comment
            for column in wanted[len(known) :]:
                update.add_column((column.name,), to_iceberg(column.type), doc=column.comment)

    def _data_files(self, transaction: Transaction, io: FileIO, request: CommitRequest) -> list[DataFile]:
        """Read the footers of all files, because the job's report may differ from the actual files."""
        from airflow_dynamic_tables.formats.iceberg.staged import read_footers, staged_partition

        metadata = transaction.table_metadata
        staged = []
        for data_file in read_footers(io, metadata, request.result.files):
            if data_file.record_count == 0:
                continue  # nothing to publish, and no partition values
            spec = staged_partition(data_file, metadata)
            if not request.partitions.covers(spec):
                raise StageRejectedError(
                    f"Staged file {data_file.file_path} is of partition {describe(spec)}, which was not planned."
                )
            staged.append(data_file)
        check_rows(sum(data_file.record_count for data_file in staged), request.result)
        return staged

    def _summary(self, table: Table, request: CommitRequest) -> dict[str, str]:
        fresh = fresh_until(request.data_timestamp, tables.current(table))
        number = tables.next_number(table)
        return snapshot_properties(self._token, number, fresh, request.sources, request.partitions) | tables.line(table, number)

    def _publish(self, transaction: Transaction) -> Version | None:
        """Swap the table's pointer; ``None`` if this attempt failed and can no longer succeed."""
        try:
            return tables.find(swap(transaction, self._path), self._token)
        except CommitUnknownError:
            with suppress(CatalogUnavailableError, CommitRejectedError, CommitUnknownError):
                if self.outcome() is None:
                    self.fence()
                return self.outcome()
            raise


def _made_again(path: ObjectPath) -> CommitRejectedError:
    return CommitRejectedError(
        f"{path} was dropped and recreated, or moved to another folder, while the job ran; refresh it again."
    )
