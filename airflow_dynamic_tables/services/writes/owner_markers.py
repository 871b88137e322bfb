"""Owner markers: files in a table's folder that identify the installations that refresh the table.

They let installations with a common warehouse detect each other. A marker is a file named by the installation's identity, in a
folder that Spark, Hive and Iceberg do not read as data. Leases only separate the refreshes of one installation, and only that
installation knows which of its stages are in use.
"""

from __future__ import annotations

import logging
import socket

from airflow_dynamic_tables.clients.files import delete_files, list_entries, write_text
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace

MARKS = "_installations"
"""Name of the folder of markers inside a table's folder."""

_TEXT = """\
An installation of airflow-dynamic-tables refreshes this table; this file was written on {host}.
While it is here no other installation deletes anything in this folder. Delete it when that one is gone.
"""

log = logging.getLogger(__name__)


def write_marker(workspace: Workspace, registered: RegisteredTable) -> None:
    """Write this installation's marker before anything is staged in the table's folder; idempotent.

    :raises ConfigurationError: if another installation refreshes the table and its format has no atomic commit, so that the
        installations would overwrite each other's data.
    :raises CatalogUnavailableError: if the marker cannot be written.
    """
    folder = registered.loaded.folder()
    if folder is None:
        return  # the table has just been dropped, which the commit detects
    own = workspace.ledger.installation()
    names = _names(folder)
    is_new = own not in names
    if is_new:
        write_text(f"{folder}/{MARKS}/{own}", _TEXT.format(host=socket.gethostname()))
        names = _names(folder)  # if two installations write concurrently, at least one sees the other's marker
    strangers = [f"{folder}/{MARKS}/{name}" for name in names if name != own]
    if not strangers:
        return
    if registered.lake_table.is_atomic:
        log.warning("%s", shared(registered.identifier, strangers))
        return
    if is_new:
        delete_files(folder, [f"{folder}/{MARKS}/{own}"])
    raise ConfigurationError(f"{shared(registered.identifier, strangers)} Or give each installation a warehouse of its own.")


def other_markers(workspace: Workspace, registered: RegisteredTable) -> list[str]:
    """Return the markers of other installations in the folder of a table."""
    folder = registered.loaded.folder()
    own = workspace.ledger.installation()
    return [f"{folder}/{MARKS}/{name}" for name in _names(folder) if name != own] if folder is not None else []


def shared(identifier: TableIdentifier, strangers: list[str]) -> str:
    """Return a message on how to resolve that other installations have marked a table."""
    return (
        f"{identifier} is refreshed by another installation, too. If that one is gone, delete its mark: {', '.join(strangers)}."
    )


def _names(folder: str) -> list[str]:
    return [entry.path.rpartition("/")[2] for entry in list_entries(f"{folder}/{MARKS}") if not entry.is_folder]
