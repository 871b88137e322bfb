"""Versions that another engine took away: the history tells of them."""

from __future__ import annotations

import logging

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.formats.base import LakeTable
from airflow_dynamic_tables.ledger.base import RefreshState
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)


def note_undone(workspace: Workspace, identifier: TableIdentifier, table: LakeTable) -> None:
    """Write into the history when another engine took the version away that was committed last; idempotent.

    :raises CatalogUnavailableError: when table or ledger cannot be asked.
    """
    undone = table.undone()
    refresh = workspace.ledger.get_refresh(undone.version.token) if undone is not None else None
    if undone is None or refresh is None or refresh.state is not RefreshState.SUCCEEDED:
        return
    until = "" if undone.for_good else " until the next refresh makes up for it"
    what = f"Version {undone.version.number} was undone by another engine, {undone.how}{until}."
    log.warning("%s: %s", identifier, what)
    workspace.ledger.update_refresh(refresh.token, state=RefreshState.UNDONE, error=what)
