"""Compaction of Hive tables: partitions with too many small files, and why some partitions are not compacted.

Buckets, sorted rows, and folders and files not written by a refresh are not compacted.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from hive_metastore.ttypes import Partition, Table

from airflow_dynamic_tables.clients.files import FileEntry, copy_file, list_entries, plain_path
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.metastore.tables import (
    SCHEMA,
    SNAPSHOT,
    columns_of,
    file_uri,
    format_of,
    is_transactional,
    partition_keys_of,
)
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import PartitionSet, describe
from airflow_dynamic_tables.core.schema import partition_name
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, CommitRejectedError, StageRejectedError
from airflow_dynamic_tables.formats.commits import COMPACTION, TOKEN, until_done
from airflow_dynamic_tables.formats.data_files import count_rows
from airflow_dynamic_tables.formats.fingerprints import SameRows
from airflow_dynamic_tables.formats.hive import parameters as tables
from airflow_dynamic_tables.formats.hive.commits import HiveCommits, PartitionChanges, Values, guard
from airflow_dynamic_tables.formats.hive.folders import Files, folder_fingerprints, list_folders
from airflow_dynamic_tables.formats.hive.parameters import Pending
from airflow_dynamic_tables.formats.hive.records import undone, write_replaced
from airflow_dynamic_tables.formats.hive.stage import HiveStagedTable
from airflow_dynamic_tables.formats.merging import Shape, merge, shape
from airflow_dynamic_tables.formats.small_files import Compacted, Limits, PartitionFiles, bundles, rounds

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HeldPartition:
    """A partition, or an unpartitioned table, and the files in its folder."""

    values: Values
    spec: Mapping[str, str]
    one: Table | Partition
    folder: str
    files: Files

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file, by URI."""
        return {file: int(info["size"]) for file, info in self.files.items()}


def partitions_of(metastore: Metastore, path: ObjectPath, table: Table) -> dict[Values, Table | Partition]:
    """Return the partitions with rows, by their values; an unpartitioned table counts as one, without values."""
    if not table.partitionKeys:
        return {(): table}
    partitions = HiveCommits(metastore, path).partitions(table)
    return {values: one for values, one in partitions.items() if not tables.left_in(table, one.sd.location)}


def hold(table: Table, partitions: Mapping[Values, Table | Partition]) -> list[HeldPartition]:
    """List the folders of partitions.

    :raises CatalogUnavailableError: if a folder does not exist or cannot be listed.
    """
    keys = partition_keys_of(table)
    specs = {values: dict(zip(keys, values, strict=True)) for values in partitions}
    folders = {values: file_uri(one.sd.location).rstrip("/") for values, one in partitions.items()}
    files: dict[str, dict[str, Mapping[str, object]]] = {}
    for file, info in list_folders((folders[values], specs[values]) for values in partitions).files.items():
        files.setdefault(file.rpartition("/")[0], {})[file] = info
    return [
        HeldPartition(values, specs[values], one, folders[values], files.get(folders[values], {}))
        for values, one in partitions.items()
    ]


def scattered(metastore: Metastore, path: ObjectPath, file_format: str, limits: Limits, *, is_cheap: bool) -> list[PartitionSet]:
    """See :meth:`~airflow_dynamic_tables.formats.base.LakeTable.scattered`; the cheap way only checks the last version."""
    table = tables.load(metastore, path)
    if table is None or why_not(table, file_format) is not None:
        return []
    partitions = partitions_of(metastore, path, table)
    if is_cheap:
        last = tables.versions(table)[-1].token
        new = {values for values, one in partitions.items() if token_of(one) == last and not SameRows.read_in(one.parameters)}
        partitions = {values: partitions[values] for values in new}
    try:
        held = hold(table, partitions)
    except CatalogUnavailableError as error:
        log.warning("Small files of %s stay as they are: %s", path, error)
        return []
    free = (one for one in held if why_held(table, one, limits) is None)
    return rounds(((one.spec, size) for one in free for size in one.sizes.values()), limits)


def count_files(table: Table, partitions: Mapping[Values, Table | Partition], limits: Limits) -> list[PartitionFiles]:
    """See :meth:`~airflow_dynamic_tables.formats.base.LakeTable.count_files`."""
    counted: list[PartitionFiles] = []
    for one in hold(table, partitions):
        sizes = one.sizes.values()
        small = sum(size < limits.small for size in sizes)
        is_due = small > limits.many
        why = why_held(table, one, limits)
        counted.append(PartitionFiles(one.spec, len(sizes), small, sum(sizes), is_due, why))
    return counted


def why_not(table: Table, file_format: str) -> str | None:
    """Return why a table cannot be compacted; ``None`` if it can."""
    reasons: Iterable[tuple[str, Callable[[], object]]] = (
        ("has no version yet", lambda: not tables.versions(table)),
        ("has files of format ORC, of which Arrow would lose what Spark notes of their types", lambda: file_format == "orc"),
        ("has another format than its definition", lambda: format_of(table) != file_format),
        ("is transactional", lambda: is_transactional(table)),
        ("is bucketed or sorted, which files made of several would not be", lambda: _is_ordered(table)),
        ("was changed by another engine, which took its last version away", lambda: undone(table) is not None),
    )
    return next((why for why, applies in reasons if applies()), None)


def why_held(table: Table, held: HeldPartition, limits: Limits) -> str | None:
    """Return why a partition cannot be compacted; ``None`` if it can."""
    one = held.one
    size = sum(held.sizes.values())
    if token_of(one) is None or not tables.is_below(one.sd.location, f"{tables.root(table)}/{tables.VERSIONS}"):
        return "no refresh wrote its files"
    if tables.torn(table, [one]):
        return "another engine gave it another folder"
    if (one.sd.inputFormat, one.sd.serdeInfo.serializationLib) != (table.sd.inputFormat, table.sd.serdeInfo.serializationLib):
        return "it is stored in another way than its table"
    if _is_ordered(one):
        return "it is bucketed or sorted"
    if not one.parameters.get(tables.ROWS, "").isdecimal():
        return "another engine took away how many rows it has"
    if size > limits.whole:
        return f"it has {size:,} bytes, and a Hive folder is rewritten completely, which is limited to {limits.whole:,}"
    return None


def token_of(one: Table | Partition) -> str | None:
    """Return the token of the version that wrote the rows of a partition or unpartitioned table."""
    token: str | None = (one.parameters or {}).get(TOKEN if isinstance(one, Partition) else SNAPSHOT)
    return token


def _is_ordered(one: Table | Partition) -> bool:
    """Return whether the rows are bucketed, sorted or skewed."""
    stored = one.sd
    told = one.parameters or {}
    spark = (told.get(f"{SCHEMA}.{kind}", "0") for kind in ("numBuckets", "numSortCols"))
    is_skewed = stored.skewedInfo is not None and bool(stored.skewedInfo.skewedColNames)
    return (stored.numBuckets or 0) > 0 or bool(stored.bucketCols or stored.sortCols) or is_skewed or any(n != "0" for n in spark)


@dataclass(frozen=True, slots=True)
class _Written:
    """A compacted partition: its state before, and its new folder."""

    held: HeldPartition
    entries: Sequence[FileEntry]
    folder: str
    parameters: dict[str, str]
    compacted: Compacted


class CompactableStage(HiveStagedTable):
    """The stage of a refresh or a compaction of a Hive table."""

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
        """Check that a table can be compacted."""
        if why := why_not(table, self._format):
            raise StageRejectedError(f"{self._path} {why}, so it is not compacted.")

    def _write(self, table: Table, held: HeldPartition, limits: Limits) -> _Written | None:
        """Write the new folder of a partition; return ``None`` if no files can be merged."""
        entries = _entries(held)  # listed first, so that later changes are detected by the second listing
        (held,) = hold(table, {held.values: held.one})
        sizes = held.sizes
        rows = dict(zip(held.files, count_rows(list(held.files), self._format), strict=True))
        if sum(rows.values()) != int(held.one.parameters[tables.ROWS]):
            raise StageRejectedError(
                f"{held.folder} holds {sum(rows.values())} rows, and the metastore says {held.one.parameters[tables.ROWS]}: "
                "another program wrote there."
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

    def _parameters(self, table: Table, held: HeldPartition, folder: str) -> dict[str, str]:
        """Return the parameters to change for a new folder: the record of the compaction, and existing file statistics.

        :raises StageRejectedError: if the folder does not contain the expected number of rows.
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
        """Move partitions to their new folders; return ``None`` if the table has to be read again.

        :raises CommitRejectedError: if others replaced or changed the compacted files.
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
            changes = PartitionChanges({}, frozenset(), frozenset(), replaced, tuple(moved))
            return self._commits.publish(table, pending, changes, self.begin()) or None
        except CatalogUnavailableError as error:
            return self._looked_up(error) is not None or None


def _entries(held: HeldPartition) -> list[FileEntry]:
    """List all entries of a folder."""
    entries = list_entries(held.folder)
    strange = next((entry for entry in entries if entry.is_folder or entry.is_link), None)
    if strange is not None:
        raise StageRejectedError(f"{strange.path} is among the files of a partition: another program writes there.")
    return entries


def _is_same(one: Table | Partition, before: Table | Partition) -> bool:
    kept = (one.parameters.get(COMPACTION), one.parameters.get(tables.ROWS))
    was = (before.parameters.get(COMPACTION), before.parameters.get(tables.ROWS))
    return (token_of(one), one.sd.location, kept) == (token_of(before), before.sd.location, was)


def _at(one: Table | Partition, folder: str, parameters: dict[str, str] | None = None) -> Table | Partition:
    """Return a copy of a partition, or an unpartitioned table, with another location."""
    moved = copy.deepcopy(one)
    moved.sd.location = folder
    moved.parameters = {**moved.parameters, **(parameters or {})}
    return moved
