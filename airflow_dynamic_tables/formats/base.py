"""Interfaces of table formats: tables, their stages, and their content."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

from airflow_dynamic_tables.clients.files import Deleted
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import NO_PARTITIONS, WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.conditions import ColumnRange
from airflow_dynamic_tables.core.refresh.key_joins import Key
from airflow_dynamic_tables.core.refresh.plan import RefreshResult, SourceBinding, SourcePart
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.schema import Rebuild, TableLayout
from airflow_dynamic_tables.core.sinks import Sink
from airflow_dynamic_tables.core.types import NO_LIMITS, TypeLimits
from airflow_dynamic_tables.core.versions import Base, Retention, StreamPosition, Version
from airflow_dynamic_tables.exceptions import UnsupportedError, VersionNotFoundError
from airflow_dynamic_tables.formats.small_files import Compacted, Limits, PartitionFiles

NO_VERSIONS = "its format keeps no earlier versions"

ChangedFiles = dict[str, list[dict[str, ColumnRange]]]
"""Files that were added or removed, each with the ranges of its columns, by names in lower case; grouped by partition."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A Parquet file of one version of a table, with the text of its partition.

    ``values`` are those of partition keys that replace columns of the file, ``ranges`` are those of some columns, by names in
    lower case. Rows that are ``deleted``, by their positions, are not rows of the version.
    """

    uri: str
    partition: str = ""
    values: Mapping[str, str | None] = field(default_factory=dict)
    ranges: Mapping[str, ColumnRange] = field(default_factory=dict)
    deleted: tuple[int, ...] = ()


class ScanLimitError(UnsupportedError):
    """Reading these files would take too long, or too much memory."""


class KeyScan(ABC):
    """Reads keys from data files, without Spark. One scan reads at most a certain number of rows, by all its calls together."""

    @abstractmethod
    def changed(
        self, before: Collection[ListedFile], after: Collection[ListedFile], types: Mapping[str, str], keys: Sequence[str]
    ) -> set[Key]:
        """Return the keys of the rows in which two versions of a table differ, as multisets. Keys with a null are omitted.

        :param types: the compared columns, which include the keys, with their types; names in lower case.
        :raises ScanLimitError: if there are too many.
        :raises UnsupportedError: if a column has a type that is not compared.
        :raises CatalogUnavailableError: if a file cannot be read.
        """

    @abstractmethod
    def holding(
        self, files: Collection[ListedFile], types: Mapping[str, str], wanted: Collection[Key]
    ) -> Mapping[Key, frozenset[str]]:
        """Return the partitions that may have rows with each of some keys.

        :param types: the columns of the key, in its order, with their types; otherwise like :meth:`changed`.
        """


@dataclass(frozen=True, slots=True)
class TableContent:
    """One snapshot of a table as files: Spark reads exactly ``files`` with ``schema`` (DDL), by column name.

    ``format`` is the file format. With ``base_path``, the ``partition_keys`` are in Hive-style folder names below it; otherwise
    all columns are in the files. Files without a common base folder are also in ``parts``. With ``table``, Spark reads the
    snapshot by that name, or at that location, with a library of its own. ``state`` is compared by later refreshes.
    """

    snapshot: str
    files: tuple[str, ...] = ()
    schema: str | None = None
    format: str = "parquet"
    base_path: str | None = None
    partition_keys: tuple[str, ...] = ()
    parts: tuple[SourcePart, ...] = ()
    table: str | None = None
    state: SourceState | None = None

    def bound(self, identifier: TableIdentifier, view: str) -> SourceBinding:
        """Return the binding of this content for a job that reads it as ``view``."""
        return SourceBinding(
            identifier=str(identifier),
            view=view,
            format=self.format,
            version=self.snapshot,
            files=() if self.parts else self.files,
            base_path=self.base_path,
            schema=self.schema,
            partition_keys=self.partition_keys,
            table=self.table,
            parts=self.parts,
            state=self.state,
        )


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Row counts of a version: ``replaced`` rows of the requested partitions, and how many requested specs have rows (``held``).

    ``total`` counts the rows of all ``partitions``; an unpartitioned table has one partition.
    """

    replaced: int
    held: int
    total: int
    partitions: int

    @classmethod
    def of(cls, files: Iterable[tuple[Mapping[str, str | None], int]], asked: PartitionSet) -> RowCounts:
        """Aggregate the row counts of files by partition."""
        rows: Counter[tuple[tuple[str, str | None], ...]] = Counter()
        for spec, count in files:
            if count:
                rows[tuple(spec.items())] += count
        replaced = 0
        held: set[frozenset[tuple[str, str | None]]] = set()
        for partition, count in rows.items():
            covering = asked.covering(dict(partition))
            held |= {frozenset(spec.items()) for spec in covering}
            replaced += count if covering else 0
        return cls(replaced, len(held), rows.total(), len(rows))


_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """A commit: the rows written by the job replace those of ``partitions``.

    With ``follows`` or ``adds_to``, rows are only added.
    """

    result: RefreshResult
    data_timestamp: datetime | None
    """New data timestamp of the table; ``None``, or an older one than the table's, leaves it unchanged."""

    sources: Mapping[str, str] = field(default_factory=dict)
    partition_keys: tuple[str, ...] = ()
    """Partition keys of the definition."""

    partitions: PartitionSet = WHOLE_TABLE
    """Partitions to replace; with ``follows``, those that get rows."""

    comment: str | None = None
    """Comment of the definition."""

    rebuild: Rebuild = Rebuild.NOTHING
    """Incompatible changes of columns and partition keys that the commit may make in the same step."""

    position: StreamPosition | None = None
    """New position of the table in a stream; ``None`` for rows of no stream."""

    follows: StreamPosition | None = None
    """Stream position that the table must have; the rows are added to those returned up to it."""

    adds_to: str | None = None
    """Snapshot of the table that the rows are added to; with any other one, the commit is rejected."""

    stage: str = ""
    """Folder assigned to the job, if the caller knows it."""

    base: Base | None = None
    """Version that the rows complete; see :func:`~airflow_dynamic_tables.formats.commits.check_base`."""

    @property
    def replaced(self) -> PartitionSet:
        """The partitions whose rows are removed."""
        return NO_PARTITIONS if self.adds_to is not None or self.follows is not None else self.partitions


@dataclass(frozen=True, slots=True)
class Undone:
    """A committed version that another engine undid, completely or for some partitions.

    ``how`` describes it, as a text after a comma that ends with the consequence until the next refresh repairs it. ``for_good``
    is whether no refresh repairs it without a user's decision. ``partitions`` have to be refreshed.
    """

    version: Version
    how: str
    for_good: bool = False
    partitions: PartitionSet = WHOLE_TABLE


class StagedTable(ABC):
    """The stage of one refresh of a table, identified by its token. All methods are idempotent."""

    @abstractmethod
    def begin(self) -> str:
        """Prepare the stage, and return the URI of its folder without a trailing slash; its last segment is the token."""

    def sink(self) -> Sink | None:
        """Return the server table that the job creates and writes to; ``None`` if it writes files to the stage's folder."""
        return None

    @abstractmethod
    def commit(self, request: CommitRequest, before_publish: Callable[[], None]) -> Version:
        """Publish the stage atomically: a metadata-only compare-and-swap that also records the token.

        ``before_publish`` is called on every attempt, after the current state of the table is read and before anything is
        published; an exception from it aborts the commit. A repeated commit returns the same version.

        :raises StageRejectedError: if the stage differs from the job's result, or its schema is invalid.
        :raises CommitRejectedError: if it certainly failed, for example because the table is not at the position that a stream's
            batch follows.
        :raises CommitUnknownError: if the outcome is unknown.
        :raises UnsupportedError: if it is of a stream, and this format cannot add rows atomically.
        """

    def restore(self, number: int, before_publish: Callable[[], None], *, with_columns: bool = False) -> Version:  # noqa: ARG002
        """Restore the content of a kept version as a new version, atomically; otherwise like :meth:`commit`.

        The new version has this token, the next number, and the content, data timestamp and sources of the old one. The current
        columns are kept, and are null where the old version lacks them, unless columns and keys are restored, too.

        :raises VersionNotFoundError: if that version is not kept; names those that are.
        :raises SchemaEvolutionError: if the columns of that version are incompatible with the table.
        """
        raise UnsupportedError(f"Version {number} cannot be restored: this format keeps no earlier versions.")

    def compact(self, partitions: PartitionSet, limits: Limits, before_publish: Callable[[], None]) -> Compacted | None:  # noqa: ARG002
        """Merge small files atomically, without a new version; otherwise like :meth:`commit`.

        :return: ``None`` if no files could be merged, so that nothing was published.
        :raises StageRejectedError: if files cannot be merged without changing a row.
        """
        raise UnsupportedError(f"The small files of {partitions} stay as they are: this format does not compact.")

    @abstractmethod
    def outcome(self) -> Version | None:
        """Return the version committed with this token, from the table's own metadata; ``None`` if it did not succeed.

        A missing token proves nothing, because other engines expire snapshots. A commit also succeeded if the table still refers
        to a file of the stage. Its number is 0 if unknown, or for a compaction, which is not a version.

        :raises CatalogUnavailableError: if the metadata cannot be read.
        """

    @abstractmethod
    def fence(self) -> None:
        """Ensure that a running commit with this token can no longer succeed, even before the first commit.

        :raises CommitRejectedError: if this cannot be ensured; the commit may still succeed, and no file may be deleted.
        :raises CommitUnknownError: if the outcome is unknown.
        """

    def reopen(self) -> None:  # noqa: B027
        """Let a later commit with this token succeed after :meth:`fence`, because the stage returns to quarantine.

        A commit that was running when it was fenced still cannot succeed. Idempotent; formats whose fence stops running commits
        only need nothing.

        :raises CommitRejectedError: if this cannot be ensured.
        """

    @abstractmethod
    def abort(self, location: str | None = None) -> None:
        """Delete the stage's files, if any. Never called while the commit might still succeed.

        :param location: the folder returned by :meth:`begin`, for formats that cannot determine it for a dropped table.
        :raises ConflictError: if the table refers to the files, so they are kept.
        """


class LoadedTable(ABC):
    """A table as loaded once, whether it exists or not: all methods use the same response of its catalog.

    Further metadata, such as the list of partitions, is read on first use and kept. If the rows of the loaded version can no
    longer be read by then, :meth:`read` returns a later version and names it. Every method may raise CatalogUnavailableError.
    """

    @abstractmethod
    def folder(self) -> str | None:
        """Return the URI of the folder with all stages and files, without a trailing slash; ``None`` if there is none."""

    def keeps_files(self) -> str | None:
        """Return why none of its committed files may be deleted, as the end of a sentence; ``None`` if they may."""
        return None

    @abstractmethod
    def current(self) -> Version | None:
        """Return the current version; ``None`` before the first commit."""

    @abstractmethod
    def layout(self) -> TableLayout | None:
        """Return the layout that the next refresh has to match; ``None`` before the first commit, when any query is accepted."""

    def undone(self) -> list[Undone]:
        """Return the versions whose rows were lost without being replaced by another version, oldest first.

        This happens in formats without a compare-and-swap that other engines use as well.
        """
        return []

    def position(self) -> StreamPosition | None:
        """Return the table's position in a stream.

        ``None`` if its rows are of no stream: a refresh, a rollback or others changed them since, as far as is known.
        """
        return None

    @abstractmethod
    def versions(self) -> list[Version]:
        """Return all kept versions, oldest first."""

    @abstractmethod
    def read(self, spark_name: str | None = None) -> TableContent:
        """Return the rows of the table, bound to its snapshot.

        :param spark_name: its name in a Spark catalog, if one is configured.
        :raises TableNotFoundError: if the table does not exist or has no version yet.
        :raises UnsupportedError: if reading its files alone would return wrong rows, and there is no other way.
        """

    def state(self, recorded: SourceState | None) -> SourceState | None:  # noqa: ARG002
        """Return the state of the rows of :meth:`read`, which raises the same errors.

        :param recorded: an earlier one, with its partitions; the files are not listed if the table is certainly still in it.
        """
        return self.read().state

    def read_at(self, snapshot: str, spark_name: str | None = None) -> TableContent:  # noqa: ARG002
        """Return the rows of the table at an earlier snapshot; otherwise like :meth:`read`.

        :raises VersionNotFoundError: if the table does not have that snapshot any more.
        """
        raise UnsupportedError(NO_VERSIONS)

    def changed_files(self, columns: Collection[str], since: SourceState, now: SourceState) -> ChangedFiles:  # noqa: ARG002
        """Return the files that differ between two states, see :func:`~airflow_dynamic_tables.formats.registry.changed_files`."""
        raise UnsupportedError(NO_VERSIONS)

    def list_files(self, columns: Collection[str], state: SourceState) -> list[ListedFile]:  # noqa: ARG002
        """Return the files of a version, see :func:`~airflow_dynamic_tables.formats.registry.list_files`."""
        raise UnsupportedError(NO_VERSIONS)

    def held_partitions(self) -> list[dict[str, str]]:
        """Return the partitions with rows, as far as the state of :meth:`read` does not list them."""
        return []

    @abstractmethod
    def count(self, partitions: PartitionSet) -> RowCounts | None:
        """Count the rows of the current version without reading data.

        :return: ``None`` if there is no version yet, or its row counts are unknown.
        """

    @abstractmethod
    def sample(self, rows: int, version: int | None = None) -> list[dict[str, Any]]:
        """Return the first rows of a version, by default the current one.

        :raises TableNotFoundError: if the table does not exist.
        :raises VersionNotFoundError: if that version is not kept; names those that are.
        """


def _of_loaded(
    question: Callable[Concatenate[LoadedTable, _Arguments], _Answer],
) -> Callable[Concatenate[LakeTable, _Arguments], _Answer]:
    @wraps(question, updated=())  # its __dict__ marks it as abstract
    def ask(self: LakeTable, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Answer:
        answer: _Answer = getattr(self.load(), question.__name__)(*args, **kwargs)
        return answer

    return ask


class LakeTable(ABC):
    """A table that is refreshed here. Every method may raise CatalogUnavailableError.

    A format creates it from a store, the table's path and the format of its files.
    """

    is_atomic: ClassVar[bool] = True
    """False if readers may see a partial commit; the definition then has to set ``atomicity: none``."""

    makes_entries: ClassVar[bool] = False
    """Whether the first commit creates the table together with its catalog entry, see :meth:`once`.

    Required if the table cannot be created under another name than the final one.
    """

    limits: ClassVar[TypeLimits] = NO_LIMITS
    """Types and names that columns cannot have; a commit rejects them, too."""

    can_add: ClassVar[bool] = False
    """Whether a commit can add rows atomically, as streams do."""

    library: ClassVar[str] = ""
    """Name in ``spark.sql.extensions`` of a library by which Spark reads tables that cannot be read from files alone.

    If empty, a Spark catalog does this.
    """

    remembers_undone: ClassVar[bool] = False
    """Whether :meth:`undone` returns every version undone by another engine.

    Otherwise the table may not record versions later than the current one.
    """

    @abstractmethod
    def stage(self, token: str) -> StagedTable:
        """Return the stage of one refresh; reads and writes nothing yet."""

    def once(self, token: str, entry: Mapping[str, Any], *, is_new: bool) -> StagedTable:  # noqa: ARG002
        """Return the stage of a one-off table; reads and writes nothing yet.

        Its commit also raises TableAlreadyExistsError: a new table is created only if its name is free.

        :param entry: the encoded catalog entry of the table, for formats with ``makes_entries``.
        :param is_new: whether the commit creates the table; otherwise it replaces a one-off table.
        """
        return self.stage(token)

    def check_makeable(self) -> None:  # noqa: B027 - only for makes_entries
        """Check before the first commit, as far as possible, that a format with ``makes_entries`` can create the table.

        :raises TableAlreadyExistsError: if its name is taken.
        :raises ConfigurationError: if it cannot be created for another reason.
        """

    @abstractmethod
    def load(self) -> LoadedTable:
        """Load the current table. Use one load for several calls that have to be consistent."""

    folder = _of_loaded(LoadedTable.folder)
    current = _of_loaded(LoadedTable.current)
    layout = _of_loaded(LoadedTable.layout)
    undone = _of_loaded(LoadedTable.undone)
    position = _of_loaded(LoadedTable.position)
    versions = _of_loaded(LoadedTable.versions)
    read = _of_loaded(LoadedTable.read)
    count = _of_loaded(LoadedTable.count)
    sample = _of_loaded(LoadedTable.sample)

    def scattered(self, limits: Limits, *, is_cheap: bool = False) -> list[PartitionSet]:  # noqa: ARG002
        """Return partitions with too many small files, grouped by compaction; empty if the format cannot compact.

        :param is_cheap: whether to check only changes since the last compaction.
        """
        return []

    def count_files(self, limits: Limits) -> list[PartitionFiles]:  # noqa: ARG002
        """Count the files of each partition, with the reasons why some are not compacted.

        :raises UnsupportedError: if the table cannot be compacted; states the reason.
        """
        raise UnsupportedError("Its format keeps no version while files are replaced, so its files are not compacted.")

    def expire(
        self,
        retention: Retention,  # noqa: ARG002
        now: datetime,  # noqa: ARG002
        pinned: Callable[[], Collection[str]],  # noqa: ARG002
        least: int = 1,  # noqa: ARG002
    ) -> int:
        """Expire versions that are due, without deleting files. Formats that keep one version do nothing.

        :param pinned: called after the table is read; returns tokens and snapshots of versions to keep with all newer ones.
        :param least: the minimum number of due snapshots; with fewer, none expire.
        :return: the number of expired snapshots.
        """
        return 0

    def delete_orphans(self, before: datetime, held: Callable[[], Collection[str]]) -> Deleted:  # noqa: ARG002
        """Delete files below the table's location that are not referenced and have not changed since ``before``.

        :param held: returns the folders of unfinished stages, which are not deleted. Called after listing the files and before
            reading what the table refers to; formats with several versions call it again after that. An exception from it aborts
            the deletion before it begins.
        """
        return Deleted()


def kept_version(versions: Iterable[Version], number: int, table: object) -> Version:
    """Return the version with a number.

    :raises VersionNotFoundError: if it is not among them; names those that are.
    """
    kept = {version.number: version for version in versions}
    if number not in kept:
        names = ", ".join(map(str, sorted(kept))) or "none"
        raise VersionNotFoundError(f"Version {number} of {table} is not kept (any more); kept are: {names}.")
    return kept[number]


@dataclass(frozen=True, slots=True)
class Increment:
    """The rows added to a table.

    ``binding`` reads exactly these rows, and its state is what has been read afterwards; ``None`` if there are none. ``ended``
    states why previously read rows have changed, so that a new stream is required. ``waiting`` states which changes cannot be
    read yet, and ``late`` lists partitions that arrived or changed after their window was closed. All texts have no full stop.
    ``bytes`` is the size of the added files, ``None`` if it is not known.
    """

    binding: SourceBinding | None = None
    ended: str = ""
    waiting: str = ""
    late: tuple[str, ...] = ()
    bytes: int | None = None


def why_another(since: SourceState, now: SourceState) -> str:
    """Return why a table is not the one read before; empty if it is."""
    if since.identity != now.identity:
        return "it was dropped and recreated"
    return "its columns changed" if since.schema != now.schema else ""
