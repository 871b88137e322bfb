"""What a format must be able to do to be refreshed atomically (FLIP-305's StagedTable, plus ``outcome``).

A commit has three outcomes: it returns a version (landed), raises CommitRejectedError (surely not landed), or raises
CommitUnknownError. Only "surely not" may be followed by deleting files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

from airflow_dynamic_tables.clients.deleting import Deleted
from airflow_dynamic_tables.core.refresh.plan import RefreshResult
from airflow_dynamic_tables.core.sinks.sink import Sink
from airflow_dynamic_tables.core.tables.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.tables.retention import Retention
from airflow_dynamic_tables.core.tables.schema import Rebuild, TableLayout
from airflow_dynamic_tables.core.tables.type_limits import NO_LIMITS, TypeLimits
from airflow_dynamic_tables.core.tables.versions import Base, StreamPosition, Version
from airflow_dynamic_tables.exceptions import UnsupportedError, VersionNotFoundError
from airflow_dynamic_tables.formats.contents import RowCounts, TableContent
from airflow_dynamic_tables.formats.small_files import Compacted, Limits, PartitionFiles

_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """What a commit makes of a table: the rows that the job wrote instead of those of ``partitions``.

    ``partition_keys`` and ``comment`` are those of the definition. ``rebuild`` is what the commit may change of columns and
    partition keys that the rows do not fit, in the same step.
    ``data_timestamp`` is the time up to which the table is fresh now; ``None``, or one older than the table's, leaves it be.

    With ``follows`` nothing is replaced: the rows are added to those that the stream returned up to that position, and
    ``partitions`` are the ones that get some. ``position`` is how far the table is of a stream then; without it, of none.
    ``stage`` is the folder that the job was told to write to, when the caller knows it. Rows that complete those of a version
    name it as their ``base``; see :func:`~airflow_dynamic_tables.formats.commits.check_base`.
    """

    result: RefreshResult
    data_timestamp: datetime | None
    sources: Mapping[str, str] = field(default_factory=dict)
    partition_keys: tuple[str, ...] = ()
    partitions: PartitionSet = WHOLE_TABLE
    comment: str | None = None
    rebuild: Rebuild = Rebuild.NOTHING
    position: StreamPosition | None = None
    follows: StreamPosition | None = None
    stage: str = ""
    base: Base | None = None


@dataclass(frozen=True, slots=True)
class Undone:
    """A version that was committed, and that another engine took away again, or some of its partitions.

    ``how`` says what is known of that, after a comma, and ends with what goes on until the next refresh makes up for it;
    ``for_good`` is whether none does, before somebody has decided. ``partitions`` are those that have to be refreshed.
    """

    version: Version
    how: str
    for_good: bool = False
    partitions: PartitionSet = WHOLE_TABLE


class StagedTable(ABC):
    """The stage of one refresh of one table, known by its token. Every method is idempotent."""

    @abstractmethod
    def begin(self) -> str:
        """Prepare the stage; the URI of its folder, without a slash at the end, whose last part is the token."""

    def sink(self) -> Sink | None:
        """The table of a server that the job makes and writes into; ``None`` when it writes files below the stage's folder."""
        return None

    @abstractmethod
    def commit(self, request: CommitRequest, before_publish: Callable[[], None]) -> Version:
        """Make the stage visible in one step: metadata only, compare-and-swap, token recorded in the same step.

        ``before_publish`` is called after the current state of the table was read and before anything is published, once for
        every attempt; what it raises ends the commit. A commit that landed before returns its version again.

        :raises StageRejectedError: when the stage is not what the result says, or its schema is illegal.
        :raises CommitRejectedError: when it surely did not land, such as when the table is not where a stream's batch follows.
        :raises CommitUnknownError: when nobody knows.
        :raises UnsupportedError: when it is of a stream, and this format cannot add rows in one step.
        """

    def restore(self, number: int, before_publish: Callable[[], None], *, with_columns: bool = False) -> Version:  # noqa: ARG002
        """Make the content of a kept version current again, as a new version, in one step; otherwise as :meth:`commit`.

        The new version has this token, the next number, and the content, data timestamp and sources of the old one. The columns
        stay as they are now, and those that the old version did not have yet are null; unless columns and keys come back, too.

        :raises VersionNotFoundError: when that version is not kept; names those that are.
        :raises SchemaEvolutionError: when the columns of that version do not fit the table any more.
        """
        raise UnsupportedError(f"Version {number} cannot be restored: this format keeps no earlier versions.")

    def compact(self, partitions: PartitionSet, limits: Limits, before_publish: Callable[[], None]) -> Compacted | None:  # noqa: ARG002
        """Make few files of many small ones, in one step that is no version; otherwise as :meth:`commit`.

        :return: ``None`` when nothing could be made one, so that nothing was published.
        :raises StageRejectedError: when that cannot be done without changing a row.
        """
        raise UnsupportedError(f"The small files of {partitions} stay as they are: this format does not compact.")

    @abstractmethod
    def outcome(self) -> Version | None:
        """The version this token's commit made, looked up in the table's own metadata; ``None`` when it did not land.

        That the token is not there proves nothing: other engines make tables forget snapshots. A commit landed also when the
        table still refers to a file of the stage; its number is 0 when nobody knows it any more, or when it was a compaction,
        which is no version.

        :raises CatalogUnavailableError: when the metadata cannot be read.
        """

    @abstractmethod
    def fence(self) -> None:
        """Make sure that a commit of this token which is under way can no longer land, also when nothing was committed yet.

        :raises CommitRejectedError: when that cannot be made sure, which says nothing of the commit; then no file may be deleted.
        :raises CommitUnknownError: when nobody knows whether it was.
        """

    @abstractmethod
    def abort(self, location: str | None = None) -> None:
        """Delete the stage's files; missing ones are fine. Never called while the commit might still land.

        :param location: where :meth:`begin` said that the stage is, for formats that cannot tell any more when the table is gone.
        :raises ConflictError: when a format sees that the table reads them all the same; then they stay.
        """


class LoadedTable(ABC):
    """A table as one load found it, whether it exists or not: its catalog is asked once for all answers.

    The first question that needs more, such as the list of partitions, reads that, and it is kept. If the rows of the loaded
    version cannot be read any more by then, :meth:`read` returns a later version and names it. Every method may raise
    CatalogUnavailableError.
    """

    @abstractmethod
    def folder(self) -> str | None:
        """URI of the folder with all stages and files of the table, without a slash at the end; ``None`` when there is none."""

    @abstractmethod
    def current(self) -> Version | None:
        """The current version; ``None`` before the first commit."""

    @abstractmethod
    def layout(self) -> TableLayout | None:
        """What a refresh has to fit; ``None`` while every query does, before the first commit."""

    def undone(self) -> list[Undone]:
        """The versions whose rows are not the table's any more though no other version replaced them, oldest first.

        That can be where a table has no compare-and-swap that other engines use, too.
        """
        return []

    def position(self) -> StreamPosition | None:
        """How far the table is of the stream that its rows are of.

        ``None`` when they are of none: a refresh, a rollback or somebody else changed them since, as far as anybody knows.
        """
        return None

    @abstractmethod
    def versions(self) -> list[Version]:
        """All versions that are still kept, oldest first."""

    @abstractmethod
    def read(self, spark_name: str | None = None) -> TableContent:
        """The rows of the table, bound to its snapshot.

        :param spark_name: the name by which a catalog of Spark's own has it, if one is configured.
        :raises TableNotFoundError: when there is no such table, or nothing in it yet.
        :raises UnsupportedError: when reading its files alone would give wrong rows, and there is no other way.
        """

    @abstractmethod
    def count(self, partitions: PartitionSet) -> RowCounts | None:
        """Rows of the current version, without reading data.

        :param partitions: the ones of interest.
        :return: ``None`` when there is no version yet, or nobody counted its rows.
        """

    @abstractmethod
    def sample(self, rows: int, version: int | None = None) -> list[dict[str, Any]]:
        """The first rows of a version, of the current one when none is named.

        :raises TableNotFoundError: when there is no such table.
        :raises VersionNotFoundError: when that version is not kept; names those that are.
        """


def _of_loaded(
    question: Callable[Concatenate[LoadedTable, _Arguments], _Answer],
) -> Callable[Concatenate[LakeTable, _Arguments], _Answer]:
    """A method of a table that loads it for one question."""

    @wraps(question, updated=())  # its __dict__ says that it is abstract
    def ask(self: LakeTable, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Answer:
        answer: _Answer = getattr(self.load(), question.__name__)(*args, **kwargs)
        return answer

    return ask


class LakeTable(ABC):
    """A handle of one table that is refreshed here. Every method may raise CatalogUnavailableError.

    A format makes it of a store, the table's path and the format of its files. ``is_atomic`` is False when readers may see a part
    of a commit; then somebody has to say ``atomicity: none``. One that ``makes_entries`` cannot be made by another name than the
    one by which others will find it, and need not: the first commit makes it together with its entry in the catalog, see
    :meth:`once`. ``can_add`` is True when a commit can add rows in one step, as streams do. ``library`` in
    ``spark.sql.extensions``, or else the catalog, lets Spark read what files alone do not tell. ``limits`` are types and names
    that no column can have; a commit refuses them, too. ``remembers_undone`` says that :meth:`undone` has every version which
    another engine took away. Otherwise the table may know nothing of those that are later than the current one.
    """

    is_atomic: ClassVar[bool] = True
    makes_entries: ClassVar[bool] = False
    limits: ClassVar[TypeLimits] = NO_LIMITS
    can_add: ClassVar[bool] = False
    library: ClassVar[str] = ""
    remembers_undone: ClassVar[bool] = False

    @abstractmethod
    def stage(self, token: str) -> StagedTable:
        """The stage of one refresh; touches nothing yet."""

    def once(self, token: str, entry: Mapping[str, Any], *, is_new: bool) -> StagedTable:  # noqa: ARG002
        """The stage of a table that is made of a query once; touches nothing yet.

        Its commit also raises TableAlreadyExistsError: a table that is new is made only while nothing has its name.

        :param entry: what the catalog is to keep of the table, as it encodes it; for formats that ``makes_entries``.
        :param is_new: whether the commit makes the table; else it replaces one that was made so.
        """
        return self.stage(token)

    def check_makeable(self) -> None:  # noqa: B027 - where a catalog makes the entry, it tells
        """Check that a format that ``makes_entries`` can make the table, as far as anybody can tell before the first commit.

        :raises TableAlreadyExistsError: when its name is taken.
        :raises ConfigurationError: when something else keeps it from being made.
        """

    @abstractmethod
    def load(self) -> LoadedTable:
        """The table as it is now. Load it once to ask several questions about the same moment."""

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
        """Partitions with too many small files, those together that one compaction takes; none where it cannot compact.

        :param is_cheap: look only at what can be scattered since the last time.
        """
        return []

    def count_files(self, limits: Limits) -> list[PartitionFiles]:  # noqa: ARG002
        """How many files each partition has, and why some stay as they are; UnsupportedError when all do, which says why."""
        raise UnsupportedError("Its format keeps no version while files are replaced, so its files are not compacted.")

    def expire(
        self,
        retention: Retention,  # noqa: ARG002
        now: datetime,  # noqa: ARG002
        pinned: Callable[[], Collection[str]],  # noqa: ARG002
        least: int = 1,  # noqa: ARG002
    ) -> int:
        """Forget versions that are due; no file is deleted yet. Formats that keep one version have nothing to do.

        :param pinned: called after the table was read; gives tokens and snapshots of versions that stay, with all newer ones.
        :param least: nothing is forgotten while fewer snapshots are due.
        :return: how many snapshots are gone.
        """
        return 0

    def delete_orphans(self, before: datetime, held: Callable[[], Collection[str]]) -> Deleted:  # noqa: ARG002
        """Delete files below the table's location that nothing refers to and that have not changed since ``before``.

        :param held: called after the files were listed and before it is read what the table refers to, by a format with several
            versions also after that; gives folders of unfinished stages, of which nothing may be deleted, and what it raises
            ends the deletion before it began.
        """
        return Deleted()


def kept_version(versions: Iterable[Version], number: int, table: object) -> Version:
    """The version of that number.

    :raises VersionNotFoundError: when it is not among them; names those that are.
    """
    kept = {version.number: version for version in versions}
    if number not in kept:
        names = ", ".join(map(str, sorted(kept))) or "none"
        raise VersionNotFoundError(f"Version {number} of {table} is not kept (any more); kept are: {names}.")
    return kept[number]
