"""Deletion of orphan files: those that no version of a table refers to, and no unfinished stage holds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from airflow_dynamic_tables.clients.files import Deleted, FileEntry, delete_entries, list_entries, plain_path, real_path
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.exceptions import ConfigurationError

Limit = Callable[[FileEntry], datetime | None]
"""Returns the time before which an orphan must have changed last to be deleted; ``None`` keeps it."""


@dataclass(frozen=True, slots=True)
class References:
    """The paths of all files of a table, and the limits of other files, by whether any stage is unfinished."""

    files: Collection[str]
    limit: Callable[[FileEntry, bool], datetime | None]


def delete_unreferenced(
    location: str, held: Callable[[], Collection[str]], read: Callable[[Sequence[FileEntry]], References | None]
) -> Deleted:
    """Delete the orphan files below the location of a table.

    The order of the steps makes this safe with concurrent refreshes: a file that existed at listing time belongs to a stage that
    is unfinished now, or to a commit that completed before and is referenced now, or it is an orphan. The held stages are read
    again after the table, because a restore that started in between has either read the table later, or is held now.

    :param read: reads the references of the table now, given the files; ``None`` keeps all files.
    :raises ConfigurationError: if the files are not listed as the table spells them; nothing is deleted.
    """
    entries = list_entries(location)
    trace(Step.LISTED, location)
    unfinished = {*held()}
    references = read(entries)
    unfinished |= {*held()}
    if references is None:
        return Deleted()
    if references.files and not {entry.path for entry in entries} & {*references.files}:
        raise ConfigurationError(f"The files of {location} are not listed as the table spells them; none is deleted.")
    free = [entry for entry in entries if entry.path not in references.files]
    return delete_old(location, free, map(plain_path, unfinished), lambda entry: references.limit(entry, bool(unfinished)))


def delete_old(location: str, entries: Iterable[FileEntry], kept: Iterable[str], limit: Limit) -> Deleted:
    """Delete the entries that are older than their limit, and outside of the kept folders."""
    folders = {*kept}
    return delete_entries(location, [entry for entry in entries if is_old(entry, limit(entry)) and not is_in(entry, folders)])


def is_old(entry: FileEntry, limit: datetime | None) -> bool:
    """Return whether an entry has not changed since a time; an object store keeps no times of folders."""
    return limit is not None and entry.changed_at is not None and entry.changed_at < limit


def is_in(entry: FileEntry, folders: Collection[str]) -> bool:
    """Return whether an entry is in one of the folders, or is one; both are paths."""
    parts = entry.path.split("/")
    return any("/".join(parts[:end]) in folders for end in range(1, len(parts) + 1))


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
