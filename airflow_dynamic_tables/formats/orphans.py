"""Check that a folder belongs to one table, the precondition of deleting orphan files in it."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_dynamic_tables.clients.files import real_path
from airflow_dynamic_tables.exceptions import ConfigurationError


def check_own_folder(location: str, others: Iterable[str]) -> None:
    """Check that a folder contains only files of its table.

    :param others: folders of several or other tables: the warehouse, folders of other tables.
    :raises ConfigurationError: if one of them is, or is in, the folder of the table, or if that is a link.
    """
    folder = real_path(location)
    parent, _, name = location.rstrip("/").rpartition("/")
    if name in ("", ".", "..") or folder != f"{real_path(parent)}/{name}":
        raise ConfigurationError(f"{location} leads to {folder}, which is not the folder of one table; nothing in it is deleted.")
    for other in others:
        if f"{real_path(other)}/".startswith(f"{folder}/"):
            raise ConfigurationError(f"{location} holds {other}, which is not of this table; nothing in it is deleted.")
