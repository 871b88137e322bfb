"""Verification: partitions are computed again for the versions that they were made of, and compared with the table.

The rows are staged as those of a refresh, but the stage is compared and deleted. It yields to all other writes of the table.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from itertools import chain
from uuid import uuid4

from airflow_dynamic_tables.clients.files import exists
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partition_dates import normalised
from airflow_dynamic_tables.core.partition_transforms import plain_keys
from airflow_dynamic_tables.core.partitions import NULL_PARTITION, PartitionSet, describe, parse_spec
from airflow_dynamic_tables.core.refresh.expectations import Action, ExpectationResult
from airflow_dynamic_tables.core.refresh.plan import BoundTime, Drift, RefreshPlan, SourceBinding
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode, RefreshAction
from airflow_dynamic_tables.core.refresh.source_changes import MadePartitions, SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import (
    ConflictError,
    DriftError,
    DynamicTableError,
    JobFailedError,
    NotFoundError,
    StageRejectedError,
    UnsupportedError,
    UpstreamError,
)
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState, Stage
from airflow_dynamic_tables.services.queries import inline_views
from airflow_dynamic_tables.services.refresh.compared_stages import Submit, compared_stage
from airflow_dynamic_tables.services.refresh.comparison import Comparison
from airflow_dynamic_tables.services.refresh.frozen_partitions import frozen_at
from airflow_dynamic_tables.services.refresh.planning import Bound, bind_query, bind_sources
from airflow_dynamic_tables.services.refresh.preview import statement
from airflow_dynamic_tables.services.tables.rollback import note_undone
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace

_Spec = Mapping[str, str]


NOT_VERIFIABLE = (UnsupportedError, UpstreamError, NotFoundError)
"""Errors of tables that cannot be verified, or not yet, whatever is tried again."""


class PartitionVerdict(StrEnum):
    """The result of the verification of a partition."""

    EQUAL = "EQUAL"
    DRIFT = "DRIFT"
    UNVERIFIED = "UNVERIFIED"
    """It cannot be verified."""
    FAILED = "FAILED"
    """It may be verified another time; this time, its computation failed."""


@dataclass(frozen=True, slots=True)
class RandomSample:
    """At most some partitions, chosen at random by ``seed``; ``None`` is all of them."""

    most: int | None
    seed: int

    def chosen(self, _: TableIdentifier, partitions: Sequence[_Spec]) -> Sequence[_Spec]:
        """Return the partitions of the sample."""
        if self.most is None or self.most >= len(partitions):
            return partitions
        return random.Random(self.seed).sample(partitions, self.most)

    def __str__(self) -> str:
        return f"with seed {self.seed}"


@dataclass(frozen=True, slots=True)
class DailySample:
    """The partitions whose turn is on ``day``: each has one turn in ``cycle`` days, whatever other partitions there are."""

    day: date
    cycle: int

    def chosen(self, table: TableIdentifier, partitions: Sequence[_Spec]) -> Sequence[_Spec]:
        """Return the partitions of the sample."""
        turn = self.day.toordinal() % self.cycle
        return [spec for spec in partitions if self._number(table, spec) % self.cycle == turn]

    @staticmethod
    def _number(table: TableIdentifier, spec: _Spec) -> int:
        return int.from_bytes(hashlib.sha256(f"{table}/{describe(spec)}".encode()).digest()[:8])

    def __str__(self) -> str:
        return f"for {self.day.isoformat()}"


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """A request to verify a ``sample`` of the partitions of a table."""

    table: DynamicTable
    sources: Mapping[TableIdentifier, Source]
    sample: RandomSample | DailySample


@dataclass(frozen=True, slots=True)
class VerifiedPartition:
    """A partition of a table and what its query returned for the versions that the partition was made of."""

    table: str
    partition: str
    """Empty: the complete table."""
    version: int | None
    """The version whose refresh made it."""
    verdict: PartitionVerdict
    rows: int | None = None
    """Rows of the table."""
    missing: int | None = None
    """Rows that the query returns and the table does not have."""
    extra: int | None = None
    """Rows that the table has and the query does not return."""
    reason: str = ""
    """Why it is not verified."""

    def __str__(self) -> str:
        name = self.partition or "the complete table"
        if self.verdict in (PartitionVerdict.UNVERIFIED, PartitionVerdict.FAILED):
            return f"{name} is not verified: {self.reason}"
        return f"{name}: rows missing: {self.missing}, extra: {self.extra}"


@dataclass(frozen=True, slots=True)
class _Way:
    """A way to compute partitions: the time of the query, and the sources to read at earlier versions as they changed since."""

    times: tuple[BoundTime, ...]
    recorded: tuple[tuple[str, str], ...]


_Made = tuple[_Spec, Refresh]
"""A partition and the refresh that made it."""


@dataclass(slots=True)
class _Verification:
    workspace: Workspace
    request: VerifyRequest
    table: DynamicTable
    registered: RegisteredTable
    submit: Submit
    on_lost: Callable[[], None] | None
    made: MadePartitions = field(init=False)

    def __post_init__(self) -> None:
        """Read which refreshes made the partitions."""
        self.made = self.workspace.ledger.made_partitions(self.table.identifier)

    def run(self) -> list[VerifiedPartition]:
        """Verify the chosen partitions."""
        bound = bind_query(self.workspace, self.table, bind_sources(self.workspace, self.table, self.request.sources))
        if why := bound.at(self.workspace.now()).why_it_varies:
            raise UnsupportedError(_refusal(self.table, why))
        comparison = Comparison(self.workspace, self.registered, bound, self.request.sources)
        is_daily = isinstance(self.request.sample, DailySample)
        frozen = frozen_at(self.workspace, self.table, self.registered, self.workspace.now()) if is_daily else None
        found: list[VerifiedPartition] = []
        ways: dict[_Way, list[_Made]] = {}
        for spec in self._chosen(comparison):
            refresh = self.workspace.ledger.get_refresh(self.made.token(spec) or "")
            if frozen is not None and frozen.include(spec):
                found.append(self._unverified(spec, refresh, f"it is frozen ({self.table.frozen})"))
            elif NULL_PARTITION in spec.values():
                found.append(self._unverified(spec, None, "its key is null, which no refresh writes"))
            elif refresh is None:
                found.append(self._unverified(spec, None, "the refresh that made it is not known"))
            elif (then := bound.at(refresh.schedule_time)).recipe != refresh.recipe:
                found.append(self._unverified(spec, refresh, f"its definition changed since version {refresh.version}"))
            else:
                recorded = _recorded(comparison, refresh, spec)
                ways.setdefault(_Way(then.times, recorded), []).append((spec, refresh))
        for way, specs in ways.items():
            found += self._computed(way, specs, comparison, bound)
        return sorted(found, key=lambda one: one.partition)

    def _chosen(self, comparison: Comparison) -> Sequence[_Spec]:
        """Return the partitions of the sample, among those that the table has or had."""
        keys = plain_keys(self.table.partition_keys)
        own = comparison.own_change_since(self.made.token({}))
        gone = own.affected.specs(keys) if own is not None else None
        more = (*(gone or ()), *self.registered.loaded.held_partitions())
        partitions = self.made.specs(keys, comparison.now, more) or [{}]
        return self.request.sample.chosen(self.table.identifier, partitions)

    def _computed(self, way: _Way, made: Sequence[_Made], comparison: Comparison, current: Bound) -> list[VerifiedPartition]:
        """Verify the partitions that are computed in one way, by one job.

        :param current: the query with its sources as they are now.
        """
        recorded: list[SourceBinding] = []
        try:
            sources = bind_sources(self.workspace, self.table, self.request.sources, recorded=dict(way.recorded))
            recorded = [source for source in sources if source.identifier in dict(way.recorded)]
            _check_same(recorded, made, comparison)
            bound = replace(bind_query(self.workspace, self.table, sources), times=way.times)
            return self._verified(made, self._drift(made, bound))
        except ConflictError:
            raise
        except (DynamicTableError, ValueError) as error:
            why, verdict = str(error).removesuffix("."), PartitionVerdict.FAILED
            if isinstance(error, (*NOT_VERIFIABLE, ValueError)):
                verdict = PartitionVerdict.UNVERIFIED
            elif gone := _deleted(recorded, current.sources):
                why, verdict = f"files of {gone.identifier} at version {gone.version} are deleted", PartitionVerdict.UNVERIFIED
            return [self._unverified(spec, refresh, why, verdict) for spec, refresh in made]

    def _drift(self, made: Sequence[_Made], bound: Bound) -> tuple[Drift, ...]:
        """Stage the rows of partitions, and return how those of the table differ.

        :raises ConflictError: if the partitions are being refreshed, or a refresh of them begins meanwhile.
        """
        identifier = self.table.identifier
        partitions = PartitionSet.of(spec for spec, _ in made)
        with compared_stage(self.workspace, self.registered, partitions, self.submit, self.on_lost) as stage:
            now = self.workspace.ledger.made_partitions(identifier)
            if any(now.token(spec) != refresh.token for spec, refresh in made):
                raise ConflictError(f"{identifier} was refreshed while it was verified; verify it again.")
            drift = stage.run(self._plan(stage.stage, bound, made[0][1])).drift
            if drift is None:
                raise StageRejectedError(f"the job of {identifier} compared nothing; Spark runs another release of this package.")
            return drift

    def _plan(self, stage: Stage, bound: Bound, refresh: Refresh) -> RefreshPlan:
        table = self.table
        (own,) = bind_sources(self.workspace, replace(table, upstream=(table.identifier,)), {})
        why = (RefreshAction.VERIFY, f"verification of {stage.partitions.brief}")
        return replace(
            bound.plan(stage.token, refresh.schedule_time, why, self.workspace.settings.allowed, stage.location),
            statement=statement(table.expanded_query, stage.partitions),
            partitions=stage.partitions,
            layout=self.registered.loaded.layout(),
            limits=self.registered.lake_table.limits,
            expectations=tuple(one for one in table.expectations if one.action is Action.DROP),
            compares=own,
            float_tolerance=table.float_tolerance,
        )

    def _unverified(
        self, spec: _Spec, refresh: Refresh | None, why: str, verdict: PartitionVerdict = PartitionVerdict.UNVERIFIED
    ) -> VerifiedPartition:
        version = refresh.version if refresh is not None else None
        return VerifiedPartition(str(self.table.identifier), describe(spec), version, verdict, reason=why)

    def _verified(self, made: Sequence[_Made], drift: Sequence[Drift]) -> list[VerifiedPartition]:
        """Return the verified partitions.

        :raises ValueError: if Spark names partitions otherwise than the table.
        """
        found: list[VerifiedPartition] = []
        unnamed = list(drift)
        for spec, refresh in made:
            normal = next(iter(normalised(PartitionSet.of([spec]), self.registered.columns))) if spec else {}
            own = [one for one in unnamed if normal.items() <= one.partition.items()]
            unnamed = [one for one in unnamed if one not in own]
            rows, missing, extra = (sum(getattr(one, name) for one in own) for name in ("rows", "missing", "extra"))
            verdict = PartitionVerdict.DRIFT if missing or extra else PartitionVerdict.EQUAL
            told = (describe(spec), refresh.version, verdict, rows, missing, extra)
            found.append(VerifiedPartition(str(self.table.identifier), *told))
        if unnamed:
            raise ValueError(f"Spark found rows of {describe(unnamed[0].partition)}, which the table names otherwise")
        return found


def verify(
    workspace: Workspace, request: VerifyRequest, submit: Submit, on_lost: Callable[[], None] | None = None
) -> list[VerifiedPartition]:
    """Compute partitions of a table again, for the versions that they were made of, and compare them with the table.

    Nothing is published. The history gets one record with the result, if the sample has partitions.

    :param submit: runs the job of a plan to its end and raises if it failed.
    :param on_lost: called from another thread if a refresh takes precedence; it should stop the job.
    :raises UnsupportedError: if the query may return other rows each time, or the table or a source is a stream.
    :raises UpstreamError: if the table has no version.
    :raises ConflictError: if chosen partitions are being refreshed, or a refresh of them begins meanwhile.
    """
    registered = workspace.look_up(request.table.identifier)
    table = inline_views(workspace, request.table, request.sources)
    if why := _obstacle(table, request.sources):
        raise UnsupportedError(_refusal(table, why))
    if note_undone(workspace, registered) is None:
        raise UpstreamError(f"{table.identifier} has no version yet; refresh it first.")
    started = workspace.now()
    with workspace.catalogs.holding_sources():
        found = _Verification(workspace, request, table, registered, submit, on_lost).run()
    if not found:
        return found
    workspace.ledger.record(
        Refresh(
            token=f"verification-{uuid4()}",
            table=table.identifier,
            action=RefreshAction.VERIFY,
            reason=summary(found, request.sample),
            reason_code=_code(found),
            state=RefreshState.SKIPPED,
            schedule_time=started,
            started_at=started,
            finished_at=workspace.now(),
            partitions=PartitionSet.of(parse_spec(one.partition) if one.partition else {} for one in found),
            expectations=tuple(map(_as_result, found)),
        )
    )
    return found


def verify_turn(
    workspace: Workspace,
    table: DynamicTable,
    sources: Mapping[TableIdentifier, Source],
    day: date,
    submit: Submit,
    on_lost: Callable[[], None] | None = None,
) -> list[VerifiedPartition]:
    """Verify the partitions of a table whose turn is on a day, see its ``verify_every``. Frozen ones are not verified.

    :raises UnsupportedError: see :func:`verify`, as for UpstreamError and ConflictError.
    """
    if table.verify_every is None:
        raise UnsupportedError(f"{table.identifier} has no 'verify_every', so no partition has a turn.")
    return verify(workspace, VerifyRequest(table, sources, DailySample(day, table.verify_every.days)), submit, on_lost)


def check_verified(table: DynamicTable, found: Sequence[VerifiedPartition]) -> None:
    """Check the result of a verification. Partitions that cannot be verified are no error.

    :raises DriftError: if partitions are not as the query returns them.
    :raises JobFailedError: if a computation failed.
    """
    if drift := [one for one in found if one.verdict is PartitionVerdict.DRIFT]:
        raise DriftError(f"{table.identifier} is not as its query returns it: {_shortened(drift)}. {_repair(table, drift)}")
    if failed := next((one for one in found if one.verdict is PartitionVerdict.FAILED), None):
        raise JobFailedError(f"{table.identifier}: {failed}.")


_NAMED = 5
"""Maximum number of partitions that a message names."""


def _shortened(drift: Sequence[VerifiedPartition]) -> str:
    more = f"; and {len(drift) - _NAMED} more partitions" if len(drift) > _NAMED else ""
    return "; ".join(map(str, drift[:_NAMED])) + more


def _repair(table: DynamicTable, drift: Sequence[VerifiedPartition]) -> str:
    options = [f"--partition {one.partition}" if one.partition else "--full-refresh" for one in drift[:_NAMED]]
    return f"The history has all of them. Repair: dynamic-tables refresh {table.identifier} {' '.join(options)}"


def summary(found: Sequence[VerifiedPartition], sample: RandomSample | DailySample) -> str:
    """Return the result of a verification as a sentence without a full stop."""
    counts = {verdict: sum(one.verdict is verdict for one in found) for verdict in PartitionVerdict}
    named = ", ".join(f"{verdict.lower()}: {count}" for verdict, count in counts.items() if count)
    return f"partitions verified {sample}: {named}"


def _code(found: Sequence[VerifiedPartition]) -> ReasonCode:
    verdicts = {one.verdict for one in found}
    if PartitionVerdict.DRIFT in verdicts:
        return ReasonCode.DRIFT
    return ReasonCode.EQUAL if verdicts == {PartitionVerdict.EQUAL} else ReasonCode.UNVERIFIED


def _as_result(one: VerifiedPartition) -> ExpectationResult:
    violations = 0 if one.verdict is PartitionVerdict.EQUAL else max((one.missing or 0) + (one.extra or 0), 1)
    return ExpectationResult(one.partition or "complete table", "verify", violations, str(one))


def _refusal(table: DynamicTable, why: str) -> str:
    return f"{table.identifier} cannot be verified: {why}."


def _obstacle(table: DynamicTable, sources: Mapping[TableIdentifier, Source]) -> str | None:
    if table.is_continuous:
        return "it is refreshed continuously, and only the newest partitions are compared"
    read = [sources[name] for name in table.upstream if name in sources]
    if watched := next((source for source in read if source.watermark is not None or source.event_time is not None), None):
        return f"{watched.identifier} has a watermark, which decided what each refresh read"
    return None


def _check_same(recorded: Sequence[SourceBinding], made: Sequence[_Made], comparison: Comparison) -> None:
    """Check that versions with the recorded numbers are those of the tables that were read, not of others of their names.

    :raises UnsupportedError: if not.
    """
    for source in recorded:
        for _, refresh in made:
            read = comparison.state_read(source, refresh.token)
            if read is None or source.state is None or (read.identity, read.location) != _identity(source.state):
                raise UnsupportedError(f"version {source.version} of {source.identifier} is not the one that was read")


def _identity(state: SourceState) -> tuple[str | None, str | None]:
    return (state.identity, state.location)


def _deleted(recorded: Sequence[SourceBinding], current: Sequence[SourceBinding]) -> SourceBinding | None:
    """Return a source with deleted files, although its metadata still has the version; ``None`` if there is none."""
    present = {file for source in current for file in _files(source)}
    return next((source for source in recorded if not all(file in present or exists(file) for file in _files(source))), None)


def _files(source: SourceBinding) -> Iterator[str]:
    return chain.from_iterable(part.files for part in source.every_part)


def _recorded(comparison: Comparison, refresh: Refresh, spec: _Spec) -> tuple[tuple[str, str], ...]:
    """Return the sources that a partition needs at the versions that its refresh read, because they changed since."""
    changes = [change for change in comparison.changes_since(refresh.token) if change.affected.include(spec)]
    return tuple(sorted((change.source, refresh.sources.get(change.source, "")) for change in changes))
