"""Deletion of files, restricted to a folder given by the caller; links are never followed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from airflow_dynamic_tables.clients.files import Entry, file_system, plain_path, real_path
from airflow_dynamic_tables.clients.object_stores import as_os_errors
from airflow_dynamic_tables.exceptions import ConfigurationError


@dataclass(frozen=True, slots=True)
class Deleted:
    """The number of deleted files, and their size in bytes."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: Deleted) -> Deleted:
        return Deleted(self.files + other.files, self.bytes + other.bytes)


@as_os_errors()
def delete_folder(root: str, uri: str) -> None:
    """Delete a folder recursively; a missing one is ignored. Links in it are deleted, their targets are not.

    :param root: the folder that must contain it.
    :raises ConfigurationError: when it is not in that folder.
    """
    system, path = file_system(uri)
    _Inside(root).check(path)
    with suppress(FileNotFoundError):
        system.rm(path, recursive=True)


@as_os_errors()
def delete_entries(root: str, entries: Iterable[Entry]) -> Deleted:
    """Delete files below a folder, and folders that become empty; missing ones are ignored.

    Links are kept, because their targets may be needed and belong to the link's creator.

    :return: the number of files, and their size in bytes.
    :raises ConfigurationError: when an entry is not below the folder; nothing is deleted.
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
    """Delete files below a folder, and subfolders that become empty; missing ones are ignored.

    :raises ConfigurationError: when a file is not below the folder.
    """
    inside = _Inside(root)
    for uri in uris:
        system, path = file_system(uri)
        inside.check(path)
        with suppress(FileNotFoundError):
            system.rm_file(path)
        with suppress(OSError):  # not empty, or an object store without folders
            while len(path := path.rpartition("/")[0]) > len(inside.path):
                system.rmdir(path)


class _Inside:
    """Checks that paths are below a folder, both by name and after resolving links."""

    def __init__(self, root: str) -> None:
        self.path = plain_path(root)
        self._root = root
        self._real = real_path(root)
        self._known: set[str] = set()

    def check(self, path: str) -> None:
        """Reject a path outside the folder.

        :raises ConfigurationError: when it is outside.
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
