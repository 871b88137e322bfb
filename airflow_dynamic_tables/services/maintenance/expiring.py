"""Expiring: old versions are forgotten, and files that no version and no stage has any use for are deleted."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta

from airflow_dynamic_tables.clients.deleting import Deleted
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.actions import RefreshAction
from airflow_dynamic_tables.core.tables.retention import Retention
from airflow_dynamic_tables.exceptions import ConflictError, NotFoundError
from airflow_dynamic_tables.services.registered import RegisteredTable, look_up
from airflow_dynamic_tables.services.stages.marks import other_marks, shared
from airflow_dynamic_tables.services.tables.forgetting import forget_versions
from airflow_dynamic_tables.services.tables.undoing import note_undone
from airflow_dynamic_tables.services.workspace import Workspace

ORPHAN_AGE = timedelta(days=1)
"""How long a file that nothing refers to is kept: a commit under way has written files that it does not refer to yet."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Expired:
    """What went: snapshots forgotten, files deleted and their bytes."""

    snapshots: int = 0
    files: int = 0
    bytes: int = 0


def expire(workspace: Workspace, identifier: TableIdentifier) -> Expired:
    """Apply the retention of a dynamic table, or of one that CREATE TABLE AS made; other tables are left alone.

    Safe beside refreshes, rollbacks and itself: what an unfinished stage reads, holds or may have committed stays.

    :raises ConflictError: when the table does not come to rest; the next time does it.
    :raises CatalogUnavailableError: when catalog or metadata cannot be read.
    """
    try:
        registered = look_up(workspace, identifier)
    except NotFoundError:
        return Expired()
    note_undone(workspace, registered)
    snapshots = forget_versions(workspace, registered, Retention.parse(registered.entry.options))
    try:
        deleted = registered.lake_table.delete_orphans(workspace.now() - ORPHAN_AGE, lambda: _held(workspace, registered))
    except ConflictError as error:
        log.warning("%s", error)
        deleted = Deleted()
    return Expired(snapshots, deleted.files, deleted.bytes)


def _held(workspace: Workspace, registered: RegisteredTable) -> set[str]:
    """Folders of the table's unfinished stages.

    :raises ConflictError: while a version is being restored, which may refer to any file; or when another installation refreshes
        the table, whose stages nobody here knows.
    """
    identifier = registered.identifier
    if strangers := other_marks(workspace, registered):
        raise ConflictError(f"{shared(identifier, strangers)} Until then none of its files is deleted.")
    folders = set()
    for stage in workspace.ledger.list_stages(identifier):
        refresh = workspace.ledger.get_refresh(stage.token)
        if refresh is not None and refresh.action is RefreshAction.ROLLBACK:
            raise ConflictError(f"An earlier version of {identifier} is being restored; its files are looked at next time.")
        folders.add(stage.location)
    return folders
