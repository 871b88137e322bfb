"""Purging: the files of a dropped table are deleted, as far as they are surely its own."""

from __future__ import annotations

import re

from airflow_dynamic_tables.clients.deleting import Deleted, delete_folder
from airflow_dynamic_tables.clients.files import list_entries
from airflow_dynamic_tables.exceptions import ConfigurationError, ConflictError
from airflow_dynamic_tables.formats.own_folder import check_own_folder
from airflow_dynamic_tables.services.registered import RegisteredTable
from airflow_dynamic_tables.services.stages.marks import other_marks, shared
from airflow_dynamic_tables.services.workspace import Workspace

_MADE_HERE = re.compile(r"[-_][0-9a-f]{32}")
"""How the name of a folder ends that was made for one table, and no other."""


def folder_to_purge(workspace: Workspace, registered: RegisteredTable) -> str | None:
    """The folder with all files of a table; ``None`` when it has none yet.

    :raises ConfigurationError: when it may hold what is of others, such as that of a table which was there before it was adopted.
    :raises ConflictError: when another installation refreshes the table, too.
    """
    identifier = registered.identifier
    folder = registered.loaded.folder()
    if folder is None:
        return None
    if strangers := other_marks(workspace, registered):
        raise ConflictError(shared(identifier, strangers))
    if registered.lake_table.is_atomic and not _MADE_HERE.search(folder[-33:]):
        raise ConfigurationError(
            f"{folder} was not made for {identifier} alone, so its files are not purged: drop the table, see what is "
            "in the folder, and delete it by hand."
        )
    check_own_folder(folder, ())
    return folder


def purge_folder(folder: str) -> Deleted:
    """Delete a folder that :func:`folder_to_purge` gave, when no table leads to it any more.

    :return: how many files, and their bytes.
    """
    files = [entry for entry in list_entries(folder) if not entry.is_folder]
    delete_folder(folder.rpartition("/")[0], folder)
    return Deleted(len(files), sum(file.bytes for file in files))
