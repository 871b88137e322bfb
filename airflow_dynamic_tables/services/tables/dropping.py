"""Dropping: a dynamic table goes from its catalog, with all its versions; its files stay, and its history too."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import ConflictError, TableNotFoundError
from airflow_dynamic_tables.formats.base import LakeTable
from airflow_dynamic_tables.ledger.base import StageState
from airflow_dynamic_tables.services.stages.leases import check_gone
from airflow_dynamic_tables.services.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Dropped:
    """A table that was dropped.

    ``folder`` is where its files stay, if it had any. With ``is_still_read`` its format finds rows and columns in that folder
    without the catalog, so that a table made anew under the name has them again.
    """

    table: TableIdentifier
    folder: str | None
    is_still_read: bool


def check_droppable(workspace: Workspace, identifier: TableIdentifier) -> LakeTable:
    """Check that a table may be dropped now.

    :raises TableNotFoundError: when the catalog has no such dynamic table.
    :raises ConflictError: while somebody refreshes it, or has to decide over what is in quarantine.
    """
    entry = workspace.catalog(identifier.catalog).get_table(identifier.path)
    if not isinstance(entry, CatalogDynamicTable):
        raise TableNotFoundError(f"{identifier} is no dynamic table.")
    for stage in workspace.ledger.list_stages(identifier):
        if stage.state is StageState.QUARANTINED:
            todo = f"dynamic-tables publish {stage.token}, or dynamic-tables abort {stage.token}"
            raise ConflictError(f"A refresh of {identifier} is in quarantine; decide over it first: {todo}.")
        check_gone(workspace, stage)
    return workspace.table(identifier, entry.format)


def drop(workspace: Workspace, identifier: TableIdentifier) -> Dropped:
    """Drop a dynamic table. A refresh that begins meanwhile is refused by its commit, as of any table that is gone.

    :raises TableNotFoundError: as of :func:`check_droppable`.
    :raises ConflictError: as of :func:`check_droppable`.
    """
    table = check_droppable(workspace, identifier)
    folder = table.folder()
    workspace.catalog(identifier.catalog).drop_table(identifier.path)
    return Dropped(identifier, folder, is_still_read=table.layout() is not None)
