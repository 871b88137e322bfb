"""Expiry: removes old versions, and deletes files that no version and no stage refers to."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta

from airflow_dynamic_tables.clients.files import Deleted
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.core.versions import Retention
from airflow_dynamic_tables.exceptions import ConflictError, NotFoundError
from airflow_dynamic_tables.services.tables.rollback import forget_versions
from airflow_dynamic_tables.services.tables.undone import note_undone
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace
from airflow_dynamic_tables.services.writes.owner_markers import other_markers, shared

ORPHAN_AGE = timedelta(days=1)
"""How long orphan files are kept, because a commit in progress has written files that it does not refer to yet."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Expired:
    """The result of an expiry: expired snapshots, deleted files and their bytes."""

    snapshots: int = 0
    files: int = 0
    bytes: int = 0


def expire(workspace: Workspace, identifier: TableIdentifier) -> Expired:
    """Apply the retention of a dynamic table, or of one created by CREATE TABLE AS; other tables are left alone.

    Safe concurrently with refreshes, rollbacks and itself: everything that an unfinished stage reads, holds or may have committed
    is kept.

    :raises ConflictError: if concurrent commits prevent it; the next call repeats it.
    :raises CatalogUnavailableError: if the catalog or metadata cannot be read.
    """
    try:
        registered = workspace.look_up(identifier)
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
    """Return the folders of the table's unfinished stages.

    :raises ConflictError: if a version is being restored, which may refer to any file; or if another installation, whose stages
        are unknown here, refreshes the table.
    """
    identifier = registered.identifier
    if strangers := other_markers(workspace, registered):
        raise ConflictError(f"{shared(identifier, strangers)} Until then none of its files is deleted.")
    folders = set()
    for stage in workspace.ledger.list_stages(identifier):
        refresh = workspace.ledger.get_refresh(stage.token)
        if refresh is not None and refresh.action is RefreshAction.ROLLBACK:
            raise ConflictError(f"An earlier version of {identifier} is being restored; its files are looked at next time.")
        folders.add(stage.location)
    return folders
