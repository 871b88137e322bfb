"""Forgetting: versions beyond the retention of their table go; their files are left to the maintenance.

A commit reads and writes what a table says of all its versions, so it costs more with each that is kept. Refreshes forget some
themselves, lest a table grow for ever whose maintenance is off.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.actions import ReasonCode
from airflow_dynamic_tables.core.tables.retention import Retention
from airflow_dynamic_tables.ledger.base import HOLDING, RefreshState
from airflow_dynamic_tables.services.registered import RegisteredTable
from airflow_dynamic_tables.services.workspace import Workspace

ENOUGH = 50
"""How many versions are due before a refresh forgets them, which takes as long as a small commit."""

STREAMS_COME_BACK = timedelta(days=1)
"""How long the snapshots are kept for a stream that it has not read yet; one that stands still for longer begins anew."""

log = logging.getLogger(__name__)


def forget_versions(workspace: Workspace, registered: RegisteredTable, retention: Retention, least: int = 1) -> int:
    """Forget versions that are due, but none that an unfinished stage reads or may have made.

    :param least: nothing is forgotten while fewer are due.
    :return: how many are gone.
    :raises ConflictError: when the table does not come to rest; the next time does it.
    :raises CatalogUnavailableError: when catalog or metadata cannot be read.
    """
    return registered.lake_table.expire(retention, workspace.now(), lambda: _pinned(workspace, registered.identifier), least)


def forget_after_commit(workspace: Workspace, registered: RegisteredTable, retention: Retention) -> None:
    """The same at the end of a refresh, once it is worth it; what fails there is left to the next one."""
    try:
        forget_versions(workspace, registered, retention, ENOUGH)
    except Exception:
        message = "Old versions of %s could not be forgotten; the next refresh or the maintenance does it."
        log.exception(message, registered.identifier)


def _pinned(workspace: Workspace, table: TableIdentifier) -> set[str]:
    """Versions that unfinished stages may have made, those that are being read, and those from which on streams read."""
    pinned = {stage.token for stage in workspace.ledger.list_stages(table)}
    for stage in workspace.ledger.list_stages(states=HOLDING):
        refresh = workspace.ledger.get_refresh(stage.token)
        if refresh is not None and str(table) in refresh.sources:
            pinned.add(refresh.sources[str(table)])
    return pinned | _read_by_streams(workspace, table)


def _read_by_streams(workspace: Workspace, table: TableIdentifier) -> set[str]:
    """The versions that streams have read last: what came after them they read snapshot by snapshot."""
    since = workspace.now() - STREAMS_COME_BACK
    read: set[str] = set()
    for reader in workspace.ledger.tables():
        latest = (one for one in workspace.ledger.list_refreshes(reader) if one.reason_code is ReasonCode.STREAMED)
        refresh = next((one for one in latest if one.state is RefreshState.SUCCEEDED), None)
        if refresh is not None and refresh.started_at >= since and str(table) in refresh.sources:
            read.add(refresh.sources[str(table)])
    return read
