"""Dropping a table."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.clients.files import Deleted, delete_folder, list_entries
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import ConfigurationError, ConflictError
from airflow_dynamic_tables.formats.orphans import check_own_folder
from airflow_dynamic_tables.services.tables.workflows import delete_workflow
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace
from airflow_dynamic_tables.services.writes.dropped_rows import find_dropped_rows
from airflow_dynamic_tables.services.writes.leases import check_droppable
from airflow_dynamic_tables.services.writes.owner_markers import other_markers, shared
from airflow_dynamic_tables.services.writes.protocol import held

log = logging.getLogger(__name__)

_MADE_HERE = re.compile(r"[-_][0-9a-f]{32}")
"""Suffix of a folder that was created for a single table."""


def folder_to_purge(workspace: Workspace, registered: RegisteredTable) -> str | None:
    """Return the folder with all files of a table; ``None`` if it has none yet.

    :raises ConfigurationError: if it may contain foreign files, for example because the table was adopted.
    :raises ConflictError: if another installation refreshes the table, too.
    """
    identifier = registered.identifier
    folder = registered.loaded.folder()
    if folder is None:
        return None
    if strangers := other_markers(workspace, registered):
        raise ConflictError(shared(identifier, strangers))
    if why := registered.loaded.keeps_files():
        raise ConfigurationError(f"{identifier} {why}, so they are not purged: drop the table without its files.")
    if registered.lake_table.is_atomic and not _MADE_HERE.search(folder[-33:]):
        raise ConfigurationError(
            f"{folder} was not made for {identifier} alone, so its files are not purged: drop the table, see what is "
            "in the folder, and delete it by hand."
        )
    check_own_folder(folder, ())
    return folder


def purge_folder(folder: str) -> Deleted:
    """Delete a folder returned by :func:`folder_to_purge`, after its table was dropped.

    :return: the number of files and their bytes.
    """
    files = [entry for entry in list_entries(folder) if not entry.is_folder]
    delete_folder(folder.rpartition("/")[0], folder)
    return Deleted(len(files), sum(file.bytes for file in files))


@dataclass(frozen=True, slots=True)
class Dropped:
    """The result of dropping a dynamic table, or a table of CREATE TABLE AS."""

    identifier: TableIdentifier
    dropped: bool = True
    """False: the table did not exist."""
    location: str | None = None
    """The folder in which the files of the table stay."""
    is_still_read: bool = False
    """Whether a new table of this name reads the rows in that folder again."""
    purged: Deleted = field(default_factory=Deleted)
    """The files that were deleted."""


def drop_if_exists(workspace: Workspace, identifier: TableIdentifier, *, purge: bool = False) -> Dropped:
    """Drop a table as :func:`drop` does, but ignore a missing one. It is an error if it is not a dynamic table."""
    exists = workspace.catalog(identifier.catalog).table_exists(identifier.path)
    return drop(workspace, identifier, purge=purge) if exists else Dropped(identifier, dropped=False)


def drop(workspace: Workspace, identifier: TableIdentifier, *, purge: bool = False) -> Dropped:
    """Drop a dynamic table, with the table of its dropped rows, or a table created by CREATE TABLE AS.

    The lease of the table is held meanwhile: a refresh that died is settled and fenced off before, and a new refresh is refused.

    :param purge: also delete its files. If the process is killed, the remaining files stay in the folder, which was logged.
    :raises TableNotFoundError: if the catalog has no such table.
    :raises SchedulerError: if a scheduler other than Airflow does not delete its workflow; nothing is dropped.
    :raises ConflictError: as for :func:`check_droppable`; or if another installation uses the files to be purged.
    :raises ConfigurationError: if the files to be purged may belong to others; nothing is dropped then.
    """
    registered = workspace.look_up(identifier)
    check_droppable(workspace, identifier)
    to_purge = folder_to_purge(workspace, registered) if purge else None
    folder = registered.loaded.folder()
    with held(workspace, registered, "drop"):
        if to_purge is not None:
            log.info("%s is dropped, and then %s with everything in it.", identifier, to_purge)  # a kill may leave some of it
        beside = find_dropped_rows(workspace, identifier)  # first, because nothing finds it once its table is gone
        deleted = drop(workspace, beside.identifier, purge=purge).purged if beside is not None else Deleted()
        _forget(workspace, workspace.look_up(identifier))
        deleted += purge_folder(to_purge) if to_purge is not None else Deleted()
    if purge:
        return Dropped(identifier, purged=deleted)
    return Dropped(identifier, location=folder, is_still_read=registered.reload().layout() is not None)


def _forget(workspace: Workspace, registered: RegisteredTable) -> None:
    if isinstance(registered.entry, CatalogDynamicTable):
        delete_workflow(workspace, registered.entry)
    # First, because failures that remained after a kill would count against a new table with this name.
    workspace.ledger.forget_failures(registered.identifier)
    workspace.catalog(registered.identifier.catalog).drop_table(registered.identifier.path)
