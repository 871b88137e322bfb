"""Stages of refreshes of Hive tables: Spark writes a new folder, and one metastore call publishes it.

Partitioned tables are published by one ``alter_partitions`` (see ``commits``), others by a compare-and-swap of the table's
location. The token is a parameter of the changed objects, so the outcome can always be looked up in the table.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from hive_metastore.ttypes import Table
from thrift.Thrift import TException

from airflow_dynamic_tables.clients.files import delete_folder, exists, write_text
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.metastore.tables import REVISION, forget_quoted, format_of, partition_keys_of
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import NULL_PARTITION, describe
from airflow_dynamic_tables.core.schema import Rebuild, TableLayout
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    CommitRejectedError,
    CommitUnknownError,
    ConflictError,
    StageRejectedError,
)
from airflow_dynamic_tables.formats.base import CommitRequest, StagedTable
from airflow_dynamic_tables.formats.commits import TOKEN, check_base, check_result, unknown, until_done
from airflow_dynamic_tables.formats.data_files import Folder, staged_partitions
from airflow_dynamic_tables.formats.hive import parameters as tables
from airflow_dynamic_tables.formats.hive.commits import HiveCommits, PartitionChanges, Values, guard
from airflow_dynamic_tables.formats.hive.parameters import Pending
from airflow_dynamic_tables.formats.hive.records import claim, record, undone, was_about_to_land, write_replaced

log = logging.getLogger(__name__)

_PATIENCE = 60.0
_PATIENCE_PER_PARTITION = 0.2
_PATIENCE_WITH_COMPACTIONS = 2.0
"""Seconds until a concurrent commit of the same table is finished forcibly, and additional seconds per partition.

A compaction gets less time, because no user waits for it.
"""


@dataclass(frozen=True, slots=True)
class _Commit:
    """A commit request, and the folders of all partitions with rows."""

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
        self._commits = HiveCommits(metastore, path)

    def begin(self) -> str:
        return tables.stage_of(self._location, self._token)

    def commit(self, request: CommitRequest, before_publish: Callable[[], None]) -> Version:
        stage = self.begin()
        check_result(request, self._token, stage)
        commit = _Commit(request, staged_partitions(request, tables.data_of(stage), self._format), before_publish)
        return until_done(lambda: self._committed(commit), self._path, "committing")

    def _committed(self, commit: _Commit) -> Version | None:
        """Return the committed version; ``None`` if the table has to be read again."""
        table = self._settled()
        return tables.find(table, self._token) or self._attempt(table, commit)

    def outcome(self) -> Version | None:
        """See :meth:`StagedTable.outcome`; if the table refers to the stage, the commit succeeded, regardless of parameters."""
        table = tables.load(self._metastore, self._path)
        if version := tables.find(table, self._token):
            return version
        pending = tables.pending(table)
        if pending is not None and pending.version.token == self._token and self._commits.landed(pending):
            return pending.version
        return self._forgotten(table) if table is not None else None

    def fence(self) -> None:
        """See :meth:`StagedTable.fence`; a commit creates no table, so it cannot succeed without one."""
        until_done(self._fenced, self._path, "fencing", pause=False)

    def _fenced(self) -> bool | None:
        """Return True once fenced; ``None`` if the table has to be read again."""
        table = tables.load(self._metastore, self._path)
        if table is None:
            return True
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

    def abort(self, location: str | None = None) -> None:
        """See :meth:`StagedTable.abort`; for a dropped table, only files that were certainly never a version are deleted.

        :raises ConflictError: if the table refers to rows of the stage, so the commit succeeded.
        """
        table = tables.load(self._metastore, self._path)
        if location is not None and (table is None or tables.stage_of(tables.root(table), self._token) != location):
            self._abort_elsewhere(location)
            return
        if table is None:
            return
        self._clear()
        if self._commits.find_mark(self._token) is not None:
            raise ConflictError(f"{self._path} reads the files of stage {self._token}, so they stay.")
        delete_folder(self._location, self.begin())

    def _abort_elsewhere(self, location: str) -> None:
        root = location.rpartition(f"/{tables.VERSIONS}/")[0]
        if tables.stage_of(root, self._token) == location and not was_about_to_land(location):
            delete_folder(root, location)

    @cached_property
    def _location(self) -> str:
        """The folder of the table when the stage is first used."""
        table = tables.load(self._metastore, self._path)
        if table is None:
            raise CommitRejectedError(f"{self._path} is not in the Hive metastore (any more), so it cannot be refreshed.")
        return tables.root(table)

    def _clear(self) -> None:
        """Drop partitions without rows left by a commit with this token."""
        if exists(f"{self.begin()}/{tables.EMPTY}"):
            self._commits.clear(self.begin())

    def _settled(self) -> Table:
        """Return the current table once it has no pending commit; a commit past its timeout is finished forcibly."""
        watched: Values | None = None
        deadline = 0.0
        while True:
            table = tables.load(self._metastore, self._path)
            if table is None or tables.root(table) != self._location:
                raise CommitRejectedError(f"{self._path} was dropped or renamed while it was refreshed; nothing was committed.")
            pending = tables.pending(table)
            if pending is None:
                return table
            if pending.guard != watched:
                watched = pending.guard
                patience = _PATIENCE if pending.version.number else _PATIENCE_WITH_COMPACTIONS
                deadline = time.monotonic() + patience + _PATIENCE_PER_PARTITION * pending.count
            if pending.version.token == self._token or time.monotonic() > deadline:
                self._commits.settle(pending, tables.stage_of(tables.root(table), pending.version.token))
            else:
                time.sleep(0.1)

    def _attempt(self, table: Table, commit: _Commit) -> Version | None:
        """Publish based on the table as read; return ``None`` if it has to be read again."""
        request = commit.request
        keys = request.partition_keys
        self._check_table(table, request)
        expected = tables.revision(table)
        # This release has not changed the table yet, or an earlier release wrote unreadable names.
        if forget_quoted(table) or expected is None or tables.identity(table) is None:
            tables.renew(table)
            self._alter(table, expected)
            return None
        columns = tables.evolved(self._metastore, table, request)
        changes = self._changes(table, commit)
        if changes is None:
            return None
        lost = undone(table)
        if lost is not None:
            if (now := tables.load(self._metastore, self._path)) is None or tables.revision(now) != expected:
                return None  # concurrent commit
            self._check_lost(lost, request)
        version = tables.next_version(table, self._token, request, lost)
        claim(table)
        given_up = (tables.data_of(tables.stage_of(self._location, lost.token)),) if lost is not None else ()
        write_replaced(self.begin(), (*changes.replaced, *given_up))
        pending: Pending | None = None
        if keys and changes.count:
            kinds = [column.type for column in columns[-len(keys) :]]
            pending = Pending(version, columns, request.comment, guard(kinds), changes.count)
        else:
            tables.add_version(table, version, columns, request.comment)
            self._point_at(table, commit)
        commit.before_publish()
        try:
            has_landed = self._commits.publish(table, pending, changes, self.begin()) if pending else self._alter(table, expected)
        except CatalogUnavailableError as error:
            return self._looked_up(error)
        if not has_landed:
            return None
        record(table, version)
        return version

    def _check_lost(self, lost: Version, request: CommitRequest) -> None:
        """Log that this commit supersedes a version that was undone because others wrote back an older state."""
        asked = request.data_timestamp
        fresh = lost.data_timestamp
        if not request.partition_keys and asked is not None and fresh is not None and asked < fresh:
            raise StageRejectedError(
                f"Version {lost.number} of {self._path} was undone by another engine, which altered the table meanwhile; "
                f"refresh it for {fresh.isoformat()} or later."
            )
        log.warning("Version %s of %s was undone by another engine; %s makes up for it.", lost.number, self._path, self._token)

    def _point_at(self, table: Table, commit: _Commit) -> None:
        if not commit.request.partition_keys:
            table.sd.location = tables.data_of(self.begin())
            table.parameters[tables.ROWS] = str(sum(folder.rows for folder in commit.staged.values()))
            if not commit.staged:
                write_text(f"{table.sd.location}/_EMPTY", "")  # creates the folder where the file system needs one

    def _check_table(self, table: Table, request: CommitRequest) -> None:
        TableLayout((), partition_keys_of(table), rebuild=Rebuild.NOTHING).check_keys(self._path, request.partition_keys)
        kept = tables.versions(table)
        check_base(self._path, request, kept[-1] if kept else None, lambda: kept)
        if (file_format := format_of(table)) != self._format:
            raise StageRejectedError(
                f"{self._path} is a table of format {file_format}, its definition now says {self._format}; "
                "drop the table or give it another name."
            )

    def _changes(self, table: Table, commit: _Commit) -> PartitionChanges | None:
        """Return the partition changes of a commit; ``None`` if the table has to be read again."""
        planned = commit.request.partitions
        keys = commit.request.partition_keys
        staged = commit.staged
        if not keys:
            return PartitionChanges(staged, frozenset(), frozenset(), (table.sd.location,))
        is_exact = all(len(spec) == len(keys) for spec in planned)
        wanted = {tuple(spec[key] or NULL_PARTITION for key in keys) for spec in planned} | set(staged) if is_exact else None
        existing = self._commits.partitions(table, sorted(wanted) if wanted is not None else None)
        replaced = {values: one for values, one in existing.items() if planned.covers(dict(zip(keys, values, strict=True)))}
        left = {stage for one in replaced.values() if (stage := tables.left_by(table, one))}
        for folder in left:
            self._commits.clear(folder)  # of a failed commit
        if left:
            return None
        self._check_distinct(keys, staged.keys() | existing.keys(), staged)
        return PartitionChanges(
            filled=staged,
            emptied=frozenset(replaced.keys() - staged.keys()),
            missing=frozenset(staged.keys() - existing.keys()),
            replaced=tuple(one.sd.location for one in replaced.values()),
        )

    def _check_distinct(self, keys: tuple[str, ...], partitions: Iterable[Values], staged: Container[Values]) -> None:
        """Check that partitions differ in more than trailing blanks, which most metastore databases ignore."""
        known: dict[Values, Values] = {}
        for values in sorted(partitions):
            other = known.setdefault(tuple(value.rstrip(" ") for value in values), values)
            if other != values and (values in staged or other in staged):
                named = (describe(dict(zip(keys, one, strict=True))) for one in (other, values))
                raise StageRejectedError(
                    f"Partitions {' and '.join(named)} of {self._path} differ only in blanks at the end, and the database of a "
                    "Hive metastore takes them for one; trim the partition key in the query."
                )

    def _alter(self, table: Table, expected: str | None) -> bool:
        """Compare and swap the table definition; return False after a concurrent change, or on the first rejection.

        :raises CommitRejectedError: if the metastore rejects it again; contains its message.
        """
        try:
            self._metastore.alter_table(table, REVISION, expected)
        except ConflictError:
            return False
        except TException as error:
            self._commits.refused(error)
            return False
        return True

    def _looked_up(self, error: CatalogUnavailableError) -> Version | None:
        """Return the version of a commit whose response was lost; ``None`` if it failed and can no longer succeed."""
        with suppress(CatalogUnavailableError, CommitRejectedError, CommitUnknownError):
            if self.outcome() is None:
                self.fence()
            return self.outcome()
        raise unknown(self._path, error) from error

    def _forgotten(self, table: Table) -> Version | None:
        """Return the version of this token if only the table's files show it.

        The table no longer records the version because it is too old, or because another engine wrote back older parameters.
        """
        one = self._commits.find_mark(self._token)
        lost = undone(table) if one is not None else None
        if one is None or (lost is not None and lost.token == self._token):
            return lost
        number = tables.number_of(one) if (one.parameters or {}).get(TOKEN) == self._token else 0
        return Version(number, self._token, self._token, None, tables.changed_at(one))
