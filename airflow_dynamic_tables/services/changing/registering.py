"""Registering: a declared table gets its entry in the catalog and its workflow, or, when that fails, nothing."""

from __future__ import annotations

import logging

from airflow_dynamic_tables.definitions.lineage.names import former_name
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError, DynamicTableError, SchedulerError
from airflow_dynamic_tables.services.changing.holding import held
from airflow_dynamic_tables.services.changing.renaming import follow
from airflow_dynamic_tables.services.tables.lifecycle import Registration, create, refresh_handler
from airflow_dynamic_tables.services.tables.workflows import keep_unpaused, schedule_workflow
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)


def register(workspace: Workspace, table: DynamicTable, *, takes_over: bool = False) -> Registration:
    """Register a table by the name that its declaration says now, and have its scheduler refresh it. Idempotent.

    It keeps the data that it had by its former name. A new table whose scheduler says no is not registered; what a kill leaves
    undone, the next call does.

    :param takes_over: whether that is done though another deployment registered it.
    :raises SchedulerError: as of :func:`~airflow_dynamic_tables.services.tables.workflows.schedule_workflow`.
    :raises DynamicTableError: see :func:`~airflow_dynamic_tables.services.changing.renaming.follow` and
        :func:`~airflow_dynamic_tables.services.tables.lifecycle.create`.
    """
    _follow(workspace, table, takes_over=takes_over)
    if refresh_handler(workspace, table.identifier) is not None:
        # First, while the catalog still says which scheduler has it, and that there is something to do.
        schedule_workflow(workspace, table)
        return create(workspace, table, takes_over=takes_over)
    registration = create(workspace, table, takes_over=takes_over)
    try:
        schedule_workflow(workspace, table)
    except (SchedulerError, ConfigurationError):
        if registration is Registration.CREATED:  # else somebody else did so just now, whose table it is
            _undo(workspace, table)
        raise
    return registration


def _follow(workspace: Workspace, table: DynamicTable, *, takes_over: bool) -> None:
    """See :func:`follow`; the DAG of the new name goes on if the former one was not paused."""
    former = former_name(table)
    handler = refresh_handler(workspace, former) if former is not None else None
    if follow(workspace, table, takes_over=takes_over) is None or handler is None:
        return
    try:
        told = keep_unpaused(workspace, handler.job_detail, table)
    except (SchedulerError, ConfigurationError) as error:
        told = f"The DAG {table.workflow_id} of the new name was not unpaused: {error}"
    if told:
        log.warning("%s", told)


def _undo(workspace: Workspace, table: DynamicTable) -> None:
    """Take a new table out of the catalog again, unless somebody refreshes it already: then it stays."""
    identifier = table.identifier
    try:
        with held(workspace, identifier, table.format, "create"):
            if workspace.table(identifier, table.format).current() is None:
                workspace.catalog(identifier.catalog).drop_table(identifier.path, ignore_if_not_exists=True)
    except DynamicTableError:
        log.warning("%s stays registered without a workflow.", identifier, exc_info=True)
