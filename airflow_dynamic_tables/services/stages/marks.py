"""Marks: who refreshes a table, left in its folder, so that installations with one warehouse know of each other.

A mark is a file named by the identity of an installation, in a folder that holds no data for Spark, Hive and Iceberg. Leases keep
the refreshes of one installation apart, and only it knows which of its stages are in use: another one can do neither.
"""

from __future__ import annotations

import logging
import socket

from airflow_dynamic_tables.clients.deleting import delete_files
from airflow_dynamic_tables.clients.files import list_entries, write_text
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.registered import RegisteredTable
from airflow_dynamic_tables.services.workspace import Workspace

MARKS = "_installations"
"""Folder of the marks in that of a table."""

_TEXT = """\
An installation of airflow-dynamic-tables refreshes this table; this file was written on {host}.
While it is here no other installation deletes anything in this folder. Delete it when that one is gone.
"""

log = logging.getLogger(__name__)


def leave_mark(workspace: Workspace, registered: RegisteredTable) -> None:
    """Mark the folder of a table before anything is staged in it; idempotent.

    :raises ConfigurationError: when another installation refreshes the table and its format knows no commit, so that each would
        overwrite what the other publishes.
    :raises CatalogUnavailableError: when the mark cannot be written.
    """
    folder = registered.loaded.folder()
    if folder is None:
        return  # it was dropped just now, as the commit will notice
    own = workspace.ledger.installation()
    names = _names(folder)
    is_new = own not in names
    if is_new:
        write_text(f"{folder}/{MARKS}/{own}", _TEXT.format(host=socket.gethostname()))
        names = _names(folder)  # of two that come at the same moment at least one sees the other
    strangers = [f"{folder}/{MARKS}/{name}" for name in names if name != own]
    if not strangers:
        return
    if registered.lake_table.is_atomic:
        log.warning("%s", shared(registered.identifier, strangers))
        return
    if is_new:
        delete_files(folder, [f"{folder}/{MARKS}/{own}"])
    raise ConfigurationError(f"{shared(registered.identifier, strangers)} Or give each installation a warehouse of its own.")


def other_marks(workspace: Workspace, registered: RegisteredTable) -> list[str]:
    """The marks of other installations in the folder of a table."""
    folder = registered.loaded.folder()
    own = workspace.ledger.installation()
    return [f"{folder}/{MARKS}/{name}" for name in _names(folder) if name != own] if folder is not None else []


def shared(identifier: TableIdentifier, strangers: list[str]) -> str:
    """What to do about a table that other installations have marked."""
    return (
        f"{identifier} is refreshed by another installation, too. If that one is gone, delete its mark: {', '.join(strangers)}."
    )


def _names(folder: str) -> list[str]:
    return [entry.path.rpartition("/")[2] for entry in list_entries(f"{folder}/{MARKS}") if not entry.is_folder]
