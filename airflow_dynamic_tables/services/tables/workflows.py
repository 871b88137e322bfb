"""The workflow of a table at its scheduler: created, suspended, resumed and deleted with the table.

Airflow's DAGs exist as long as the definitions, so they are only paused and unpaused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable, JobState
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.cache import restored
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError, SchedulerError
from airflow_dynamic_tables.schedulers.base import DEFAULT_SCHEDULER, Handler, Outcome, Workflow, WorkflowScheduler
from airflow_dynamic_tables.services.tables.entries import job_detail, scheduler_of
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)


def suspend_workflow(workspace: Workspace, identifier: TableIdentifier) -> str:
    """Suspend the scheduler's workflow of a suspended table, if the scheduler is available.

    :return: the result as a sentence.
    """
    entry = workspace.dynamic_table(identifier)
    return _asked(workspace, entry, "suspended", lambda scheduler, handler: scheduler.suspend(handler))


def resume_workflow(workspace: Workspace, identifier: TableIdentifier) -> str:
    """Resume the scheduler's workflow of a table, if the scheduler is available.

    :return: the result as a sentence.
    """
    entry = workspace.dynamic_table(identifier)
    definition = entry.definition
    if scheduler_of(entry) == DEFAULT_SCHEDULER or definition is None:
        return _asked(workspace, entry, "resumed", lambda scheduler, handler: scheduler.resume(handler))
    # The definition may have changed meanwhile, and the workflow may have been deleted.
    return _asked(workspace, entry, "resumed", lambda scheduler, _: _made(workspace, restored(definition), scheduler))


def schedule_workflow(workspace: Workspace, table: DynamicTable) -> str:
    """Create or update the workflow of a registered table at its scheduler; idempotent.

    A workflow of the table at another scheduler, or with a former name, is deleted. A suspended table gets none until it is
    resumed.

    :return: the result as a sentence; empty if nothing was to be done.
    :raises SchedulerError: if a scheduler is unavailable or refuses.
    :raises ConfigurationError: if the scheduler does not exist or denies access.
    """
    entry = workspace.dynamic_table(table.identifier)
    wanted = job_detail(table)
    if any(entry.refresh_handler.job_detail.get(key) != wanted[key] for key in ("schedulerType", "workflowId")):
        delete_workflow(workspace, entry)
        _keep(workspace, table.identifier, wanted)
    if wanted["schedulerType"] == DEFAULT_SCHEDULER or entry.refresh_handler.job_state is JobState.SUSPENDED:
        return ""
    with workspace.scheduler(wanted["schedulerType"]) as scheduler:
        return _made(workspace, table, scheduler).told


def delete_workflow(workspace: Workspace, entry: CatalogDynamicTable) -> str:
    """Delete the workflow of a table that is about to be dropped.

    :return: the result as a sentence; empty if nothing was to be done.
    :raises SchedulerError: if the scheduler is unavailable or refuses.
    :raises ConfigurationError: if the scheduler does not exist or denies access.
    """
    if scheduler_of(entry) == DEFAULT_SCHEDULER:
        return ""
    with workspace.scheduler(scheduler_of(entry)) as scheduler:
        return scheduler.delete(_handler(entry)).told


def paused_workflows(workspace: Workspace, workflow_ids: Collection[str]) -> Mapping[str, bool]:
    """Return whether each DAG is paused. DAGs unknown to Airflow are omitted; empty if Airflow is unavailable."""
    try:
        with workspace.scheduler(DEFAULT_SCHEDULER) as scheduler:
            return scheduler.paused(workflow_ids) if workflow_ids else {}
    except (SchedulerError, ConfigurationError) as error:
        log.info("It is not known which DAGs are paused: %s", error)
        return {}


def keep_unpaused(workspace: Workspace, former: Handler, table: DynamicTable) -> str:
    """Unpause the new DAG of a renamed table, if its former DAG was not paused.

    :return: the result as a sentence; empty if nothing was to be done.
    """
    before, now = former.get("workflowId", ""), table.workflow_id
    schedulers = {table.scheduler or DEFAULT_SCHEDULER, former.get("schedulerType") or DEFAULT_SCHEDULER}
    if before == now or schedulers != {DEFAULT_SCHEDULER}:
        return ""
    states = paused_workflows(workspace, [before, now])
    if states.get(now) is False:
        return ""
    if states.get(before):
        return f"The DAG {before} was paused; see that {now}, the DAG of the new name, is as you want it."
    if before in states and now in states:
        with workspace.scheduler(DEFAULT_SCHEDULER) as scheduler:
            return scheduler.resume({"workflowId": now}).told
    return f"The DAG {now} of the new name may come up paused. When Airflow has it, unpause it: airflow dags unpause {now}"


def _asked(
    workspace: Workspace, entry: CatalogDynamicTable, done: str, ask: Callable[[WorkflowScheduler, Handler], Outcome]
) -> str:
    try:
        with workspace.scheduler(scheduler_of(entry)) as scheduler:
            return ask(scheduler, _handler(entry)).told
    except (SchedulerError, ConfigurationError) as error:
        workflow = entry.refresh_handler.job_detail.get("workflowId", "")
        return f"The table is {done}. Its workflow {workflow} in {scheduler_of(entry)} is not, because: {error}"


def _made(workspace: Workspace, table: DynamicTable, scheduler: WorkflowScheduler) -> Outcome:
    if table.cron is None:
        raise ConfigurationError(f"{table.identifier} has no schedule, so {table.scheduler} cannot have it refreshed.")
    workflow = Workflow(table.identifier, table.workflow_id, table.cron, table.timezone)
    outcome = scheduler.create(workflow)
    _keep(workspace, table.identifier, outcome.handler)
    return outcome


def _keep(workspace: Workspace, identifier: TableIdentifier, detail: Mapping[str, str]) -> None:
    def changed(entry: CatalogDynamicTable) -> CatalogDynamicTable:
        before = entry.refresh_handler
        handler = replace(before, job_detail=detail).in_state(before.job_state, before.suspended_because)
        return replace(entry, refresh_handler=handler)

    workspace.change(identifier, changed)


def _handler(entry: CatalogDynamicTable) -> Handler:
    """Return the scheduler's reference to the workflow, without the suspended state, which does not concern the scheduler."""
    return entry.refresh_handler.in_state(JobState.RUNNING).job_detail
