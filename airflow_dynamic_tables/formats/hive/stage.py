"""The stage of one refresh of a Hive table: Spark writes a folder of its own, the metastore is pointed at it in one step.

Partitioned tables are published by one ``alter_partitions`` (see ``hive_commits``), others by a compare-and-swap of the table's
location. The token stands in the parameters of what was changed, so that the outcome can always be looked up in the table.
"""

from __future__ import annotations

import getpass
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
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
    CommitRejectedError,
    CommitUnknownError,
    ConflictError,
    StageRejectedError,
    UnsupportedError,
)
from airflow_dynamic_tables.formats.base import CommitRequest, StagedTable, StagingContext
from airflow_dynamic_tables.formats.commits import check_result
from airflow_dynamic_tables.formats.data_files import Folder, staged_partitions
from airflow_dynamic_tables.formats.hive import parameters as tables
from airflow_dynamic_tables.formats.hive.commits import Changes, PartitionCommits, Values
from airflow_dynamic_tables.formats.hive.guards import guard
from airflow_dynamic_tables.formats.hive.orphans import write_replaced
from airflow_dynamic_tables.formats.hive.parameters import Pending

_ATTEMPTS = 10

_PATIENCE, _PATIENCE_PER_PARTITION = 60.0, 0.2
"""Seconds that another commit of the same table may take before it is brought to its end."""


class HiveStagedTable(StagedTable):
    """The stage of one refresh of a Hive table."""

    def __init__(self, metastore: Metastore, file_format: str, context: StagingContext) -> None:
        self._metastore = metastore
        self._format = file_format
        self._context = context
        self._path = ObjectPath(context.database, context.table)
        self._commits = PartitionCommits(metastore, self._path)

    def begin(self) -> str:
        """See :meth:`StagedTable.begin`."""
        return self._stage(self._context.token)

    def commit(self, request: CommitRequest, before_publish: Callable[[], None]) -> Version:
        """See :meth:`StagedTable.commit`."""
        context, stage = self._context, self.begin()
        check_result(context, stage, request.result)
        staged = staged_partitions(request.result, f"{stage}/data", self._format, context.partition_keys, context.partitions)
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(random.uniform(0.05, 0.1) * 2**attempt / 2)
            table = self._settled()
            if landed := tables.find(table, context.token):
                return landed
            try:
                if self._attempt(table, request, staged, before_publish):
                    return self._landed()
            except CatalogUnavailableError as error:
                if landed := self._looked_up():
                    return landed
                raise CommitUnknownError(
                    f"Nobody knows whether the commit of {self._path} landed ({error}); it is looked up before anything is "
                    "deleted."
                ) from error
        raise CommitRejectedError(f"{self._path} was changed by others {_ATTEMPTS} times while committing; try again.")

    def outcome(self) -> Version | None:
        """See :meth:`StagedTable.outcome`."""
        token, table = self._context.token, tables.load(self._metastore, self._path)
        if found := tables.find(table, token):
            return found
        pending = tables.pending(table)
        if pending is not None and pending.version.token == token:
            return pending.version if self._commits.landed(pending) else None
        return self._forgotten(tables.versions(table))

    def fence(self) -> bool:
        """See :meth:`StagedTable.fence`."""
        for _ in range(_ATTEMPTS):
            table = tables.load(self._metastore, self._path)
            if table is None:
                return False
            if not tables.find(table, self._context.token):
                pending = tables.pending(table)
                if pending is not None and pending.version.token == self._context.token:
                    self._commits.settle(pending, self.begin())
                    continue
                expected = tables.revision(table)
                tables.renew(table)
                if not self._alter(table, expected):
                    continue
            self._clear()
            return True
        raise CommitRejectedError(f"{self._path} was changed by others {_ATTEMPTS} times while fencing; try again.")

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
            if pending.version.token == self._context.token or time.monotonic() > deadline:
                self._commits.settle(pending, self._stage(pending.version.token))
            else:
                time.sleep(0.1)

    def _attempt(
        self, table: Table | None, request: CommitRequest, staged: Mapping[Values, Folder], before_publish: Callable[[], None]
    ) -> bool:
        """Publish on the table as it was read; False when it is to be read again."""
        stage, keys = self.begin(), self._context.partition_keys
        if table is None:
            before_publish()
            return self._create(request, staged)
        self._check_table(table)
        columns = tables.evolved(table, request.result.columns, keys)
        changes = self._changes(table, staged) if keys else Changes(staged, frozenset(), frozenset(), (table.sd.location,))
        if changes is None:
            return False
        version = self._version(table, request)
        write_replaced(stage, changes.replaced)
        before_publish()
        expected = tables.revision(table)
        if expected is None:  # nobody of us has changed it yet
            tables.renew(table)
        elif keys and changes.count:
            kinds = [column.type for column in columns[-len(keys) :]]
            commit = Pending(version, columns, self._context.comment, guard(kinds), changes.count)
            return self._commits.publish(table, commit, changes, stage)
        else:
            tables.add_version(table, version, columns, self._context.comment)
            self._point_at(table, staged)
        return self._alter(table, expected) and expected is not None

    def _create(self, request: CommitRequest, staged: Mapping[Values, Folder]) -> bool:
        """Make the table: with its first version when it is not partitioned, else without any."""
        context, location = self._context, self._location
        table = Table(tableName=self._path.name, dbName=self._path.database, owner=getpass.getuser(), tableType="EXTERNAL_TABLE")
        table.sd, table.partitionKeys = descriptor(self._format, location), []
        table.parameters = {"EXTERNAL": "TRUE", **context.properties, **({"comment": context.comment} if context.comment else {})}
        columns = tables.evolved(table, request.result.columns, context.partition_keys)
        set_columns(table, columns, context.partition_keys)
        tables.renew(table)
        if not context.partition_keys:
            tables.add_version(table, self._version(table, request), columns, context.comment)
            self._point_at(table, staged)
        try:
            self._metastore.call("create_table", table)
        except AlreadyExistsException:
            return False
        except TException as error:
            raise _refused(self._path, error) from error
        return not context.partition_keys

    def _point_at(self, table: Table, staged: Mapping[Values, Folder]) -> None:
        """Move an unpartitioned table to the stage."""
        if not self._context.partition_keys:
            table.sd.location = f"{self.begin()}/data"
            table.parameters[tables.ROWS] = str(sum(folder.rows for folder in staged.values()))
            if not staged:
                write_text(f"{table.sd.location}/_EMPTY", "")  # a folder even where there are none

    def _check_table(self, table: Table) -> None:
        keys, wanted = partition_keys_of(table), self._context.partition_keys
        if keys != wanted:
            raise StageRejectedError(
                f"{self._path} is partitioned by ({', '.join(keys)}), its definition now by ({', '.join(wanted)}); "
                "drop the table or give it another name."
            )
        if (found := format_of(table)) != self._format:
            raise StageRejectedError(
                f"{self._path} is a table of format {found}, its definition now says {self._format}; "
                "drop the table or give it another name."
            )

    def _changes(self, table: Table, staged: Mapping[Values, Folder]) -> Changes | None:
        """What becomes of which partition; ``None`` when the table is to be read again."""
        planned, keys = self._context.partitions, self._context.partition_keys
        is_exact = all(len(spec) == len(keys) for spec in planned)
        wanted = {tuple(spec[key] or NULL_PARTITION for key in keys) for spec in planned} | set(staged) if is_exact else None
        existing = self._commits.partitions(table, sorted(wanted) if wanted is not None else None)
        replaced = {values: one for values, one in existing.items() if planned.covers(dict(zip(keys, values, strict=True)))}
        left = {found for one in replaced.values() if (found := tables.left_in(table, one.sd.location))}
        for folder in left:
            self._commits.clear(folder)  # a commit that came to no good end
        if left:
            return None
        return Changes(
            filled=staged,
            emptied=frozenset(replaced.keys() - staged.keys()),
            missing=frozenset(staged.keys() - existing.keys()),
            replaced=tuple(one.sd.location for one in replaced.values()),
        )

    def _version(self, table: Table, request: CommitRequest) -> Version:
        known = tables.versions(table)
        return Version(
            number=known[-1].number + 1 if known else 1,
            token=self._context.token,
            snapshot=self._context.token,
            data_timestamp=tables.data_timestamp(request.data_timestamp, known),
            committed_at=datetime.now(UTC),
            sources=dict(request.sources),
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

    def _landed(self) -> Version:
        version = self.outcome()
        if version is None:
            raise CommitUnknownError(f"The commit of {self._path} was accepted but is not in the table.")
        return version

    def _forgotten(self, known: list[Version]) -> Version | None:
        """The version of this token, when it is so old that only its partitions know it."""
        if not known or known[0].number == 1:
            return None
        mark = self._commits.find_mark(self._context.token)
        if mark is None:
            return None
        at = datetime.fromtimestamp(int(mark.parameters["transient_lastDdlTime"]), UTC)
        return Version(int(mark.parameters[tables.NUMBER]), self._context.token, self._context.token, None, at)


def _refused(path: ObjectPath, error: TException) -> UnsupportedError:
    return UnsupportedError(f"The Hive metastore refuses table {path}: {getattr(error, 'message', None) or error}")
