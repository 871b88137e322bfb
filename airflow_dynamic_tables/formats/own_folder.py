"""Whether a folder is that of one table: only then the maintenance deletes anything in it, whatever its tables are called."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_dynamic_tables.clients.files import real_path
from airflow_dynamic_tables.exceptions import ConfigurationError


def check_own_folder(location: str, others: Iterable[str]) -> None:
    """Refuse to tidy up a folder that may hold what is not its table's.

    :param others: folders that belong to more or to others: the warehouse, folders of other tables.
    :raises ConfigurationError: when one of them is the folder of the table or lies in it, or when that is a link.
    """
    folder = real_path(location)
    parent, _, name = location.rstrip("/").rpartition("/")
    if name in ("", ".", "..") or folder != f"{real_path(parent)}/{name}":
        raise ConfigurationError(f"{location} leads to {folder}, which is not the folder of one table; nothing in it is deleted.")
    for other in others:
        if f"{real_path(other)}/".startswith(f"{folder}/"):
            raise ConfigurationError(f"{location} holds {other}, which is not of this table; nothing in it is deleted.")
