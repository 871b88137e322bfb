"""One refresh: begin, let the job write, commit or abort. The one way of doing it, for operator and CLI alike.

Its steps can be traced, see :mod:`airflow_dynamic_tables.core.refresh.steps`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from airflow_dynamic_tables.catalog.values import JobState
from airflow_dynamic_tables.clients.files import make_private_folders, write_text
from airflow_dynamic_tables.core.refresh.actions import Reason, ReasonCode, RefreshAction
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.core.tables.formats import FORMATS
from airflow_dynamic_tables.core.tables.partitions import PartitionSet
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    CommitUnknownError,
    ConflictError,
    DynamicTableError,
    EmptyBatchError,
    OvertakenError,
    QuarantinedError,
    UnsupportedError,
)
from airflow_dynamic_tables.formats.base import LakeTable
from airflow_dynamic_tables.ledger.base import Refresh, RefreshChanges, RefreshState, ReportState, Stage, StageState
from airflow_dynamic_tables.services.changing.renaming import follow
from airflow_dynamic_tables.services.refresh.catching_up import caught_up, is_unbroken
from airflow_dynamic_tables.services.refresh.expectations import check, refuse_empty
from airflow_dynamic_tables.services.refresh.planning import (
    Attempt,
    ToDo,
    Why,
    fitting_layout,
    plan,
    planned_partitions,
    planned_sink,
)
from airflow_dynamic_tables.services.refresh.preview import not_supported_yet
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped, action_of, overtaken
from airflow_dynamic_tables.services.refresh.telling import tell_committed, tell_growth, tell_plan, tell_written
from airflow_dynamic_tables.services.refresh.unchanged import remember, skip, without_unchanged
from airflow_dynamic_tables.services.refresh.upstream import complete_until
from airflow_dynamic_tables.services.stages.landing import land, read_result, versions_read
from airflow_dynamic_tables.services.stages.leases import lease_kept, new_lease, open_stage
from airflow_dynamic_tables.services.stages.marks import leave_mark
from airflow_dynamic_tables.services.stages.quarantine import quarantine, supersede
from airflow_dynamic_tables.services.stages.settling import abort, give_up, settle, tell_landed
from airflow_dynamic_tables.services.tables.forgetting import forget_after_commit
from airflow_dynamic_tables.services.tables.freshness import fresh_until
from airflow_dynamic_tables.services.tables.lifecycle import create, refresh_handler, why_suspended
from airflow_dynamic_tables.services.tables.undoing import note_undone, with_undone
from airflow_dynamic_tables.services.watermarks.growth import Growth
from airflow_dynamic_tables.services.watermarks.looking import look
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Steps:
    """Seconds that each step of a refresh took."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time the body as that step."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(time.monotonic() - start, 3)


def run(
    workspace: Workspace,
    request: RefreshRequest,
    submit: Callable[[RefreshPlan], object],
    on_lost: Callable[[], None] | None = None,
    on_commit: Callable[[Version], None] | None = None,
) -> Version | Skipped:
    """Refresh a table: begin, ``submit`` the job and wait for it, commit; abort when anything fails.

    Missed ticks that are too many for one commit take several, each with a stage and token of its own, the oldest first.

    :param submit: runs the job of a plan to its end and raises when it failed.
    :param on_lost: called from another thread when the stage was taken away meanwhile; it should stop the job.
    :param on_commit: called with each version as soon as it is committed, the last one, too.
    :return: the last version, or why nothing, or nothing more, was done.
    """
    reached: datetime | None = None
    while True:
        steps = Steps()
        with steps.step("begin"):
            begun = begin(workspace, request)
        if isinstance(begun, Skipped):
            outcome: Version | Skipped = begun
            up_to = begun.up_to
        else:
            outcome = finish(workspace, begun, submit, on_lost, steps)
            if on_commit is not None and isinstance(outcome, Version):
                on_commit(outcome)
            # What lags behind makes the rest too early as well.
            has_ended = isinstance(outcome, Skipped) or begun.request.complete_until is not None
            up_to = None if has_ended else begun.request.schedule_time
        if up_to is None or up_to >= request.schedule_time or up_to == reached:
            return outcome
        log.info("%s has its ticks up to %s now.", request.table.identifier, up_to.isoformat())
        reached = up_to


def finish(
    workspace: Workspace,
    begun: Attempt,
    submit: Callable[[RefreshPlan], object],
    on_lost: Callable[[], None] | None,
    steps: Steps,
) -> Version | Skipped:
    """The rest of :func:`run`, when the refresh has begun."""
    request = begun.request
    try:
        with lease_kept(workspace, request.token, on_lost):
            with steps.step("spark"):
                submit(begun.plan)
            version = commit(workspace, begun, steps)
    except CommitUnknownError as error:
        with suppress(CatalogUnavailableError):
            workspace.ledger.update_refresh(request.token, error=str(error))
        raise
    except (OvertakenError, EmptyBatchError) as error:
        return _skipped_at_last(workspace, begun, error)
    except QuarantinedError as error:
        quarantine(workspace, request.token, str(error), steps.seconds)
        raise
    except BaseException as error:
        give_up(workspace, request.token, error)
        raise
    forget_after_commit(workspace, request.table.identifier, begun.table, request.table.retention)
    return version


def begin(workspace: Workspace, request: RefreshRequest) -> Attempt | Skipped:
    """Take the lease, bind the sources and write the plan beside the stage.

    :return: the attempt, or why there is none: the table is suspended, no partition is asked for, it is fresher already, or
        nothing has moved that it is made of.
    :raises UnsupportedError: when the table's refresh mode is not built yet, or its format cannot be staged and nobody
        accepted that.
    :raises ConflictError: when a living owner refreshes some of the same partitions.
    :raises UpstreamError: when a parent has no version yet.
    :raises ConfigurationError: when a partition has a value that its column cannot have.
    :raises SchemaEvolutionError: when the table has other partition keys than its definition.
    """
    if obstacle := not_supported_yet(request.table):
        raise UnsupportedError(f"{request.table.identifier}: {obstacle}.")
    trace(Step.BEGIN, request.token)
    # First: a format that the catalog cannot hold is refused before anything is done.
    table = workspace.table(request.table.identifier, request.table.format, request.table.atomicity)
    follow(workspace, request.table)
    if not request.force and (suspended := why_suspended(workspace, request.table.identifier)):
        return skip(workspace, request, Reason(ReasonCode.SUSPENDED, suspended))
    create(workspace, request.table, JobState.RUNNING)
    request, to_do = _to_do(workspace, request, table)
    if isinstance(to_do, Skipped):
        return to_do
    if nothing := _nothing_to_do(request, to_do):
        return skip(workspace, request, Reason(ReasonCode.NOTHING_TO_REFRESH, nothing), growth=to_do.growth)
    staged = table.stage(request.token)
    stage = _stage(workspace, request, to_do.partitions, staged.begin())
    open_stage(workspace, stage)
    trace(Step.OPENED, request.token)
    try:
        _check_not_dropped(workspace, request)
        planned = prepare(workspace, request, table, stage, to_do)
    except BaseException as error:
        abort(workspace, request.token, error)
        raise
    return planned if isinstance(planned, Skipped) else Attempt(request, table, stage, staged, planned)


def _to_do(workspace: Workspace, request: RefreshRequest, table: LakeTable) -> tuple[RefreshRequest, ToDo | Skipped]:
    """The request with the ticks that were missed, and what it does; or why there is nothing to do."""
    current = _newest(workspace, request, table)  # first: the rest believes the history
    growth = look(workspace, request.table, request.sources, current)
    request = caught_up(workspace, request, table, current) if growth is None else request
    request = replace(request, complete_until=complete_until(workspace, request, growth))
    partitions = planned_partitions(workspace, request, growth)
    if request.partitions is None:
        partitions = with_undone(partitions, table, request.table.partition_keys)
    return request, without_unchanged(workspace, request, table, ToDo(partitions, growth))


def _check_not_dropped(workspace: Workspace, request: RefreshRequest) -> None:
    """Check under the lease that the table is still registered: from here on it cannot be dropped.

    :raises ConflictError: when it was dropped while the refresh began.
    """
    identifier = request.table.identifier
    if not request.is_one_off and refresh_handler(workspace, identifier) is None:
        raise ConflictError(f"{identifier} was dropped while this refresh began; nothing was done.")


def _stage(workspace: Workspace, request: RefreshRequest, partitions: PartitionSet, location: str) -> Stage:
    return Stage(
        token=request.token,
        table=request.table.identifier,
        location=location,
        owner=request.owner,
        partitions=partitions,
        format=request.table.format,
        **new_lease(workspace),
    )


def _nothing_to_do(request: RefreshRequest, to_do: ToDo) -> str | None:
    """Why there is nothing to refresh, or nothing can be read as long as somebody writes it anew; ``None`` otherwise."""
    growth = to_do.growth
    if growth is not None and growth.obstacle is not None and request.partitions is None and not request.full_refresh:
        return growth.obstacle
    if to_do.partitions.is_empty:
        return f"no new complete partition: {growth}" if growth else "there is nothing to refresh"
    return None


def prepare(workspace: Workspace, request: RefreshRequest, table: LakeTable, stage: Stage, to_do: ToDo) -> RefreshPlan | Skipped:
    """Bind the sources and write the plan beside a stage that was just opened; when that fails, the stage is to be aborted."""
    # The current version is read under the lease: nobody else can commit these partitions from here on.
    current = _newest(workspace, request, table)
    growth = to_do.growth
    if growth is not None and growth.base != (current.token if current is not None else None):
        raise ConflictError(f"{stage.table} changed while its sources were looked at; the next try reads them anew.")
    action, reason = action_of(request, stage.partitions, current)
    if growth is not None:
        reason = replace(reason, text=f"{reason.text}; {growth}")
        tell_growth(growth)
    workspace.ledger.record(_line(workspace, request, stage, growth, current, (action, reason)))
    _make_folder(workspace, stage, table)
    if skipped := overtaken(request, stage.partitions, current, fresh_until(workspace, current)):
        settle(workspace, stage, None, ended=_as_skipped(skipped.reason))
        return skipped
    layout, rebuild = fitting_layout(request, table)
    decided = plan(workspace, request, stage, current, (action, reason), to_do)
    planned = replace(decided, layout=layout, rebuild=rebuild, sink=planned_sink(request, table), limits=table.limits)
    workspace.ledger.update_refresh(stage.token, sources=versions_read(planned), recipe=planned.recipe or "")
    states = {source.identifier: source.state for source in planned.sources if source.state is not None}
    workspace.ledger.record_source_states(stage.token, states)
    write_text(planned.plan_location, planned.to_json(), private=workspace.settings.private_files)
    tell_plan(planned)
    trace(Step.PLANNED, request.token)
    return planned


def _newest(workspace: Workspace, request: RefreshRequest, table: LakeTable) -> Version | None:
    """The current version, once the history says which others are gone. A draft of CREATE TABLE AS never had the others."""
    return table.current() if request.is_one_off else note_undone(workspace, request.table.identifier, table)


def _line(
    workspace: Workspace, request: RefreshRequest, stage: Stage, growth: Growth | None, current: Version | None, why: Why
) -> Refresh:
    """The line of the history with which a refresh begins."""
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
        watermark=growth.reached_at(request.table.timezone) if growth is not None else None,
    )


def _make_folder(workspace: Workspace, stage: Stage, table: LakeTable) -> None:
    """Make the folder of a table that is in a server, before anything is in it, and mark whose the folder of a table is."""
    if FORMATS[stage.format].in_server and workspace.settings.private_files and (folder := table.folder()) is not None:
        make_private_folders(stage.location, folder)  # its files are copies of rows that only the server gives out
    leave_mark(workspace, stage.table, table)


def _as_skipped(reason: Reason) -> RefreshChanges:
    return {"state": RefreshState.SKIPPED, "action": RefreshAction.SKIP, "reason": reason.text, "reason_code": reason.code}


def _skipped_at_last(workspace: Workspace, attempt: Attempt, why: OvertakenError | EmptyBatchError) -> Skipped:
    """End a refresh that had nothing to do, as it found when it was about to commit."""
    reason = Reason(ReasonCode.ALREADY_FRESH if isinstance(why, OvertakenError) else ReasonCode.NOTHING_TO_REFRESH, str(why))
    try:
        settle(workspace, attempt.stage, None, surely_not_landed=True, ended=_as_skipped(reason))
        if isinstance(why, EmptyBatchError):
            refresh = workspace.ledger.get_refresh(attempt.stage.token)
            counted = refresh is not None and refresh.expectations  # rows that came too late, above all
            skip(workspace, attempt.request, reason, _held(attempt), instead_of="" if counted else attempt.stage.token)
    except (DynamicTableError, OSError):
        log.exception("Could not abort stage %s; the next refresh or sweep does it.", attempt.stage.token)
    return Skipped(reason)


def _held(attempt: Attempt) -> Version | None:
    """The version that the batches of a stream have made so far, which has all rows up to an empty one; ``None`` before any."""
    current = attempt.table.current()
    goes_on = attempt.plan.follows is not None and current is not None and current.snapshot == attempt.plan.base
    return current if goes_on else None


def commit(workspace: Workspace, attempt: Attempt, steps: Steps) -> Version:
    """Check the job's result and make the stage visible in one step; idempotent by token.

    :raises StageRejectedError: when the job left no result, or not the one that was planned or expected.
    :raises QuarantinedError: when somebody else has to decide.
    :raises OvertakenError: when the table is fresher already; EmptyBatchError when a batch of a stream makes no version.
    :raises CommitRejectedError: when it surely did not land.
    :raises CommitUnknownError: when nobody knows.
    """
    planned = attempt.plan
    token = planned.token
    trace(Step.COMMIT, token)
    result = read_result(planned)
    tell_written(planned, result)
    with steps.step("commit"):
        check(workspace, attempt, result)
        refuse_empty(planned, result)
        version = land(attempt.staged, planned, result, lambda: _publishing(workspace, attempt, result))
    trace(Step.PUBLISHED, token)
    # The table has the version, so the refresh succeeded, whatever becomes of the rest.
    tell_committed(planned, version, steps.seconds)
    if tell_landed(workspace, token, version, _measured(steps, result)):
        trace(Step.COMPLETED, token)
        remember(workspace, attempt, version)
        supersede(workspace, attempt.stage.table)
    return version


def _measured(steps: Steps, result: RefreshResult) -> dict[str, float]:
    return {**steps.seconds, **{f"spark.{name}": seconds for name, seconds in result.seconds.items()}}


def _publishing(workspace: Workspace, attempt: Attempt, result: RefreshResult) -> None:
    """Begin to publish, unless the table became fresher than this refresh would make it.

    What the commit replaces was read before: a version that is newer than that is seen here, and refused by the swap, too.
    """
    newest = _newest(workspace, attempt.request, attempt.table)
    current = newest if attempt.stage.partitions.is_whole else None
    fresh = fresh_until(workspace, current)
    if skipped := overtaken(attempt.request, attempt.stage.partitions, current, fresh):
        raise OvertakenError(skipped.reason.text)
    wrote: RefreshChanges = {
        "rows": result.rows,
        "bytes": result.bytes,
        "files": len(result.files),
        "application_id": result.application_id,
    }
    workspace.ledger.move_stage(result.token, (StageState.OPEN,), StageState.COMMITTING, wrote)
    trace(Step.PUBLISHING, result.token)
