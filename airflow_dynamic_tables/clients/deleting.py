"""Deleting files: only below the folder that the caller names, whatever their names, and never through a link."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from airflow_dynamic_tables.clients.files import Entry, file_system, plain_path, real_path
from airflow_dynamic_tables.clients.object_stores import as_os_errors
from airflow_dynamic_tables.exceptions import ConfigurationError


@dataclass(frozen=True, slots=True)
class Deleted:
    """How many files were deleted, and their size in bytes."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: Deleted) -> Deleted:
        return Deleted(self.files + other.files, self.bytes + other.bytes)


@as_os_errors()
def delete_folder(root: str, uri: str) -> None:
    """Delete a folder with everything below it; a missing one is fine. A link in it is deleted, what it leads to is not.

    :param root: the folder that it must lie in.
    :raises ConfigurationError: when it does not.
    """
    system, path = file_system(uri)
    _Inside(root).check(path)
    with suppress(FileNotFoundError):
        system.rm(path, recursive=True)


@as_os_errors()
def delete_entries(root: str, entries: Iterable[Entry]) -> Deleted:
    """Delete files below a folder, and folders that are empty then; those that are gone already are fine.

    Links stay: what is behind one may be needed, and it belongs to whoever put it there.

    :return: how many files, and their bytes.
    :raises ConfigurationError: when one does not lie below it; nothing is deleted then.
    """
    system, _ = file_system(root)
    own = [entry for entry in entries if not entry.is_link]
    deepest_first = sorted(own, key=lambda entry: entry.path, reverse=True)
    inside = _Inside(root)
    for entry in deepest_first:
        inside.check(entry.path)

    deleted: list[int] = []
    for entry in deepest_first:
        if entry.is_folder:
            with suppress(OSError):  # not empty
                system.rmdir(entry.path)
        else:
            with suppress(FileNotFoundError):
                system.rm_file(entry.path)
                deleted.append(entry.bytes)
    return Deleted(len(deleted), sum(deleted))


@as_os_errors()
def delete_files(root: str, uris: Iterable[str]) -> None:
    """Delete files below a folder, and the folders in it that are empty then; missing ones are fine.

    :raises ConfigurationError: when one does not lie below it.
    """
    inside = _Inside(root)
    for uri in uris:
        system, path = file_system(uri)
        inside.check(path)
        with suppress(FileNotFoundError):
            system.rm_file(path)
        with suppress(OSError):  # not empty, or no folder at all in an object store
            while len(path := path.rpartition("/")[0]) > len(inside.path):
                system.rmdir(path)


class _Inside:
    """Whether paths lie below a folder, by their names and, where there are links, in truth."""

    def __init__(self, root: str) -> None:
        self.path = plain_path(root)
        self._root = root
        self._real = real_path(root)
        self._known: set[str] = set()

    def check(self, path: str) -> None:
        """Refuse a path that lies elsewhere.

        :raises ConfigurationError: when it does.
        """
        path = path.rstrip("/")
        below = path.removeprefix(f"{self.path}/")
        folder = path.rpartition("/")[0]
        is_named_inside = below != path and {".", ".."}.isdisjoint(below.split("/"))
        if not is_named_inside or not self._is_really_inside(folder):
            raise ConfigurationError(f"{path} is not in the folder {self._root}, or is so only by a link; nothing is deleted.")

    def _is_really_inside(self, folder: str) -> bool:
        if folder not in self._known:
            scheme = self._root.partition("://")[0] if "://" in self._root else "file"
            real = real_path(f"{scheme}://{folder}")
            if real != self._real and not real.startswith(f"{self._real}/"):
                return False
            self._known.add(folder)
        return True
