"""The commit of a partitioned Hive table: one ``alter_partitions``, which a guard keeps from landing late.

The metastore compares nothing when it alters partitions, but it refuses the whole call when one of them is missing. So every
commit first adds a *guard*, an empty partition of its own, and alters it in the same call. Who drops the guard has fenced the
commit off. Dropping is guarded the same way: partitions go together with another such partition, or not at all, so that
nobody who wakes up late drops what has rows again. ``docs/adr/0007-guard-partitions.md`` has the whole story.

All partitions that a commit adds or empties lie in ``<stage>/empty`` until they get rows or are dropped.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hive_metastore.ttypes import (
    AddPartitionsRequest,
    DropPartitionsRequest,
    MetaException,
    NoSuchObjectException,
    Partition,
    RequestPartsSpec,
    Table,
)
from thrift.Thrift import TException

from airflow_dynamic_tables.clients.deleting import delete_folder
from airflow_dynamic_tables.clients.files import write_text
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.metastore.tables import REVISION, partition_keys_of, set_columns
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.data_files import partition_name
from airflow_dynamic_tables.exceptions import CommitRejectedError, CommitUnknownError, ConflictError, DynamicTableError
from airflow_dynamic_tables.formats.commits import ATTEMPTS, NUMBER, TOKEN
from airflow_dynamic_tables.formats.data_files import Folder
from airflow_dynamic_tables.formats.hive import parameters as tables
from airflow_dynamic_tables.formats.hive.guards import batches, guards_to_drop
from airflow_dynamic_tables.formats.hive.parameters import Pending

Values = tuple[str, ...]

log = logging.getLogger(__name__)

_REFUSALS = 2
"""How often the metastore may refuse a commit until that is final. It has tried ten times itself before it does."""

_BY_NAME = 1_000
"""Partitions asked for by name; of more, all are asked for."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a commit does to the partitions of a table: which get a folder, which become empty, which are not there yet.

    ``replaced`` are the folders that they lead to before, ``moved`` partitions as they are to be, only with other folders.
    """

    filled: Mapping[Values, Folder]
    emptied: frozenset[Values]
    missing: frozenset[Values]
    replaced: tuple[str, ...]
    moved: tuple[Partition, ...] = ()

    @property
    def count(self) -> int:
        """How many partitions change."""
        return len(self.filled) + len(self.emptied) + len(self.moved)


class PartitionCommits:
    """Commits of one partitioned table."""

    def __init__(self, metastore: Metastore, path: ObjectPath) -> None:
        self._metastore = metastore
        self._path = path
        self._refusals = 0

    def partitions(self, table: Table, wanted: Sequence[Values] | None = None) -> dict[Values, Partition]:
        """The partitions of a table by their values; those that are ``wanted``, or all."""
        place = self._place
        if wanted is not None and len(wanted) <= _BY_NAME:
            names = [partition_name(_keys(table), values) for values in wanted]
            partitions = self._metastore.ask("get_partitions_by_names", *place, names) if names else []
        else:
            partitions = self._metastore.ask("get_partitions", *place, tables.ALL)
        return {tuple(partition.values): partition for partition in partitions}

    def publish(self, table: Table, commit: Pending, changes: Changes, stage: str) -> bool:
        """Make the changes visible in one step; False when another commit was first, or the metastore refused for the first time.

        :param table: as it was read; nobody may have changed it since.
        :raises CommitRejectedError: when the metastore refuses again; in its words.
        :raises CatalogUnavailableError: when an answer was lost: nobody knows then.
        :raises CommitUnknownError: when the metastore refuses to say.
        """
        try:
            self._swap(table, commit)
        except ConflictError:
            return False
        except TException as error:
            self.refused(error)
            return False
        shape = copy.deepcopy(table)
        set_columns(shape, commit.columns, partition_keys_of(table))
        try:
            guards = self._add(shape, commit, changes, stage)
            self._swap(table, commit)  # or somebody has fenced this commit off before its guard was there
        except ConflictError:
            self._give_up(commit, stage)
            return False
        except TException as error:
            self._give_up(commit, stage)
            self.refused(error)
            return False
        try:
            self._metastore.alter_partitions(*self._place, self._altered(shape, commit, changes, stage))
        except TException as error:
            if not self._has_landed(commit):
                self._give_up(commit, stage)
                self.refused(error)
                return False
            self._tidy(commit, lambda: self.clear(stage))
        else:
            self._tidy(commit, lambda: self._drop_guarded(table, stage, list(changes.emptied), guards))
        return True

    def refused(self, error: TException) -> None:
        """Count what the metastore refused though no other commit was first: once may be two transactions of its database.

        :raises CommitRejectedError: when it refuses again.
        """
        self._refusals += 1
        if self._refusals == _REFUSALS:
            raise CommitRejectedError(f"The Hive metastore refuses to change {self._path}: {_words(error)}") from error

    def settle(self, commit: Pending, stage: str) -> bool:
        """Bring a commit to its end whoever makes it: completed when it landed; else it never will.

        :return: whether it landed.
        :raises CommitUnknownError: when the metastore refuses to say.
        """
        landed = self._has_landed(commit)
        if landed:
            self.complete(commit)
            self.clear(stage)
        else:
            self._give_up(commit, stage)
        return landed

    def _has_landed(self, commit: Pending) -> bool:
        """Whether a commit landed; if not, it no longer can: it may land until the guard is dropped."""
        return self._fence(commit) or self.find_mark(commit.version.token) is not None

    def _give_up(self, commit: Pending, stage: str) -> None:
        """Take back what says that a commit is under way, and drop what it added."""
        self._end(commit, is_version=False)
        self.clear(stage)

    def _tidy(self, commit: Pending, drop: Callable[[], None]) -> None:
        """Record in the table that a commit landed, and drop what it left; where that fails, the maintenance does it."""
        try:
            self.complete(commit)
            drop()
        except (DynamicTableError, TException, OSError):
            log.exception("Version %s of %s landed, but could not be tidied up after.", commit.version.number, self._path)

    def landed(self, commit: Pending) -> bool:
        """Whether a commit that is under way landed already."""
        guard_partition = self._guard(commit)
        if guard_partition is not None:
            return TOKEN in (guard_partition.parameters or {})
        return self.find_mark(commit.version.token) is not None

    def find_mark(self, token: str) -> Partition | Table | None:
        """A partition that the commit of that token altered, or that leads to its rows; or the table, if it has no partitions."""
        table = tables.load(self._metastore, self._path)
        if table is None:
            return None
        stage = tables.stage_of(tables.root(table), token)
        marked = self.partitions(table).values() if table.partitionKeys else (table,)
        return next((one for one in marked if (one.parameters or {}).get(TOKEN) == token or tables.is_read(one, stage)), None)

    def complete(self, commit: Pending) -> None:
        """Record in the table that a commit landed; idempotent."""
        self._end(commit, is_version=commit.version.number > 0)

    def clear(self, stage: str) -> None:
        """Drop what a commit that is over left in its empty folder: partitions without rows, and guards."""
        table = tables.load(self._metastore, self._path)
        if table is None or not table.partitionKeys:
            return
        left = {values: one for values, one in self.partitions(table).items() if tables.left_by(table, one) == stage}
        guards = [values for values, one in left.items() if tables.GUARD in (one.parameters or {})]
        self._drop_guarded(table, stage, [values for values in left if values not in guards], guards)

    def _drop_guarded(self, table: Table, stage: str, others: Sequence[Values], guards: Sequence[Values]) -> None:
        """Each call names a guard, so that of two who clear the same, one drops and the other does nothing."""
        keys = _keys(table)
        for batch in batches(others, guards):
            self._drop(keys, batch)
        delete_folder(stage, f"{stage}/{tables.EMPTY}")

    def _add(self, shape: Table, commit: Pending, changes: Changes, stage: str) -> list[Values]:
        """Add what is to be altered and is not there yet, and the guards.

        :return: the guards.
        """
        empty = f"{stage}/{tables.EMPTY}"
        write_text(f"{empty}/_EMPTY", "")  # a folder even where there are none, and a sign that there may be partitions in it
        kinds = [field.type for field in shape.partitionKeys]
        guards = [commit.guard, *guards_to_drop(max(len(changes.missing), len(changes.emptied)), kinds)]
        added = [
            *(tables.partition(shape, values, empty) for values in changes.missing),
            *(tables.partition(shape, values, empty, **{tables.GUARD: "true"}) for values in guards),
        ]
        request = AddPartitionsRequest(*self._place, added, ifNotExists=False, needResult=False)
        self._metastore.call("add_partitions_req", request)
        return guards

    def _altered(self, shape: Table, commit: Pending, changes: Changes, stage: str) -> list[Partition]:
        """The partitions as they are after the commit; each says whose it is."""
        empty = f"{stage}/{tables.EMPTY}"
        version = commit.version
        mark = {TOKEN: version.token, NUMBER: str(version.number)}
        rows = {values: {tables.ROWS: str(folder.rows)} for values, folder in changes.filled.items()}
        return [
            *(
                tables.partition(shape, values, folder.location, **mark, **rows[values])
                for values, folder in changes.filled.items()
            ),
            *(tables.partition(shape, values, empty, **mark) for values in changes.emptied),
            *changes.moved,
            tables.partition(shape, commit.guard, empty, **mark, **{tables.GUARD: "true"}),
        ]

    def _swap(self, table: Table, commit: Pending) -> None:
        """Say that this commit is under way, provided that nobody has changed the table since it was read."""
        expected = table.parameters[REVISION]
        tables.set_pending(table, commit)
        self._metastore.alter_table(table, REVISION, expected)

    def _fence(self, commit: Pending) -> bool:
        """Keep a commit from landing; True when it was seen to have landed before.

        With another revision it cannot go on when it has no guard yet; when it has one, that is dropped.
        """
        self._change(lambda table: self._is_pending(table, commit))
        for attempt in range(ATTEMPTS):
            guard_partition = self._guard(commit)
            if guard_partition is None:
                return False
            if TOKEN in (guard_partition.parameters or {}):
                return True
            try:
                self._metastore.call("drop_partition", *self._place, list(commit.guard), False)
            except NoSuchObjectException:
                return False
            except TException as error:  # the metastore's database let the commit go first, or nobody
                words = _words(error)
                time.sleep(0.1 * 2**attempt)
        raise CommitUnknownError(f"The metastore does not fence off the commit under way on {self._path} ({words}); try again.")

    def _end(self, commit: Pending, *, is_version: bool) -> None:
        def change(table: Table) -> bool:
            if not self._is_pending(table, commit):
                return False
            if is_version:
                tables.add_version(table, commit.version, commit.columns, commit.comment)
            else:
                tables.set_pending(table, None)
            return True

        self._change(change)

    def _is_pending(self, table: Table, commit: Pending) -> bool:
        known = tables.pending(table)
        return known is not None and known.guard == commit.guard

    def _change(self, change: Callable[[Table], bool]) -> None:
        """Change the table as it is now, unless ``change`` says that there is nothing to do."""
        why = ""
        for attempt in range(ATTEMPTS):
            time.sleep(0.02 * attempt**2)
            table = tables.load(self._metastore, self._path)
            expected = tables.revision(table) if table is not None else None
            if expected is None or not change(table):
                return
            tables.renew(table)
            try:
                self._metastore.alter_table(table, REVISION, expected)
            except ConflictError:
                why = "it was changed by others each time"
            except MetaException as error:
                why = _words(error)
            else:
                return
        raise CommitUnknownError(f"A commit of {self._path} could not be ended in {ATTEMPTS} tries ({why}); try again.")

    def _guard(self, commit: Pending) -> Partition | None:
        try:
            return self._metastore.ask("get_partition", *self._place, list(commit.guard))
        except NoSuchObjectException:
            return None

    def _drop(self, keys: Sequence[str], partitions: Sequence[Values]) -> None:
        """Drop all of them in one step, or none when one is missing."""
        names = RequestPartsSpec(names=[partition_name(keys, values) for values in partitions])
        request = DropPartitionsRequest(*self._place, parts=names, deleteData=False, ifExists=False, needResult=False)
        try:
            self._metastore.ask("drop_partitions_req", request)
        except NoSuchObjectException:
            return  # somebody else did

    @property
    def _place(self) -> tuple[str, str]:
        return self._path.database, self._path.name


def _words(error: TException) -> str:
    """What the metastore says of an error."""
    return str(getattr(error, "message", None) or error)


def _keys(table: Table) -> list[str]:
    return [field.name for field in table.partitionKeys]
