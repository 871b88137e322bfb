"""Lifecycle of one refresh for all front ends: begin, run the job, check the rows, commit or abort.

Its steps can be traced, see :mod:`airflow_dynamic_tables.core.refresh.steps`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from uuid import NAMESPACE_URL, uuid5

from airflow_dynamic_tables.catalog.values import Asked
from airflow_dynamic_tables.clients.files import make_private_folders, write_text
from airflow_dynamic_tables.core.formats import FORMATS
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import describe
from airflow_dynamic_tables.core.refresh.expectations import Action, ExpectationResult
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult, SourceBinding, named_times
from airflow_dynamic_tables.core.refresh.reasons import Reason, ReasonCode
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import (
    CommitRejectedError,
    ConflictError,
    DynamicTableError,
    EmptyBatchError,
    ExpectationError,
    OvertakenError,
    QuarantinedError,
    UnsupportedError,
)
from airflow_dynamic_tables.formats.registry import check_read, needs_read_check
from airflow_dynamic_tables.ledger.base import Refresh, RefreshChanges, RefreshState, ReportState, Stage
from airflow_dynamic_tables.services.lifecycle.registration import ensure
from airflow_dynamic_tables.services.outcomes import Operation
from airflow_dynamic_tables.services.refresh.catching_up import is_unbroken
from airflow_dynamic_tables.services.refresh.change_detection import record_skip, skip, what_remains
from airflow_dynamic_tables.services.refresh.planning import ToDo, Why, bind_inputs, plan
from airflow_dynamic_tables.services.refresh.preview import not_schedulable
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped, action_of, overtaken
from airflow_dynamic_tables.services.source_progress import Growth
from airflow_dynamic_tables.services.tables.rollback import forget_after_commit, note_undone
from airflow_dynamic_tables.services.tables.source_reads import fresh_until
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace
from airflow_dynamic_tables.services.writes.dropped_rows import forget_after_failures, keep_dropped_rows, stage_dropped_rows
from airflow_dynamic_tables.services.writes.owner_markers import write_marker
from airflow_dynamic_tables.services.writes.protocol import StagedWrite, finishing, new_stage, open_write, preparing
from airflow_dynamic_tables.services.writes.publishing import publish_stage, read_result, record_state, versions_read
from airflow_dynamic_tables.services.writes.quarantine import supersede

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to fulfil a request, or a part of it: ``to_do``, which was determined when the table had version ``since``."""

    request: RefreshRequest
    registered: RegisteredTable
    write: StagedWrite
    plan: RefreshPlan
    to_do: ToDo
    since: Version | None = None

    @property
    def stage(self) -> Stage:
        """The attempt's row in the ledger."""
        return self.write.stage

    def rest(self, made: Version) -> ToDo | None:
        """Return the work of the next commit; ``None`` if this was the last."""
        if self.to_do.later.is_empty:
            return None
        is_next = made.number == (self.since.number if self.since is not None else 0) + 1
        return self.to_do.following(made.token if is_next else None, self.request.table)


def run(
    workspace: Workspace,
    request: RefreshRequest,
    submit: Callable[[RefreshPlan], object],
    on_lost: Callable[[], None] | None = None,
) -> Version | Skipped:
    """Refresh a table: begin, ``submit`` the job and wait for it, commit; abort on any error.

    If the missed ticks or the partitions are too many for one commit, there are several, each with its own stage and token,
    oldest first. The listeners of the workspace receive the outcome of each. All commits of an incremental refresh read the same
    versions of the sources, unless another process commits in between.

    :param submit: runs the job of a plan to its end and raises if it failed.
    :param on_lost: called from another thread if the stage was lost; it should stop the job.
    :return: the last version, or why nothing, or nothing more, was done.
    """
    with workspace.catalogs.holding_sources():
        return _run(workspace, request, submit, on_lost)


def _run(
    workspace: Workspace,
    request: RefreshRequest,
    submit: Callable[[RefreshPlan], object],
    on_lost: Callable[[], None] | None,
) -> Version | Skipped:
    reached: datetime | None = None
    rest: ToDo | None = None
    asked = request
    while True:
        begun = begin(workspace, asked, rest)
        asked, rest = request, None
        if isinstance(begun, Skipped):
            outcome: Version | Skipped = begun
            up_to = begun.up_to
        else:
            outcome = finish(workspace, begun, submit, on_lost)
            if isinstance(outcome, Version):
                rest = begun.rest(outcome)
            if rest is not None:
                asked = replace(begun.request, token=request.token)
                continue
            # If inputs lag behind, the remaining ticks are too early as well.
            has_ended = isinstance(outcome, Skipped) or begun.request.complete_until is not None
            up_to = None if has_ended else begun.request.schedule_time
        if up_to is None or up_to >= request.schedule_time or up_to == reached:
            return outcome
        log.info("%s has its ticks up to %s now.", request.table.identifier, up_to.isoformat())
        reached = up_to


def finish(
    workspace: Workspace, begun: Attempt, submit: Callable[[RefreshPlan], object], on_lost: Callable[[], None] | None
) -> Version | Skipped:
    """Complete :func:`run` after the refresh has begun."""
    with finishing(begun.write, on_lost):
        with begun.write.step("spark"):
            submit(begun.plan)
        outcome = commit(workspace, begun)
    if isinstance(outcome, Version):
        table = begun.request.table
        if begun.write.outcome.has_record:
            if table.skip_unchanged and begun.request.batch is None:
                record_state(workspace, begun.registered, begun.plan, outcome)
            supersede(workspace, table.identifier)
        forget_after_commit(workspace, begun.registered, table.retention)
        if table.keep_dropped is not None:
            forget_after_failures(workspace, table.identifier, outcome.token, table.keep_dropped)
    return outcome


def begin(workspace: Workspace, request: RefreshRequest, rest: ToDo | None = None) -> Attempt | Skipped:
    """Take the lease, bind the sources and write the plan beside the stage.

    :param rest: the work that earlier commits of the refresh left; it is determined again if there was another commit since.
    :return: the attempt, or why there is none: the table is suspended or already fresher, no partitions were requested, or its
        inputs have not changed.
    :raises UnsupportedError: if its scheduler cannot refresh it, or the format cannot be staged and this was not accepted.
    :raises ConflictError: if a live owner refreshes some of the same partitions.
    :raises UpstreamError: if a parent has no version yet.
    :raises ConfigurationError: if a partition value does not fit its column.
    :raises SchemaEvolutionError: if the partition keys of the table differ from its definition.
    """
    if obstacle := not_schedulable(request.table):
        raise UnsupportedError(f"{request.table.identifier}: {obstacle}.")
    trace(Step.BEGIN, request.token)
    since = time.monotonic()
    # Checked first, so that an unsupported format is refused without side effects.
    lake_table = workspace.table(request.table.identifier, request.table.format, request.table.atomicity)
    entry, _ = ensure(workspace, request.table, Asked.FORCED_REFRESH if request.force else Asked.REFRESH)
    registered = RegisteredTable(request.table.identifier, entry, lake_table)
    if not request.force and (suspended := registered.why_suspended):
        return skip(workspace, request, Reason(ReasonCode.SUSPENDED, suspended))
    current = note_undone(workspace, registered)  # first, because the following steps rely on the history
    if rest is None or not rest.is_based_on(current):
        request, remaining = what_remains(workspace, request, registered, current)
        if isinstance(remaining, Skipped):
            return remaining
        rest = _divided(workspace, request, remaining, current)
    to_do = rest
    if not to_do.later.is_empty:  # the last commit has the token of the request
        made = current.token if current is not None else "none"
        request = replace(request, token=str(uuid5(NAMESPACE_URL, f"{request.token}/after {made}")))
    staged = registered.lake_table.stage(request.token)
    held = new_stage(workspace, registered, request.token, request.owner, staged.begin())
    stage = replace(held, partitions=to_do.partitions, search=to_do.search)
    write = open_write(workspace, Operation.REFRESH, stage, staged)
    with preparing(write), write.step("begin", since=since):
        registered = _still_registered(workspace, registered)
        planned = prepare(workspace, request, registered, write, to_do)
    return planned if isinstance(planned, Skipped) else Attempt(request, registered, write, planned, to_do, current)


def _divided(workspace: Workspace, request: RefreshRequest, to_do: ToDo, current: Version | None) -> ToDo:
    """Return the work of the first commit. If others follow, the sources are bound now, for all of them."""
    if request.table.max_partitions_per_commit is None:
        return to_do
    first = to_do.divided(request.table)
    if first.later.is_empty or to_do.bound_since(current) is not None:
        return first
    bound = bind_inputs(workspace, request, to_do.partitions, to_do.growth)
    return replace(first, bound=bound, base=current.token if current is not None else None)


def _still_registered(workspace: Workspace, registered: RegisteredTable) -> RegisteredTable:
    """Return the table as it is under the lease; from now on it cannot be dropped.

    :raises ConflictError: if it was dropped while the refresh began.
    """
    entry = workspace.find_entry(registered.identifier)
    if entry is None:
        raise ConflictError(f"{registered.identifier} was dropped while this refresh began; nothing was done.")
    return RegisteredTable(registered.identifier, entry, registered.lake_table)


def prepare(
    workspace: Workspace, request: RefreshRequest, registered: RegisteredTable, write: StagedWrite, to_do: ToDo
) -> RefreshPlan | Skipped:
    """Bind the sources and write the plan beside a stage that was just opened. On an error, the caller aborts the stage."""
    # The current version is read under the lease: from now on no other refresh can commit these partitions.
    stage = write.stage
    current = _newest(workspace, request, registered)
    growth = to_do.growth
    if growth is not None and growth.base != (current.token if current is not None else None):
        raise ConflictError(f"{stage.table} changed while its sources were looked at; the next try reads them again.")
    action, reason = action_of(request, stage.partitions, current, merges=to_do.merging_since(current) is not None)
    reason = to_do.explained(reason)
    write.note(action=action, left=to_do.left if request.searches else None)
    if growth is not None:
        log_progress(growth)
    skipped = overtaken(request, stage.partitions, current, fresh_until(workspace, current))
    workspace.ledger.record(_line(workspace, request, stage, growth, current, (action, reason)))
    make_folder(workspace, stage, registered)
    if skipped is not None:
        write.skip(skipped.reason)
        return skipped
    planned = plan(write, request, registered, (action, reason), to_do)
    if request.table.keep_dropped is not None:
        planned = stage_dropped_rows(workspace, request.table, planned, stage.opened_at)
    workspace.ledger.update_refresh(
        stage.token,
        sources=versions_read(planned),
        referenced={reference.identifier: reference.version for reference in planned.references},
        recipe=planned.recipe or "",
        source_bytes=_size_of(planned.sources),
    )
    workspace.ledger.record_source_states(stage.table, stage.token, _states(planned.sources, planned.references))
    write_text(planned.plan_location, planned.to_json(), private=workspace.settings.private_files)
    log_plan(planned)
    trace(Step.PLANNED, request.token)
    return planned


def _states(sources: Sequence[SourceBinding], references: Sequence[SourceBinding]) -> dict[str, SourceState]:
    """Return the states of the sources, and those of other tables that expectations refer to without their partitions.

    Changes of the latter cause no refresh.
    """
    read = {source.identifier: source.state for source in sources if source.state is not None}
    others = {one.identifier: replace(one.state, partitions=None) for one in references if one.state is not None}
    return {**others, **read}


def _size_of(sources: Sequence[SourceBinding]) -> int | None:
    """Return the bytes of all files of sources, also of those that are not read; ``None`` if they are not known."""
    sizes = [source.state.sizes if source.state is not None else None for source in sources]
    return sum(sum((of_source or {}).values()) for of_source in sizes) if sizes and None not in sizes else None


def _newest(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable) -> Version | None:
    """Return the current version, after recording undone versions. A draft of CREATE TABLE AS has none to record."""
    registered.reload()
    return registered.current() if request.is_one_off else note_undone(workspace, registered)


def _line(
    workspace: Workspace, request: RefreshRequest, stage: Stage, growth: Growth | None, current: Version | None, why: Why
) -> Refresh:
    action, reason = why
    return Refresh(
        token=stage.token,
        table=stage.table,
        action=action,
        reason=reason.text,
        reason_code=reason.code,
        state=RefreshState.RUNNING,
        schedule_time=request.schedule_time,
        started_at=stage.opened_at,
        partitions=stage.partitions,
        report=ReportState.DUE if request.is_reported else None,
        unbroken=is_unbroken(workspace, request, stage.partitions, current) if growth is None else True,
        complete_until=request.complete_until,
        watermark=growth.reached_at if growth is not None else None,
    )


def make_folder(workspace: Workspace, stage: Stage, registered: RegisteredTable) -> None:
    """Create the folder of a table that is in a server, and write the owner marker."""
    folder = registered.loaded.folder()
    if FORMATS[stage.format].in_server and workspace.settings.private_files and folder is not None:
        make_private_folders(stage.location, folder)  # its files are copies of rows that only the server may expose
    write_marker(workspace, registered)


def commit(workspace: Workspace, attempt: Attempt) -> Version | Skipped:
    """Check the job's result and publish the stage atomically; idempotent by token.

    :return: the version, or why there is none: the table is already fresher, or a stream batch has no rows.
    :raises StageRejectedError: if there is no result, or it differs from the plan, or it violates an expectation.
    :raises QuarantinedError: if a decision by a person is required.
    :raises CommitRejectedError: if the commit certainly did not land, or the job may have read other rows than planned.
    :raises CommitUnknownError: if it is unknown whether the commit landed.
    """
    write, planned = attempt.write, attempt.plan
    trace(Step.COMMIT, planned.token)
    result = read_result(planned)
    log_result(planned, result)
    write.wrote(result)
    wrote: RefreshChanges = {
        "rows": result.rows,
        "bytes": result.bytes,
        "files": len(result.files),
        "application_id": result.application_id,
    }
    try:
        with write.step("commit"):
            _check_reads(workspace, planned)
            check(workspace, attempt, result)
            refuse_empty(planned, result)
            still_fits = partial(_check_not_overtaken, workspace, attempt)
            version = write.publish(partial(publish_stage, write.staged, planned, result), still_fits, wrote)
    except OvertakenError as error:
        return _skipped(workspace, attempt, Reason(ReasonCode.ALREADY_FRESH, str(error)))
    except EmptyBatchError as error:
        return _skipped(workspace, attempt, Reason(ReasonCode.NOTHING_TO_REFRESH, str(error)), is_empty=True)
    write.landed(version)
    return version


def _check_reads(workspace: Workspace, planned: RefreshPlan) -> None:
    """Check that the job read the planned version of each source.

    :raises CommitRejectedError: if it may have read other rows.
    """
    for source in (*planned.sources, *planned.references) if planned.stream is None else ():
        if needs_read_check(source.format):
            check_read(source, workspace.readable(TableIdentifier.parse(source.identifier).catalog).stores())


def _check_not_overtaken(workspace: Workspace, attempt: Attempt) -> None:
    """Check that the table has not become fresher than this refresh would make it.

    The commit has read the state that it replaces before this check; a newer version is detected here, and also refused by the
    table's atomic swap.

    :raises OvertakenError: if it has.
    :raises CommitRejectedError: if its rows were compared with those of an earlier version.
    """
    newest = _newest(workspace, attempt.request, attempt.registered)
    stands_on = attempt.plan.stands_on
    if attempt.plan.compared is not None and (newest is None or stands_on is None or newest.token != stands_on.token):
        raise CommitRejectedError(
            f"{attempt.request.table.identifier} got another version while this refresh compared its rows with other partitions; "
            "nothing was committed, refresh again."
        )
    if skipped := overtaken(attempt.request, attempt.stage.partitions, newest, fresh_until(workspace, newest)):
        raise OvertakenError(skipped.reason.text)


def _skipped(workspace: Workspace, attempt: Attempt, reason: Reason, *, is_empty: bool = False) -> Skipped:
    """End a refresh that turned out at commit to have nothing to do.

    :param is_empty: whether a stream batch has no rows; then the current version is valid up to it.
    """
    token = attempt.stage.token
    try:
        attempt.write.skip(reason)
        if is_empty:
            refresh = workspace.ledger.get_refresh(token)
            counted = refresh is not None and refresh.expectations  # above all, counts of late rows
            record_skip(workspace, attempt.request, reason, _held(attempt), instead_of="" if counted else token)
    except (DynamicTableError, OSError):
        log.exception("Could not abort stage %s; the next refresh or sweep does it.", token)
    return Skipped(reason)


def _held(attempt: Attempt) -> Version | None:
    """Return the last version of the stream, which also has all rows up to an empty batch; ``None`` before the first batch."""
    current = attempt.registered.reload().current()
    goes_on = attempt.plan.follows is not None and current is not None and current.snapshot == attempt.plan.base
    return current if goes_on else None


_MOST_EMPTY = 10
"""Limit of empty partitions named in the log, because a backfill of years would fill it."""


def log_progress(growth: Growth) -> None:
    """Log late and removed partitions of sources with a watermark."""
    if growth.late:
        log.warning("%s partitions came, or changed, after their time was over: %s", len(growth.late), ", ".join(growth.late))
    for name, one in growth.sources.items():
        if one.batch.gone:
            log.info("%s partitions of %s are gone; rows of them stay: %s", len(one.batch.gone), name, ", ".join(one.batch.gone))


def log_plan(planned: RefreshPlan) -> None:
    """Log the action, its reason, and the version of every source."""
    time = planned.schedule_time.isoformat()
    log.info("Refresh of %s for %s: %s, %s.", planned.identifier, time, planned.action, planned.reason)
    for source in planned.sources:
        log.info("Source %s: version %s%s.", source.identifier, source.version, _files(source))
    if not planned.sources:
        log.info("The query reads no table.")
    for reference in planned.references:
        log.info("Expectations refer to %s: version %s%s.", reference.identifier, reference.version, _files(reference))
    for name, sql in named_times(planned.query, planned.times).items():
        log.info("Time: %s is %s.", name, sql)


def _files(source: SourceBinding) -> str:
    number = sum(len(part.files) for part in source.every_part)
    return f", {source.format}, files: {number}" if number else ""


def log_result(planned: RefreshPlan, result: RefreshResult) -> None:
    """Log the output of Spark, with a warning about empty partitions or an empty table, except for stream batches."""
    numbers = (result.rows, len(result.files), result.bytes)
    log.info("Spark %s wrote rows: %s, files: %s, bytes: %s%s.", result.application_id, *numbers, _as_text(result.seconds))
    if planned.merge is not None and planned.merge.only_adds:
        return
    if planned.partitions.is_whole:
        if result.rows == 0 and planned.position is None:
            log.warning("The query returned no rows for %s.", planned.identifier)
        return
    filled = {frozenset(spec.items()) for one in result.partitions for spec in planned.partitions.covering(one)}
    empty = [spec for spec in planned.partitions if frozenset(spec.items()) not in filled]
    if empty:
        more = f" and {len(empty) - _MOST_EMPTY} more" if len(empty) > _MOST_EMPTY else ""
        named = ", ".join(map(describe, empty[:_MOST_EMPTY])) + more
        log.warning("The query returned no rows for %s of %s.", named, planned.identifier)


def _as_text(seconds: Mapping[str, float]) -> str:
    return "; " + ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items()) if seconds else ""


def check(workspace: Workspace, attempt: Attempt, result: RefreshResult) -> None:
    """Record the result of every expectation in the ledger, then enforce their actions.

    Row counts are checked here; the other expectations were checked by the job. Dropped rows are kept if the rows may be
    committed, now or from quarantine.

    :raises ExpectationError: if an expectation with the action ``fail`` is violated.
    :raises QuarantinedError: if an expectation with the action ``quarantine`` is violated.
    """
    planned = attempt.plan
    outcomes = (*result.expectations, *_row_counts(attempt, result.rows))
    if not outcomes:
        return

    workspace.ledger.update_refresh(
        planned.token,
        expectations=outcomes,
        rows=result.rows,
        bytes=result.bytes,
        files=len(result.files),
        application_id=result.application_id,
    )

    violated = [expectation for expectation in outcomes if expectation.violations]
    for expectation in violated:
        if expectation.action in (Action.WARN, Action.DROP):
            log.warning("%s: %s.", planned.identifier, expectation)

    if failed := [str(expectation) for expectation in violated if expectation.action == Action.FAIL]:
        raise ExpectationError(f"{planned.identifier} is not as expected, nothing was committed: {', '.join(failed)}.")
    keep_dropped_rows(workspace, planned, result, attempt.stage.owner)
    if tripped := [str(expectation) for expectation in violated if expectation.action == Action.QUARANTINE]:
        raise QuarantinedError(
            f"{planned.identifier} is in quarantine: {', '.join(tripped)}; look at {planned.rows_location}, then run "
            f"dynamic-tables publish {planned.token} or dynamic-tables abort {planned.token}"
        )


def refuse_empty(planned: RefreshPlan, result: RefreshResult) -> None:
    """Refuse a stream batch without rows. Only the first may be empty, to replace the table, and only without event time.

    :raises EmptyBatchError: if it has no rows.
    """
    waits = any(source.event_time is not None for source in planned.sources)
    if planned.position is not None and not result.rows and (planned.follows is not None or waits):
        raise EmptyBatchError(f"batch {planned.position.batch} of stream {planned.position.stream} has no rows")


def _row_counts(attempt: Attempt, rows: int) -> tuple[ExpectationResult, ...]:
    bounds = attempt.request.table.row_counts
    before, missing = _rows_before(attempt) if any(bound.compares for bound in bounds) else (None, 0)
    return tuple(bound.check(rows, before, is_average=missing > 0) for bound in bounds)


def _rows_before(attempt: Attempt) -> tuple[int | None, int]:
    """Return the number of rows that the stage replaces, and the number of planned partitions missing in the current version.

    Each missing partition counts as one of average size.
    """
    counts = attempt.registered.loaded.count(attempt.plan.partitions)
    if counts is None or not counts.partitions:
        return None, 0
    missing = len(attempt.plan.partitions) - counts.held
    return counts.replaced + round(missing * counts.total / counts.partitions), missing
