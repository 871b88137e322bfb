"""Folders walked through on any file system: one that cannot be listed is an error here, and empty for fsspec's own walk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from airflow_dynamic_tables.clients.object_stores import as_os_errors
from airflow_dynamic_tables.core.tables.data_files import is_hidden
from airflow_dynamic_tables.exceptions import CatalogUnavailableError

FileSystem: TypeAlias = Any
"""One of fsspec's, which has no types."""


def data_files(system: FileSystem, path: str) -> dict[str, Mapping[str, Any]]:
    """Files below a folder, or the file itself; hidden folders, which others may take away at any time, are not looked into."""
    root = path.rstrip("/")
    files: dict[str, Mapping[str, Any]] = {}
    folders = [path] if info_of(system, path) is not None else []
    while folders:
        folder = folders.pop()
        with _listing(folder):
            infos = system.ls(folder, detail=True)
        for info in infos:
            name = info["name"]
            if not _is_folder(system, info):
                files[name] = info
            elif not is_hidden(name[len(root) :]):
                folders.append(name)
    return files


def everything(system: FileSystem, path: str) -> dict[str, Mapping[str, Any]]:
    """Files and folders below a folder; what somebody takes away meanwhile may be missing."""
    entries: dict[str, Mapping[str, Any]] = {}
    folders = [path]
    while folders:
        folder = folders.pop()
        with _listing(folder), suppress(FileNotFoundError, NotADirectoryError):
            for info in system.ls(folder, detail=True):
                entries[info["name"]] = info
                if info["type"] == "directory":
                    folders.append(info["name"])
    return entries


def found(system: FileSystem, path: str, withdirs: bool = False) -> dict[str, Mapping[str, Any]]:
    """As the two above in an object store, which lists a thousand objects by one call and knows no folders."""
    with _listing(path):
        infos: dict[str, Mapping[str, Any]] = system.find(path, withdirs=withdirs, detail=True)
        return infos


def info_of(system: FileSystem, path: str) -> Mapping[str, Any] | None:
    """What a file system says of a file or folder, ``None`` when it is not there: no other error is taken for that."""
    with _listing(path):
        try:
            info: Mapping[str, Any] = system.info(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
    return info


def _is_folder(system: FileSystem, info: Mapping[str, Any]) -> bool:
    """Whether it is a folder, or a link to one; only a local disk has links.

    :raises CatalogUnavailableError: when the link leads back to a folder that it is in: that way has no end.
    """
    if not info.get("islink"):
        return bool(info["type"] == "directory")
    name = info["name"]
    target = os.path.realpath(name)
    with _listing(name):
        if any(os.path.realpath(parent) == target for parent in PurePosixPath(name).parents):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    return bool(system.isdir(name))


@contextmanager
def _listing(folder: str) -> Iterator[None]:
    """Around looking at a folder: an error says which folder it was."""
    try:
        with as_os_errors():
            yield
    except OSError as error:
        raise CatalogUnavailableError(f"{folder} cannot be listed: {error.strerror or error}.") from error
