"""Stages of refreshes of PostgreSQL tables: a stage table, and a folder for the plan and the result of the job.

A commit is one transaction that also writes its row in the table of commits, so its outcome can always be looked up. Stages of
interrupted refreshes are deleted as orphans.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote as quote_path
from urllib.parse import unquote

from airflow_dynamic_tables.clients.files import Deleted, FileEntry, delete_entries, delete_folder, list_entries, plain_path
from airflow_dynamic_tables.clients.postgres.ddl import STAGE, TableName, is_own
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, PostgresError, literal, quote
from airflow_dynamic_tables.clients.postgres.tables import (
    forget_commits,
    is_made_here,
    keep_entry,
    kept_kind,
    lock_commits,
    make_own_tables,
    named_holders,
)
from airflow_dynamic_tables.clients.stores import PostgresStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.schema import TableLayout
from airflow_dynamic_tables.core.sinks import Sink
from airflow_dynamic_tables.core.versions import Version, recorded
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    CommitRejectedError,
    CommitUnknownError,
    ConfigurationError,
    ConflictError,
    StageRejectedError,
    TableAlreadyExistsError,
)
from airflow_dynamic_tables.formats.base import CommitRequest, StagedTable
from airflow_dynamic_tables.formats.commits import check_base, check_result, fresh_until, unknown, until_done
from airflow_dynamic_tables.formats.orphans import check_own_folder
from airflow_dynamic_tables.formats.postgres import records
from airflow_dynamic_tables.formats.postgres.checking import DefinedTable, check_free, checked_stage, find, layout_columns
from airflow_dynamic_tables.formats.postgres.records import Horizon, Record, Seen
from airflow_dynamic_tables.formats.postgres.replacing import Replacing, update_comments

STAGES = "_stages"
"""Subfolder of a table's folder that contains the folders of its stages."""

DRIVER = "org.postgresql.Driver"


class JdbcStagedTable(StagedTable):
    """The stage of one refresh."""

    def __init__(self, store: PostgresStore, database: str, name: TableName, folder: str, token: str) -> None:
        self._store = store
        self._server = store.server
        self._database = database
        self._name = name
        self._folder = folder
        self._token = token

    @property
    def table(self) -> TableName:
        """The stage table that the job creates."""
        return self._name.stage(self._token)

    def begin(self) -> str:
        return f"{self._folder}/{STAGES}/{quote_path(self._token, safe='')}"

    def sink(self) -> Sink:
        """See :meth:`StagedTable.sink`.

        :raises StageRejectedError: if the commit would be rejected because the table was replaced.
        """
        with self._server.connected(self._database) as opened:
            self._check_table(opened, records.look(opened, self._name))
        return Sink(
            url=self._server.jdbc_url(self._database),
            driver=DRIVER,
            table=self.table.quoted,
            user=self._server.user,
            password_variable=next(iter(self._store.passwords), None),
        )

    def commit(self, request: CommitRequest, before_publish: Callable[[], None]) -> Version:
        if version := self.outcome():
            return version
        check_result(request, self._token, self.begin())
        make_own_tables(self._server, self._database, self._name)
        self._server.release(self._database)  # the job has finished reading its sources
        version = until_done(lambda: self._attempt(request, before_publish), self._name, "replacing its rows")
        with suppress(OSError):  # maintenance deletes what remains
            delete_folder(self._folder, self.begin())
        return version

    def _attempt(self, request: CommitRequest, before_publish: Callable[[], None]) -> Version | None:
        """Publish the stage; return ``None`` if there was a concurrent commit."""
        with self._server.connected(self._database) as opened:
            seen = records.look(opened, self._name, self._token)
        before_publish()
        doing = f"The commit of {self._token}"
        try:
            with (
                named_holders(self._server, self._database, self._name, doing, CommitRejectedError),
                self._server.transaction(self._database, self._store.lock_timeout) as opened,
            ):
                horizon = Horizon.now(opened)
                lock_commits(opened, self._name)
                now = records.look(opened, self._name, self._token)
                if now.last != seen.last:
                    return None
                if now.is_fenced:
                    raise CommitRejectedError(f"The stage of {self._token} was given up meanwhile.")
                return self._publish(opened, request, seen, horizon)
        except PostgresError as error:
            raise CommitRejectedError(f"The commit of {self._token} was refused, and changed nothing: {error}") from error
        except CommitUnknownError as error:
            with suppress(CatalogUnavailableError, CommitUnknownError):
                return self._looked_up()
            raise unknown(self._name, error) from error

    def _looked_up(self) -> Version | None:
        """Return the version of a commit whose response was lost; ``None`` if it failed and can no longer succeed."""
        with self._server.transaction(self._database, self._store.lock_timeout) as opened:
            lock_commits(opened, self._name)  # the commit held this lock until its end
            record = records.record_of(opened, self._name, self._token)
        return record.version if record is not None else None

    def _publish(self, opened: OpenDatabase, request: CommitRequest, seen: Seen, horizon: Horizon) -> Version:
        target = self._check_table(opened, seen)
        self._check_generation(opened, request, target)
        columns = request.result.columns
        is_rebuild = False
        if target is not None:
            layout = layout_of(target, seen.record)
            layout.check_keys(self._name, request.partition_keys, request.rebuild)
            is_rebuild = not layout.is_kept(columns, layout.partition_keys)
            columns = layout.evolved(columns, request.rebuild)
        with named_holders(self._server, self._database, self.table, f"The commit of {self._token}", CommitRejectedError):
            stage = checked_stage(opened, self.table, request)
        replacing = Replacing(opened, stage, request.result.rows, horizon, self._store.lock_timeout)
        if target is None:
            forget_commits(opened, self._name)  # of a table dropped by others: no commit may build on its versions
            replacing.create(self._name)
        else:
            replacing.replace(target, request.partitions, columns, is_rebuild=is_rebuild)
        made = find(opened, self._name)
        if made is None:
            raise StageRejectedError(f"{self._name} was dropped by a trigger of the database.")
        update_comments(opened, made, request.comment, columns)
        continued = seen.record.version if seen.record is not None and target is not None else None
        version = self._version(request, seen.number + 1, fresh_until(request.data_timestamp, continued))
        record = Record(version, columns, request.partition_keys, made.oid, made.has_rows(opened))
        records.add(opened, self._name, record)
        return version

    def _check_table(self, opened: OpenDatabase, seen: Seen) -> DefinedTable | None:
        """Return the table left by the latest commit; ``None`` if the name is free."""
        table = find(opened, self._name)
        if table is not None and seen.record is None:
            raise StageRejectedError(f"{self._name} is there already and of no refresh; choose another name for the table.")
        if table is not None and seen.record is not None and not is_made_here(opened, self._name):
            raise StageRejectedError(
                f"{self._name} is not the table that version {seen.number} left: another user dropped or renamed it, and "
                "made another. Rename or drop this one in PostgreSQL, and the next refresh creates the table again; or have "
                f"refreshes replace its rows from now on: dynamic-tables adopt {ObjectPath(self._database, self._name.listed)}."
            )
        return table

    def _check_generation(self, opened: OpenDatabase, request: CommitRequest, target: DefinedTable | None) -> None:
        """Check that the table is the one the refresh was planned on, and was not restored to an earlier version."""
        kept = [record.version for record in records.records(opened, self._name)]
        if (base := request.base) is not None and (target is None or all(version.token != base.token for version in kept)):
            raise CommitRejectedError(
                f"{self._name} was dropped after this refresh was planned, so nothing was committed; refresh it again."
            )
        check_base(self._name, request, kept[-1] if kept else None, lambda: kept)

    def _version(self, request: CommitRequest, number: int, data_timestamp: datetime | None) -> Version:
        return Version(
            number=number,
            token=self._token,
            snapshot=f"{number}:{self._token}",  # numbers repeat after a table was dropped
            data_timestamp=data_timestamp,
            committed_at=datetime.now(UTC),
            sources=dict(request.sources),
            partitions=recorded(request.partitions),
        )

    def outcome(self) -> Version | None:
        with self._server.connected(self._database) as opened:
            record = records.record_of(opened, self._name, self._token)
        return record.version if record is not None else None

    def fence(self) -> None:
        self._change_fence(records.fence, f"Giving up {self._token}")

    def reopen(self) -> None:
        self._change_fence(records.lift_fence, f"Returning {self._token} to quarantine")

    def _change_fence(self, change: Callable[[OpenDatabase, TableName, str], None], doing: str) -> None:
        try:
            make_own_tables(self._server, self._database, self._name)
        except ConfigurationError:
            return  # without a schema no commit can succeed
        try:
            with (
                named_holders(self._server, self._database, self._name, doing, CommitRejectedError),
                self._server.transaction(self._database, self._store.lock_timeout) as opened,
            ):
                lock_commits(opened, self._name)
                change(opened, self._name, self._token)
        except PostgresError as error:
            raise CommitRejectedError(f"{doing} is not possible now: {error}") from error

    def abort(self, location: str | None = None) -> None:  # noqa: ARG002 - found by name
        drop_stage(self._store, self._database, self._name, self.table)
        delete_folder(self._folder, self.begin())


@dataclass(frozen=True, slots=True)
class Once:
    """A one-off commit: ``entry`` is the catalog's entry of the table, with its ``kind``.

    If ``is_new``, the commit creates the table and writes the entry; otherwise both have to exist.
    """

    entry: Mapping[str, Any]
    is_new: bool


class OneOffStagedTable(JdbcStagedTable):
    """The stage of a one-off table: created from a query once, or with rows replaced by those of a query."""

    def __init__(self, store: PostgresStore, database: str, name: TableName, folder: str, token: str, once: Once) -> None:
        super().__init__(store, database, name, folder, token)
        self._once = once

    def _attempt(self, request: CommitRequest, before_publish: Callable[[], None]) -> Version | None:
        self._check()  # before the commit is recorded in the ledger as possibly published
        try:
            return super()._attempt(request, before_publish)
        except CommitRejectedError:
            self._check()  # the object that has the name explains more than the failed statement
            raise

    def _check(self) -> None:
        if self._once.is_new:
            with self._server.connected(self._database) as opened:
                check_free(opened, self._name)

    def _publish(self, opened: OpenDatabase, request: CommitRequest, seen: Seen, horizon: Horizon) -> Version:
        if not self._once.is_new:
            if kept_kind(opened, self._name) != self._once.entry["kind"] or not is_made_here(opened, self._name):
                raise CommitRejectedError(f"{self._name} was dropped or recreated before it was replaced; try again.")
            return super()._publish(opened, request, seen, horizon)
        check_free(opened, self._name)
        if not keep_entry(opened, self._name, self._once.entry):
            raise TableAlreadyExistsError(f"{self._name} was declared as a dynamic table meanwhile; it stays as it is.")
        forget_commits(opened, self._name)  # of a dropped table with this name
        return super()._publish(opened, request, Seen(seen.last, None), horizon)


def drop_stage(store: PostgresStore, database: str, table: TableName, stage: TableName) -> int | None:
    """Drop a stage table if it exists.

    :return: its size in bytes; ``None`` if it does not exist.
    :raises ConflictError: if a job still writes to it.
    """
    with (
        named_holders(store.server, database, stage, f"Dropping a stage of {table}"),
        store.server.transaction(database, store.lock_timeout) as opened,
    ):
        if find(opened, stage) is None:
            return None
        (size,) = opened.rows("SELECT pg_total_relation_size(to_regclass(%(name)s)) AS bytes", {"name": stage.quoted})
        opened.run(f"DROP TABLE {stage.quoted}")
        return int(size.bytes or 0)


def layout_of(table: DefinedTable, record: Record | None) -> TableLayout:
    """Return the layout that the next refresh has to match."""
    if record is None:
        return TableLayout(layout_columns(table, ()))
    return TableLayout(layout_columns(table, record.columns), record.partition_keys)


log = logging.getLogger(__name__)

_MARK = "airflow-dynamic-tables: abandoned since "
"""Prefix of the comment on a stage table that has no folder."""

_LEFT = """
SELECT c.relname AS name, obj_description(c.oid, 'pg_class') AS comment,
  extract(epoch FROM now())::double precision AS now
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relkind = 'r' AND starts_with(c.relname, %(prefix)s)
"""


def delete_left(
    store: PostgresStore, database: str, table: TableName, folder: str, age: tuple[datetime, Callable[[], Collection[str]]]
) -> Deleted:
    """Drop the stage tables of finished refreshes, and delete their folders.

    :param age: the age limit and the stages in use, see :meth:`LakeTable.delete_orphans`.
    """
    before, held = age
    stages = f"{folder}/{STAGES}"
    check_own_folder(stages, ())
    root = plain_path(stages)
    entries = list_entries(stages)
    with store.server.connected(database) as opened:
        left = opened.rows(_LEFT, {"schema": table.schema, "prefix": f"{table.table}{STAGE}"})
    holding = {plain_path(stage).removeprefix(f"{root}/").partition("/")[0] for stage in held()}
    folders: dict[str, list[FileEntry]] = {}
    for entry in entries:
        folders.setdefault(entry.path.removeprefix(f"{root}/").partition("/")[0], []).append(entry)
    due = [name for name, inside in folders.items() if name not in holding and _is_older(inside, before)]
    deleted = Deleted()
    for name in due:
        try:
            deleted += _dropped(store, database, table, table.stage(unquote(name)))
        except ConflictError as error:
            log.warning("%s", error)
            continue  # keep the folder, too, so that the next run finds the stage table
        deleted += delete_entries(stages, folders[name])
    known = {table.stage(unquote(name)).table for name in (*folders, *holding)}
    for stage in _without_folder(store, database, table, (row for row in left if row.name not in known), before):
        deleted += _dropped(store, database, table, stage)
    return deleted


def _is_older(entries: Iterable[FileEntry], before: datetime) -> bool:
    """Return whether all files of a folder are old; folders are ignored because object stores keep no time for them."""
    return all(entry.changed_at is not None and entry.changed_at < before for entry in entries if not entry.is_folder)


def _dropped(store: PostgresStore, database: str, table: TableName, stage: TableName) -> Deleted:
    size = drop_stage(store, database, table, stage)
    return Deleted(0 if size is None else 1, size or 0)


def _without_folder(
    store: PostgresStore, database: str, table: TableName, left: Iterable[Any], before: datetime
) -> list[TableName]:
    """Return expired stage tables without a folder: their jobs began to write after the refresh was abandoned.

    PostgreSQL does not record when a table was created, so the first run that finds a table writes the time into its comment.
    """
    if table.has_namesakes:  # a refresh of a table with a similar name may be writing to them
        return []
    due = []
    for row in left:
        name, comment, now = row.name, row.comment or "", datetime.fromtimestamp(row.now, UTC)
        stage = TableName(table.schema, name)
        if not is_own(name):
            continue
        if not comment.startswith(_MARK):
            with store.server.transaction(database, store.lock_timeout) as opened:
                opened.run(f"COMMENT ON TABLE {quote(stage.schema, stage.table)} IS {literal(_MARK + now.isoformat())}")
        elif datetime.fromisoformat(comment.removeprefix(_MARK)) < before:
            due.append(stage)
    return due
