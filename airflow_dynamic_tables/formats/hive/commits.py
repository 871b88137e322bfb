"""Commits of partitioned Hive tables, and their guards: partitions without rows whose values no real partition has."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from uuid import uuid4

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

from airflow_dynamic_tables.clients.files import delete_folder, write_text
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.metastore.tables import REVISION, partition_keys_of, set_columns
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.schema import partition_name
from airflow_dynamic_tables.exceptions import (
    CommitRejectedError,
    CommitUnknownError,
    ConflictError,
    DynamicTableError,
    UnsupportedError,
)
from airflow_dynamic_tables.formats.commits import ATTEMPTS, NUMBER, TOKEN
from airflow_dynamic_tables.formats.data_files import Folder
from airflow_dynamic_tables.formats.hive import parameters as tables
from airflow_dynamic_tables.formats.hive.parameters import Pending

_BATCH = 200
"""Partitions dropped per call; Derby cannot handle many more."""


def guard(kinds: Sequence[str]) -> tuple[str, ...]:
    """Return unused partition values of the types of the partition keys; they sort before all real values.

    :raises UnsupportedError: if all keys are boolean, because then no unused values exist.
    """
    unique = uuid4().int
    if all(kind == "boolean" for kind in kinds):
        raise UnsupportedError("A Hive table whose partition keys are all boolean cannot be refreshed in one step; add another.")
    return tuple(_odd_value(kind, unique) for kind in kinds)


def guards_to_drop(count: int, kinds: Sequence[str]) -> list[tuple[str, ...]]:
    """Return one guard for each call needed to drop this number of partitions."""
    return [guard(kinds) for _ in range(-(-count // _BATCH))]


def batches(others: Sequence[tuple[str, ...]], guards: Sequence[tuple[str, ...]]) -> Iterator[list[tuple[str, ...]]]:
    """Yield batches of partitions to drop in one call, each with a guard; partitions beyond the last guard are kept."""
    parts = [others[start : start + _BATCH] for start in range(0, len(others), _BATCH)] or [()]
    for number, (part, one) in enumerate(zip(parts, guards, strict=False)):
        rest = guards[number + 1 :] if number + 1 == len(parts) else ()
        yield [*part, one, *rest]


def _odd_value(kind: str, unique: int) -> str:
    if kind == "boolean":
        return "false"
    if kind == "date":
        return date.fromordinal(1 + unique % 300_000).isoformat()
    if kind.startswith("timestamp"):
        return f"{date.fromordinal(1 + unique % 300_000)} 00:00:00"
    digits = {"tinyint": 7, "smallint": 15, "int": 31, "float": 23, "double": 52, "bigint": 62}.get(kind.partition("(")[0])
    if digits is not None:
        return str(-(unique % 2**digits) - 1)
    if kind.startswith("decimal"):
        return str(-(unique % 10 ** _whole_digits(kind)) - 1)
    return f"!{unique:032x}"


def _whole_digits(kind: str) -> int:
    precision, _, scale = kind.partition("(")[2].rstrip(")").partition(",")
    return max(int(precision or 10) - int(scale or 0) - 1, 0)


Values = tuple[str, ...]

log = logging.getLogger(__name__)

_REFUSALS = 2
"""Number of rejections by the metastore that end a commit; the metastore itself retries ten times before each."""

_BY_NAME = 1_000
"""Most partitions requested by name; beyond that, all partitions are requested."""


@dataclass(frozen=True, slots=True)
class PartitionChanges:
    """The partition changes of a commit: ``filled`` get a folder, ``emptied`` become empty, ``missing`` do not exist yet.

    ``replaced`` are the folders of changed partitions before the commit. ``moved`` are partitions of which only the folder
    changes.
    """

    filled: Mapping[Values, Folder]
    emptied: frozenset[Values]
    missing: frozenset[Values]
    replaced: tuple[str, ...]
    moved: tuple[Partition, ...] = ()

    @property
    def count(self) -> int:
        """Number of changed partitions."""
        return len(self.filled) + len(self.emptied) + len(self.moved)


class HiveCommits:
    """Commits of one partitioned table."""

    def __init__(self, metastore: Metastore, path: ObjectPath) -> None:
        self._metastore = metastore
        self._path = path
        self._refusals = 0

    def partitions(self, table: Table, wanted: Sequence[Values] | None = None) -> dict[Values, Partition]:
        """Return partitions of a table by their values: the ``wanted`` ones, or all."""
        place = self._place
        if wanted is not None and len(wanted) <= _BY_NAME:
            names = [partition_name(_keys(table), values) for values in wanted]
            partitions = self._metastore.ask("get_partitions_by_names", *place, names) if names else []
        else:
            partitions = self._metastore.ask("get_partitions", *place, tables.ALL)
        return {tuple(partition.values): partition for partition in partitions}

    def publish(self, table: Table, commit: Pending, changes: PartitionChanges, stage: str) -> bool:
        """Publish the changes atomically; return False after a concurrent commit, or on the first rejection by the metastore.

        :param table: the table as read; the commit fails if it has changed since.
        :raises CommitRejectedError: if the metastore rejects the commit again; contains its message.
        :raises CatalogUnavailableError: if a response was lost, so that the outcome is unknown.
        :raises CommitUnknownError: if the metastore does not reveal the outcome.
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
            self._swap(table, commit)  # fails if the commit was fenced before its guard existed
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
        """Count a rejection by the metastore without a concurrent commit; one may be a conflict in the metastore's database.

        :raises CommitRejectedError: on the second rejection.
        """
        self._refusals += 1
        if self._refusals == _REFUSALS:
            raise CommitRejectedError(f"The Hive metastore refuses to change {self._path}: {_words(error)}") from error

    def settle(self, commit: Pending, stage: str) -> bool:
        """Finish a commit of any process: complete it if it succeeded, which is returned, and fence it otherwise.

        :raises CommitUnknownError: if the metastore does not reveal the outcome.
        """
        landed = self._has_landed(commit)
        if landed:
            self.complete(commit)
            self.clear(stage)
        else:
            self._give_up(commit, stage)
        return landed

    def _has_landed(self, commit: Pending) -> bool:
        """Return whether a commit succeeded; fences it first, because it may succeed until its guard is dropped."""
        return self._fence(commit) or self.find_mark(commit.version.token) is not None

    def _give_up(self, commit: Pending, stage: str) -> None:
        """Remove the pending commit from the table, and drop the partitions that it added."""
        self._end(commit, is_version=False)
        self.clear(stage)

    def _tidy(self, commit: Pending, drop: Callable[[], None]) -> None:
        """Record in the table that a commit succeeded, and drop its leftovers; on failure, maintenance does it."""
        try:
            self.complete(commit)
            drop()
        except (DynamicTableError, TException, OSError):
            log.exception("Version %s of %s landed, but could not be tidied up after.", commit.version.number, self._path)

    def landed(self, commit: Pending) -> bool:
        """Return whether a pending commit already succeeded."""
        guard_partition = self._guard(commit)
        if guard_partition is not None:
            return TOKEN in (guard_partition.parameters or {})
        return self.find_mark(commit.version.token) is not None

    def find_mark(self, token: str) -> Partition | Table | None:
        """Return a partition altered by the token's commit, or with its rows; the table itself if it is unpartitioned."""
        table = tables.load(self._metastore, self._path)
        if table is None:
            return None
        stage = tables.stage_of(tables.root(table), token)
        marked = self.partitions(table).values() if table.partitionKeys else (table,)
        return next((one for one in marked if (one.parameters or {}).get(TOKEN) == token or tables.is_read(one, stage)), None)

    def complete(self, commit: Pending) -> None:
        """Record in the table that a commit succeeded; idempotent."""
        self._end(commit, is_version=commit.version.number > 0)

    def clear(self, stage: str) -> None:
        """Drop the leftovers of a finished commit in its empty folder: partitions without rows, and guards."""
        table = tables.load(self._metastore, self._path)
        if table is None or not table.partitionKeys:
            return
        left = {values: one for values, one in self.partitions(table).items() if tables.left_by(table, one) == stage}
        guards = [values for values, one in left.items() if tables.GUARD in (one.parameters or {})]
        self._drop_guarded(table, stage, [values for values in left if values not in guards], guards)

    def _drop_guarded(self, table: Table, stage: str, others: Sequence[Values], guards: Sequence[Values]) -> None:
        """Drop partitions; each call includes a guard, so that of two concurrent callers only one drops them."""
        keys = _keys(table)
        for batch in batches(others, guards):
            self._drop(keys, batch)
        delete_folder(stage, f"{stage}/{tables.EMPTY}")

    def _add(self, shape: Table, commit: Pending, changes: PartitionChanges, stage: str) -> list[Values]:
        """Add the missing partitions and the guards."""
        empty = f"{stage}/{tables.EMPTY}"
        # Creates the folder where the file system needs one, and marks that it may have partitions.
        write_text(f"{empty}/_EMPTY", "")
        kinds = [field.type for field in shape.partitionKeys]
        guards = [commit.guard, *guards_to_drop(max(len(changes.missing), len(changes.emptied)), kinds)]
        added = [
            *(tables.partition(shape, values, empty) for values in changes.missing),
            *(tables.partition(shape, values, empty, **{tables.GUARD: "true"}) for values in guards),
        ]
        request = AddPartitionsRequest(*self._place, added, ifNotExists=False, needResult=False)
        self._metastore.call("add_partitions_req", request)
        return guards

    def _altered(self, shape: Table, commit: Pending, changes: PartitionChanges, stage: str) -> list[Partition]:
        """Return the partitions as of the commit, marked with its token."""
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
        """Record the commit as pending, provided that the table has not changed since it was read."""
        expected = table.parameters[REVISION]
        tables.set_pending(table, commit)
        self._metastore.alter_table(table, REVISION, expected)

    def _fence(self, commit: Pending) -> bool:
        """Prevent a commit from succeeding; return True if it already succeeded.

        A new table revision stops a commit without a guard; otherwise the guard is dropped.
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
            except TException as error:  # the commit went first in the metastore's database, or neither succeeded
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
        """Change the current table, unless ``change`` returns False."""
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
        """Drop all partitions atomically, or none if one is missing."""
        names = RequestPartsSpec(names=[partition_name(keys, values) for values in partitions])
        request = DropPartitionsRequest(*self._place, parts=names, deleteData=False, ifExists=False, needResult=False)
        try:
            self._metastore.ask("drop_partitions_req", request)
        except NoSuchObjectException:
            return  # dropped by another process

    @property
    def _place(self) -> tuple[str, str]:
        return self._path.database, self._path.name


def _words(error: TException) -> str:
    return str(getattr(error, "message", None) or error)


def _keys(table: Table) -> list[str]:
    return [field.name for field in table.partitionKeys]
