"""The stage of one refresh of a Hive table: Spark writes a folder of its own, the metastore is pointed at it in one step.

Partitioned tables are published by one ``alter_partitions`` (see ``commits``), others by a compare-and-swap of the table's
location. The token stands in the parameters of what was changed, so that the outcome can always be looked up in the table.
"""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from urllib.parse import quote

from hive_metastore.ttypes import AlreadyExistsException, Database, NoSuchObjectException, Table
from thrift.Thrift import TException

from airflow_dynamic_tables.clients.files import delete_folder, exists, write_text
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.metastore.tables import (
    REVISION,
    descriptor,
    file_uri,
    format_of,
    partition_keys_of,
    set_columns,
)
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.partitions import NULL_PARTITION
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    ConflictError,
    StageRejectedError,
    UnsupportedError,
)
from airflow_dynamic_tables.formats.base import CommitRequest, StagedTable
from airflow_dynamic_tables.formats.commits import (
    NUMBER,
    check_partition_keys,
    check_result,
    landed,
    unknown,
    until_done,
)
from airflow_dynamic_tables.formats.data_files import Folder, staged_partitions
from airflow_dynamic_tables.formats.hive import parameters as tables
from airflow_dynamic_tables.formats.hive.commits import Changes, PartitionCommits, Values
from airflow_dynamic_tables.formats.hive.guards import guard
from airflow_dynamic_tables.formats.hive.orphans import write_replaced
from airflow_dynamic_tables.formats.hive.parameters import Pending

_PATIENCE, _PATIENCE_PER_PARTITION = 60.0, 0.2
"""Seconds that another commit of the same table may take before it is brought to its end."""


@dataclass(frozen=True, slots=True)
class _Commit:
    """One commit: what was asked for, and the folder of every partition that holds rows."""

    request: CommitRequest
    staged: Mapping[Values, Folder]
    before_publish: Callable[[], None]


class HiveStagedTable(StagedTable):
    """The stage of one refresh of a Hive table."""

    def __init__(self, metastore: Metastore, path: ObjectPath, file_format: str, token: str) -> None:
        self._metastore = metastore
        self._path = path
        self._format = file_format
        self._token = token
        self._commits = PartitionCommits(metastore, path)

    def begin(self) -> str:
        """See :meth:`StagedTable.begin`."""
        return self._stage(self._token)

    def commit(self, request: CommitRequest, before_publish: Callable[[], None]) -> Version:
        """See :meth:`StagedTable.commit`."""
        stage = self.begin()
        check_result(request, self._token, stage)
        commit = _Commit(request, staged_partitions(request, f"{stage}/data", self._format), before_publish)
        return until_done(lambda: self._committed(commit), self._path, "committing")

    def _committed(self, commit: _Commit) -> Version | None:
        """The version that was committed; ``None`` when the table is to be read again."""
        table = self._settled()
        if version := tables.find(table, self._token):
            return version
        try:
            return landed(self, self._path) if self._attempt(table, commit) else None
        except CatalogUnavailableError as error:
            if version := self._looked_up():
                return version
            raise unknown(self._path, error) from error

    def outcome(self) -> Version | None:
        """See :meth:`StagedTable.outcome`."""
        table = tables.load(self._metastore, self._path)
        if version := tables.find(table, self._token):
            return version
        pending = tables.pending(table)
        if pending is not None and pending.version.token == self._token:
            return pending.version if self._commits.landed(pending) else None
        return self._forgotten(tables.versions(table))

    def fence(self) -> bool:
        """See :meth:`StagedTable.fence`."""
        return until_done(self._fenced, self._path, "fencing", pause=False)

    def _fenced(self) -> bool | None:
        """As :meth:`fence`; ``None`` when the table is to be read again."""
        table = tables.load(self._metastore, self._path)
        if table is None:
            return False
        if not tables.find(table, self._token):
            pending = tables.pending(table)
            if pending is not None and pending.version.token == self._token:
                self._commits.settle(pending, self.begin())
                return None
            expected = tables.revision(table)
            tables.renew(table)
            if not self._alter(table, expected):
                return None
        self._clear()
        return True

    def abort(self) -> None:
        """See :meth:`StagedTable.abort`."""
        self._clear()
        delete_folder(self.begin())

    def _stage(self, token: str) -> str:
        return f"{self._location}/{tables.VERSIONS}/{quote(token, safe='')}"

    @cached_property
    def _location(self) -> str:
        table = tables.load(self._metastore, self._path)
        if table is not None:
            return tables.root(table)
        return f"{file_uri(self._database().locationUri).rstrip('/')}/{self._path.name}"

    def _database(self) -> Database:
        try:
            return self._metastore.call("get_database", self._path.database)
        except NoSuchObjectException:
            self._create_database()
            return self._metastore.call("get_database", self._path.database)

    def _create_database(self) -> None:
        try:
            self._metastore.call("create_database", Database(self._path.database, None, None, {}))
        except AlreadyExistsException:
            return  # somebody else made it just now
        except TException as error:
            raise _refused(self._path, error) from error

    def _clear(self) -> None:
        """Drop partitions without rows that a commit of this token left behind."""
        if exists(f"{self.begin()}/{tables.EMPTY}"):
            self._commits.clear(self.begin())

    def _settled(self) -> Table | None:
        """The table as it is now, as soon as no commit of it is under way. One that takes far too long is brought to its end."""
        watched, deadline = None, 0.0
        while True:
            table = tables.load(self._metastore, self._path)
            pending = tables.pending(table)
            if pending is None:
                return table
            if pending.guard != watched:
                patience = _PATIENCE + _PATIENCE_PER_PARTITION * pending.count
                watched, deadline = pending.guard, time.monotonic() + patience
            if pending.version.token == self._token or time.monotonic() > deadline:
                self._commits.settle(pending, self._stage(pending.version.token))
            else:
                time.sleep(0.1)

    def _attempt(self, table: Table | None, commit: _Commit) -> bool:
        """Publish on the table as it was read; False when it is to be read again."""
        request, staged = commit.request, commit.staged
        stage, keys = self.begin(), request.partition_keys
        if table is None:
            commit.before_publish()
            return self._create(commit)
        self._check_table(table, keys)
        columns = tables.evolved(table, request.result.columns, keys)
        changes = self._changes(table, commit) if keys else Changes(staged, frozenset(), frozenset(), (table.sd.location,))
        if changes is None:
            return False
        version = tables.next_version(table, self._token, request)
        write_replaced(stage, changes.replaced)
        commit.before_publish()
        expected = tables.revision(table)
        if expected is None:  # nobody of us has changed it yet
            tables.renew(table)
        elif keys and changes.count:
            kinds = [column.type for column in columns[-len(keys) :]]
            pending = Pending(version, columns, request.comment, guard(kinds), changes.count)
            return self._commits.publish(table, pending, changes, stage)
        else:
            tables.add_version(table, version, columns, request.comment)
            self._point_at(table, commit)
        return self._alter(table, expected) and expected is not None

    def _create(self, commit: _Commit) -> bool:
        """Make the table: with its first version when it is not partitioned, else without any."""
        request, keys = commit.request, commit.request.partition_keys
        table = Table(tableName=self._path.name, dbName=self._path.database, owner=getpass.getuser(), tableType="EXTERNAL_TABLE")
        table.sd, table.partitionKeys = descriptor(self._format, self._location), []
        table.parameters = {"EXTERNAL": "TRUE", **({"comment": request.comment} if request.comment else {})}
        columns = tables.evolved(table, request.result.columns, keys)
        set_columns(table, columns, keys)
        tables.renew(table)
        if not keys:
            tables.add_version(table, tables.next_version(table, self._token, request), columns, request.comment)
            self._point_at(table, commit)
        try:
            self._metastore.call("create_table", table)
        except AlreadyExistsException:
            return False
        except TException as error:
            raise _refused(self._path, error) from error
        return not keys

    def _point_at(self, table: Table, commit: _Commit) -> None:
        """Move an unpartitioned table to the stage."""
        if not commit.request.partition_keys:
            table.sd.location = f"{self.begin()}/data"
            table.parameters[tables.ROWS] = str(sum(folder.rows for folder in commit.staged.values()))
            if not commit.staged:
                write_text(f"{table.sd.location}/_EMPTY", "")  # a folder even where there are none

    def _check_table(self, table: Table, keys: tuple[str, ...]) -> None:
        check_partition_keys(self._path, partition_keys_of(table), keys)
        if (file_format := format_of(table)) != self._format:
            raise StageRejectedError(
                f"{self._path} is a table of format {file_format}, its definition now says {self._format}; "
                "drop the table or give it another name."
            )

    def _changes(self, table: Table, commit: _Commit) -> Changes | None:
        """What becomes of which partition; ``None`` when the table is to be read again."""
        planned, keys, staged = commit.request.partitions, commit.request.partition_keys, commit.staged
        is_exact = all(len(spec) == len(keys) for spec in planned)
        wanted = {tuple(spec[key] or NULL_PARTITION for key in keys) for spec in planned} | set(staged) if is_exact else None
        existing = self._commits.partitions(table, sorted(wanted) if wanted is not None else None)
        replaced = {values: one for values, one in existing.items() if planned.covers(dict(zip(keys, values, strict=True)))}
        left = {stage for one in replaced.values() if (stage := tables.left_in(table, one.sd.location))}
        for folder in left:
            self._commits.clear(folder)  # a commit that failed
        if left:
            return None
        return Changes(
            filled=staged,
            emptied=frozenset(replaced.keys() - staged.keys()),
            missing=frozenset(staged.keys() - existing.keys()),
            replaced=tuple(one.sd.location for one in replaced.values()),
        )

    def _alter(self, table: Table, expected: str | None) -> bool:
        """Swap the table's definition; False when somebody else was first or the metastore refused."""
        try:
            self._metastore.alter_table(table, REVISION, expected)
        except (ConflictError, TException):
            return False
        return True

    def _looked_up(self) -> Version | None:
        """The version of a commit whose answer was lost, when it landed; ``None`` proves nothing."""
        with suppress(CatalogUnavailableError):
            return self.outcome()
        return None

    def _forgotten(self, known: list[Version]) -> Version | None:
        """The version of this token, when it is so old that only its partitions know it."""
        if not known or known[0].number == 1:
            return None
        mark = self._commits.find_mark(self._token)
        if mark is None:
            return None
        at = datetime.fromtimestamp(int(mark.parameters["transient_lastDdlTime"]), UTC)
        return Version(int(mark.parameters[NUMBER]), self._token, self._token, None, at)


def _refused(path: ObjectPath, error: TException) -> UnsupportedError:
    return UnsupportedError(f"The Hive metastore refuses table {path}: {getattr(error, 'message', None) or error}")
