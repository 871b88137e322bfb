"""The commit of a compaction: partitions lead to other folders with the same rows, by the commit of a refresh without a version.

A folder is all that a partition leads to, so all of its files are written anew: small ones together, others and what lies beside
the rows (a marker of Spark's kind) as they are.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from hive_metastore.ttypes import Partition, Table

from airflow_dynamic_tables.clients.files import Entry, copy_file, list_entries, plain_path
from airflow_dynamic_tables.clients.metastore.tables import columns_of, partition_keys_of
from airflow_dynamic_tables.core.tables.data_files import partition_name
from airflow_dynamic_tables.core.tables.partitions import PartitionSet, describe
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, CommitRejectedError, StageRejectedError
from airflow_dynamic_tables.formats.commits import COMPACTION, until_done
from airflow_dynamic_tables.formats.data_files import count_rows
from airflow_dynamic_tables.formats.fingerprints import SameRows
from airflow_dynamic_tables.formats.hive import parameters as tables
from airflow_dynamic_tables.formats.hive.commits import Changes
from airflow_dynamic_tables.formats.hive.compaction.looking import Held, hold, partitions_of, token_of, why_held, why_not
from airflow_dynamic_tables.formats.hive.folders import folder_fingerprints
from airflow_dynamic_tables.formats.hive.guards import guard
from airflow_dynamic_tables.formats.hive.parameters import Pending
from airflow_dynamic_tables.formats.hive.records import write_replaced
from airflow_dynamic_tables.formats.hive.stage import HiveStagedTable
from airflow_dynamic_tables.formats.merging import Shape, merge, shape
from airflow_dynamic_tables.formats.small_files import Compacted, Limits, bundles

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Written:
    """A partition as it was read, and the folder that has its rows now; of its files some became few."""

    held: Held
    entries: Sequence[Entry]
    folder: str
    parameters: dict[str, str]
    compacted: Compacted


class CompactableStage(HiveStagedTable):
    """The stage of a refresh of a Hive table, or of a compaction."""

    def compact(self, partitions: PartitionSet, limits: Limits, before_publish: Callable[[], None]) -> Compacted | None:
        """See :meth:`~airflow_dynamic_tables.formats.base.StagedTable.compact`."""
        table = self._settled()
        self._check(table)
        held = hold(table, partitions_of(self._metastore, self._path, table))
        free = [one for one in held if partitions.covers(one.spec) and why_held(table, one, limits) is None]
        written = [done for one in free if (done := self._write(table, one, limits)) is not None]
        if not written:
            return None
        until_done(lambda: self._move(written, before_publish), self._path, "compacting")
        for done in written:
            if list_entries(done.held.folder) != done.entries:
                log.warning("%s was changed while it was compacted; what came is not in %s.", done.held.folder, self._path)
        return sum((done.compacted for done in written), Compacted())

    def _check(self, table: Table) -> None:
        """Check that a table may be compacted.

        :raises StageRejectedError: when it may not.
        """
        if why := why_not(table, self._format):
            raise StageRejectedError(f"{self._path} {why}, so it is not compacted.")

    def _write(self, table: Table, held: Held, limits: Limits) -> _Written | None:
        """Write the folder that is to take the place of another; ``None`` when nothing in it can be made one.

        :raises StageRejectedError: when a row would not be the same afterwards, or somebody else wrote in the folder.
        """
        entries = _entries(held)  # first: what changes after this look is noticed by another one
        (held,) = hold(table, {held.values: held.one})
        sizes = held.sizes
        rows = dict(zip(held.files, count_rows(list(held.files), self._format), strict=True))
        if sum(rows.values()) != int(held.one.parameters[tables.ROWS]):
            raise StageRejectedError(
                f"{held.folder} holds {sum(rows.values())} rows, and the metastore says {held.one.parameters[tables.ROWS]}: "
                "somebody else wrote there."
            )

        def kind(file: str) -> Shape | None:
            known = shape(file) if rows[file] else None
            return known if known is not None and known.can_be_merged else None

        small = [file for file, size in sizes.items() if size < limits.small]
        together = bundles(small, sizes.__getitem__, kind, replace(limits, most=limits.whole))
        if not together:
            return None
        name = partition_name(partition_keys_of(table), held.values)
        folder = "/".join(filter(None, (tables.data_of(self.begin()), name)))
        for number, bundle in enumerate(together):
            merge(bundle, f"{folder}/{self._token}-{number}.parquet")
        merged = [file for bundle in together for file in bundle]
        paths = {plain_path(file) for file in merged}
        for entry in entries:
            if entry.path not in paths and not entry.path.endswith(".crc"):
                file_name = entry.path.rpartition("/")[2]
                copy_file(f"{held.folder}/{file_name}", f"{folder}/{file_name}")
        compacted = Compacted(len(merged), len(together), sum(sizes[file] for file in merged))
        return _Written(held, entries, folder, self._parameters(table, held, folder), compacted)

    def _parameters(self, table: Table, held: Held, folder: str) -> dict[str, str]:
        """What a partition is to say of a folder; what it does not say of files stays as it is.

        :raises StageRejectedError: when the folder has not as many rows as it is to have.
        """
        (after,) = hold(table, {held.values: _at(held.one, folder)})
        rows = sum(count_rows(list(after.files), self._format))
        if rows != int(held.one.parameters[tables.ROWS]):
            raise StageRejectedError(f"{folder} has {rows} rows, and {held.folder} has {held.one.parameters[tables.ROWS]}.")
        name = describe(held.spec)
        (before,) = folder_fingerprints([(held.folder, held.spec)], held.files).values()
        known = SameRows.read_in(held.one.parameters)
        is_known = known is not None and known.after == before
        same = SameRows(
            token=self._token,
            of=token_of(held.one) or "",
            location=known.location if known is not None and is_known else held.one.sd.location,
            before=known.before if known is not None and is_known else before,
            after=folder_fingerprints([(folder, held.spec)], after.files)[name],
        )
        counted = {"numFiles": str(len(after.files)), "totalSize": str(sum(after.sizes.values()))}
        told = {name: value for name, value in counted.items() if name in held.one.parameters}
        return {COMPACTION: same.to_parameter(), **told}

    def _move(self, written: Sequence[_Written], before_publish: Callable[[], None]) -> bool | None:
        """Let partitions lead to their new folders; ``None`` when the table is to be read again.

        :raises CommitRejectedError: when somebody replaced or changed what was read.
        """
        table = self._settled()
        if self._commits.find_mark(self._token) is not None:
            return True
        self._check(table)
        now = partitions_of(self._metastore, self._path, table)
        for done in written:
            one = now.get(done.held.values)
            if one is None or not _is_same(one, done.held.one) or list_entries(done.held.folder) != done.entries:
                raise CommitRejectedError("Some of the rows were replaced meanwhile, so nothing is compacted.")
        expected = tables.revision(table)
        replaced = tuple(done.held.one.sd.location for done in written)
        write_replaced(self.begin(), replaced)
        moved = [_at(now[done.held.values], done.folder, done.parameters) for done in written]
        before_publish()
        try:
            if not table.partitionKeys:
                (whole,) = moved
                tables.renew(whole)
                return self._alter(whole, expected) or None
            kinds = [field.type for field in table.partitionKeys]
            none = Version(0, self._token, self._token, None, datetime.now(UTC))
            pending = Pending(none, columns_of(table), None, guard(kinds), len(moved))
            changes = Changes({}, frozenset(), frozenset(), replaced, tuple(moved))
            return self._commits.publish(table, pending, changes, self.begin()) or None
        except CatalogUnavailableError as error:
            return self._looked_up(error) is not None or None


def _entries(held: Held) -> list[Entry]:
    """Everything in a folder.

    :raises StageRejectedError: when there is more than files in it.
    """
    entries = list_entries(held.folder)
    strange = next((entry for entry in entries if entry.is_folder or entry.is_link), None)
    if strange is not None:
        raise StageRejectedError(f"{strange.path} lies among the files of a partition: somebody else writes there.")
    return entries


def _is_same(one: Table | Partition, before: Table | Partition) -> bool:
    """Whether a partition still has the rows and files that it had."""
    kept = (one.parameters.get(COMPACTION), one.parameters.get(tables.ROWS))
    was = (before.parameters.get(COMPACTION), before.parameters.get(tables.ROWS))
    return (token_of(one), one.sd.location, kept) == (token_of(before), before.sd.location, was)


def _at(one: Table | Partition, folder: str, parameters: dict[str, str] | None = None) -> Table | Partition:
    """A partition, or a table that has none, in another folder."""
    moved = copy.deepcopy(one)
    moved.sd.location = folder
    moved.parameters = {**moved.parameters, **(parameters or {})}
    return moved
