"""Creation of a table from a query by the protocol of a refresh: stage, job, one commit. On failure no table exists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from airflow_dynamic_tables.catalog.values import ONE_OFF, CatalogDatabase, CatalogTable, encode, is_one_off
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import ConflictError, TableAlreadyExistsError, TableNotFoundError
from airflow_dynamic_tables.services.ctas.planning import Decision, decide
from airflow_dynamic_tables.services.ctas.selecting import ReadTable
from airflow_dynamic_tables.services.ctas.wanted import Created, CtasOutcome, Purpose, WantedTable
from airflow_dynamic_tables.services.outcomes import Operation
from airflow_dynamic_tables.services.refresh.planning import ToDo
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import Attempt, finish, prepare
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace
from airflow_dynamic_tables.services.writes.drafts import DraftedTable
from airflow_dynamic_tables.services.writes.protocol import StagedWrite, new_stage, open_write, preparing
from airflow_dynamic_tables.services.writes.settling import recorded_refresh

Submit = Callable[[RefreshPlan], object]


def create_table_as(
    workspace: Workspace,
    definitions: Definitions,
    wanted: WantedTable,
    by: tuple[str, str],
    submit: Submit,
    on_lost: Callable[[], None] | None = None,
) -> Created:
    """Create a table from a query, or replace one.

    :param definitions: the declarations of sources; may be empty.
    :param by: see :func:`make`, like ``submit`` and ``on_lost``.
    :raises DynamicTableError: as for :func:`~airflow_dynamic_tables.services.ctas.planning.decide`, and as for a refresh.
    """
    return make(workspace, wanted, decide(workspace, definitions, wanted), by, submit, on_lost)


def make(
    workspace: Workspace,
    wanted: WantedTable,
    decision: Decision,
    by: tuple[str, str],
    submit: Submit,
    on_lost: Callable[[], None] | None = None,
) -> Created:
    """Carry out a decision. Concurrent changes are detected under the lease and by the commit.

    :param by: token, unique to each attempt, and owner, the same for all attempts of one piece of work.
    :param submit: runs the job of a plan to its end and raises if it failed.
    :param on_lost: called from another thread if the stage was lost; it should stop the job.
    :raises DynamicTableError: as for a refresh.
    """
    if decision.read is None:
        return Created(wanted.identifier, decision.outcome)
    try:
        with workspace.catalogs.holding_sources():
            version = finish(workspace, _begin(workspace, decision, decision.read, by), submit, on_lost)
    except TableAlreadyExistsError:
        if wanted.purpose is Purpose.CREATE_IF_NOT_EXISTS:
            return Created(wanted.identifier, CtasOutcome.EXISTS)
        raise
    if isinstance(version, Skipped):
        raise ConflictError(f"{wanted.identifier} was not made: {version.reason}")
    return _told(workspace, wanted, decision.outcome, version)


def _told(workspace: Workspace, wanted: WantedTable, outcome: CtasOutcome, version: Version) -> Created:
    refresh = recorded_refresh(workspace, version)
    made = Created(wanted.identifier, outcome, version.number, token=version.token, sources=dict(version.sources))
    if refresh is None:
        return made
    return replace(made, rows=refresh.rows, files=refresh.files, bytes=refresh.bytes, seconds=dict(refresh.seconds))


def _begin(workspace: Workspace, decision: Decision, wanted: ReadTable, by: tuple[str, str]) -> Attempt:
    """Take the lease and write the plan beside the stage.

    :raises ConflictError: if a live owner creates or refreshes a table with that name.
    """
    token, owner = by
    request = RefreshRequest(
        table=wanted.table,
        sources=wanted.sources,
        schedule_time=workspace.now(),
        token=token,
        owner=owner,
        full_refresh=True,
        is_one_off=True,
    )
    trace(Step.BEGIN, token)
    begin = _begin_new if decision.outcome is CtasOutcome.CREATED else _begin_again
    return begin(workspace, request)


def _begin_new(workspace: Workspace, request: RefreshRequest) -> Attempt:
    table = workspace.table(request.table.identifier, request.table.format)
    if table.makes_entries:
        return _begin_in_place(workspace, request, table.check_makeable, is_new=True)
    return _begin_draft(workspace, request)


def _begin_draft(workspace: Workspace, request: RefreshRequest) -> Attempt:
    """Begin to create a table as a draft. The draft is created after the lease, which records it if this process dies."""
    wanted = request.table
    drafted = DraftedTable(workspace, wanted.identifier, wanted.format, request.token)
    draft = str(drafted.draft)
    registered = RegisteredTable(wanted.identifier, drafted.entry(wanted.comment, wanted.partition_keys), drafted.table())
    stage = replace(new_stage(workspace, registered, request.token, request.owner, draft), creates=draft)
    write = open_write(workspace, Operation.CREATE, stage, drafted)
    with preparing(write):
        drafted.check_free()
        database = wanted.identifier.database
        workspace.catalog(wanted.identifier.catalog).create_database(database, CatalogDatabase(), ignore_if_exists=True)
        drafted.register(registered.entry)
        write.stage = replace(stage, location=drafted.begin())
        return _prepared(workspace, request, registered, write)


def _begin_again(workspace: Workspace, request: RefreshRequest) -> Attempt:
    return _begin_in_place(workspace, request, partial(_check_still_there, workspace, request), is_new=False)


def _begin_in_place(workspace: Workspace, request: RefreshRequest, check: Callable[[], None], *, is_new: bool) -> Attempt:
    """Begin to create a table under its own name, or to replace one.

    :param check: raises if the state that the decision is based on has changed; called again under the lease.
    """
    check()  # checked first, because staging would create a missing table
    wanted = request.table
    entry = CatalogTable(format=wanted.format, properties={ONE_OFF: request.token})
    registered = RegisteredTable(wanted.identifier, entry, workspace.table(wanted.identifier, wanted.format, wanted.atomicity))
    staged = registered.lake_table.once(request.token, encode(entry), is_new=is_new)
    creates = str(wanted.identifier) if is_new else None
    stage = replace(new_stage(workspace, registered, request.token, request.owner, staged.begin()), creates=creates)
    write = open_write(workspace, Operation.CREATE, stage, staged)
    with preparing(write):
        check()
        return _prepared(workspace, request, registered, write)


def _check_still_there(workspace: Workspace, request: RefreshRequest) -> None:
    identifier = request.table.identifier
    try:
        entry = workspace.catalog(identifier.catalog).get_table(identifier.path)
    except TableNotFoundError as error:
        raise ConflictError(f"{identifier} was dropped while it was to be replaced; try again.") from error
    if not isinstance(entry, CatalogTable) or not is_one_off(entry) or entry.format != request.table.format:
        raise ConflictError(f"{identifier} was changed while it was to be replaced; try again.")


def _prepared(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable, write: StagedWrite) -> Attempt:
    with write.step("begin"):
        to_do = ToDo(WHOLE_TABLE)
        planned = prepare(workspace, request, registered, write, to_do)
    if isinstance(planned, Skipped):
        raise ConflictError(f"{write.stage.table} was not made: {planned.reason}")
    return Attempt(request, registered, write, planned, to_do)
