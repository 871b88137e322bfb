"""Dropping: a dynamic table goes from its catalog, with all its versions; its history stays, its files may."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.clients.deleting import Deleted
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import ConflictError
from airflow_dynamic_tables.ledger.base import StageState
from airflow_dynamic_tables.services.changing import purging
from airflow_dynamic_tables.services.changing.holding import held
from airflow_dynamic_tables.services.registered import RegisteredTable, look_up
from airflow_dynamic_tables.services.stages.leases import check_gone
from airflow_dynamic_tables.services.tables.workflows import delete_workflow
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Dropped:
    """The result of dropping a dynamic table, or a table of CREATE TABLE AS."""

    identifier: TableIdentifier
    dropped: bool = True
    """False: the table did not exist."""
    location: str | None = None
    """The folder in which the files of the table stay."""
    is_still_read: bool = False
    """Whether a new table of this name finds the rows in that folder again."""
    purged: Deleted = field(default_factory=Deleted)
    """The files that were deleted."""


def check_droppable(workspace: Workspace, registered: RegisteredTable) -> None:
    """Check that a table may be dropped now.

    :raises ConflictError: while somebody refreshes it, or has to decide over what is in quarantine.
    """
    identifier = registered.identifier
    for stage in workspace.ledger.list_stages(identifier):
        if stage.state is StageState.QUARANTINED:
            todo = f"dynamic-tables publish {stage.token}, or dynamic-tables abort {stage.token}"
            raise ConflictError(f"A refresh of {identifier} is in quarantine; decide over it first: {todo}.")
        check_gone(workspace, stage)


def drop_if_exists(workspace: Workspace, identifier: TableIdentifier, *, purge: bool = False) -> Dropped:
    """As :func:`drop`; a table that is not there is no error, but what is there and no dynamic table is one."""
    exists = workspace.catalog(identifier.catalog).table_exists(identifier.path)
    return drop(workspace, identifier, purge=purge) if exists else Dropped(identifier, dropped=False)


def drop(workspace: Workspace, identifier: TableIdentifier, *, purge: bool = False) -> Dropped:
    """Drop a dynamic table, or one that CREATE TABLE AS made.

    It holds the lease of the table meanwhile: a refresh that died is settled and fenced off before, and one that begins then is
    refused.

    :param purge: also delete its files; what a kill leaves of them stays in the folder, which the log has named.
    :raises TableNotFoundError: when the catalog has no such table.
    :raises SchedulerError: when another scheduler than Airflow has its workflow, and does not delete it: nothing is dropped.
    :raises ConflictError: as of :func:`check_droppable`; and when another installation has files of it that should be purged.
    :raises ConfigurationError: when the files that should be purged may not be its own; nothing is dropped then.
    """
    registered = look_up(workspace, identifier)
    check_droppable(workspace, registered)
    to_purge = purging.folder_to_purge(workspace, registered) if purge else None
    folder = registered.loaded.folder()
    with held(workspace, registered, "drop"):
        if to_purge is not None:
            log.info("%s is dropped, and then %s with everything in it.", identifier, to_purge)  # a kill may leave some of it
        _forget(workspace, look_up(workspace, identifier))
        deleted = purging.purge_folder(to_purge) if to_purge is not None else Deleted()
    if purge:
        return Dropped(identifier, purged=deleted)
    return Dropped(identifier, location=folder, is_still_read=registered.reload().layout() is not None)


def _forget(workspace: Workspace, registered: RegisteredTable) -> None:
    if isinstance(registered.entry, CatalogDynamicTable):
        delete_workflow(workspace, registered.entry)
    # First: what a kill left of them would count against a table that is made again by this name.
    workspace.ledger.forget_failures(registered.identifier)
    workspace.catalog(registered.identifier.catalog).drop_table(registered.identifier.path)
