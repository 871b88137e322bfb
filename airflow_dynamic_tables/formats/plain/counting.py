"""How many rows a folder of files has: their footers say it."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_dynamic_tables.clients.files import list_files
from airflow_dynamic_tables.clients.object_stores import as_os_errors
from airflow_dynamic_tables.clients.stores import Store
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.tables.data_files import partition_of
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, StageRejectedError, TableNotFoundError
from airflow_dynamic_tables.formats.data_files import count_rows
from airflow_dynamic_tables.formats.plain.source import folders_of

_AT_ONCE = 64
"""How many footers are read before the rows are added up: few more than needed, and enough for all threads."""


def count(source: Source, store: Store | None, partition: Mapping[str, str], least: int) -> int:  # noqa: ARG001 - see bind
    """Rows in the files of a folder, or of one partition of it; counting ends at ``least``.

    :raises TableNotFoundError: when there is no such folder.
    :raises CatalogUnavailableError: when it cannot be listed in full, or a file is gone, damaged or not written to its end.
    """
    try:
        files = list_files(source.path or "")
    except FileNotFoundError as error:
        raise TableNotFoundError(f"Source {source.identifier}: there is nothing at {source.path}.") from error
    folders = folders_of(source, files)
    covered = {folder for folder in set(folders.values()) if partition.items() <= partition_of(folder).items()}
    wanted = [file for file in files if folders[file] in covered]
    rows = 0
    try:
        with as_os_errors():
            for start in range(0, len(wanted), _AT_ONCE):
                rows += sum(count_rows(wanted[start : start + _AT_ONCE], source.format))
                if rows >= least:
                    break
    except (OSError, StageRejectedError) as error:
        raise CatalogUnavailableError(f"Source {source.identifier}: {error}") from error
    return rows
