"""Small files and listings on any file system that fsspec reaches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import fsspec

from airflow_dynamic_tables.clients.listings import data_files, everything, found, info_of
from airflow_dynamic_tables.clients.object_stores import EXTRAS, as_os_errors, is_object_store
from airflow_dynamic_tables.core.tables.data_files import is_hidden
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConfigurationError, MissingExtraError

_TIMES = ("mtime", "LastModified", "last_modified", "updated")
"""Where fsspec's file systems say when a file was changed last."""


@as_os_errors()
def read_text(uri: str) -> str:
    """Read a small file.

    :raises FileNotFoundError: when it is not there.
    """
    system, path = _file_system(uri)
    return str(system.read_text(path, encoding="utf-8"))


def write_text(uri: str, text: str) -> None:
    """Write a small file, making its folders.

    :raises CatalogUnavailableError: when it cannot be written.
    """
    system, path = _file_system(uri)
    try:
        with as_os_errors():
            system.makedirs(path.rpartition("/")[0], exist_ok=True)
            system.write_text(path, text, encoding="utf-8")
    except OSError as error:
        raise CatalogUnavailableError(f"{uri} cannot be written: {error.strerror or error}.") from error


def open_file(uri: str) -> Any:
    """Open a file for reading bytes, from any place in it.

    :raises FileNotFoundError: when it is not there.
    """
    system, path = _file_system(uri)
    return system.open(path, "rb")


def exists(uri: str) -> bool:
    """Whether there is such a file or folder.

    :raises CatalogUnavailableError: when nobody can tell, for want of a permission or of an answer.
    """
    system, path = _file_system(uri)
    system.invalidate_cache()
    return info_of(system, path) is not None


@as_os_errors()
def create_text(uri: str, text: str) -> None:
    """Write a small file that nobody has written yet, making its folders.

    :raises FileExistsError: when somebody has.
    """
    system, path = _file_system(uri)
    system.makedirs(path.rpartition("/")[0], exist_ok=True)
    with system.open(path, "xb") as stream:
        stream.write(text.encode("utf-8"))


@as_os_errors()
def move_file(uri: str, target: str) -> None:
    """Give a file another name on the same file system, making its folders; copied where there is no renaming."""
    system, path = _file_system(uri)
    _, other = _file_system(target)
    system.makedirs(other.rpartition("/")[0], exist_ok=True)
    system.mv(path, other)


def list_files(uri: str) -> dict[str, Mapping[str, Any]]:
    """Data files below a folder: full URI to fsspec's info (``size``, and a time or tag of the last change).

    Names that begin with a dot or an underscore, or lie in such a folder, are not data (Spark's rule). A link to a folder is a
    folder.

    :raises FileNotFoundError: when there is no such file or folder.
    :raises CatalogUnavailableError: when it, or a folder below it, cannot be listed; names the folder.
    """
    system, path = _file_system(uri)
    system.invalidate_cache()
    infos = found(system, path) if is_object_store(uri) else data_files(system, path)
    if not infos and info_of(system, path) is None:
        raise FileNotFoundError(uri)
    root = path.rstrip("/")
    return {
        system.unstrip_protocol(name): info
        for name, info in sorted(infos.items())
        # An object store marks an empty folder by an object whose name ends with a slash.
        if not name.endswith("/") and not is_hidden(name[len(root) :])
    }


def fingerprint(files: Mapping[str, Mapping[str, object]]) -> str:
    """Identity of a set of files: every name, size and time or tag of the last change."""
    digest = hashlib.sha256()
    for name, info in files.items():
        changed = next((info[key] for key in ("ETag", "etag", *_TIMES) if key in info), "")
        digest.update(f"{name}\0{info.get('size')}\0{changed}\n".encode())
    return f"files:{digest.hexdigest()[:16]}"


@as_os_errors()
def delete_folder(uri: str) -> None:
    """Delete a folder with everything below it; a missing one is fine."""
    system, path = _file_system(uri)
    with suppress(FileNotFoundError):
        system.rm(path, recursive=True)


@dataclass(frozen=True, slots=True)
class Deleted:
    """How many files were deleted, and their size in bytes."""

    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder: its path within the file system, when it changed last if that is known, and its size in bytes."""

    path: str
    changed_at: datetime | None
    bytes: int
    is_folder: bool


def plain_path(uri: str) -> str:
    """The path of a URI within its file system, the same however the URI spells it (``s3://`` or ``s3a://``)."""
    return _file_system(uri)[1].rstrip("/")


def list_entries(uri: str) -> list[Entry]:
    """Everything below a folder, whatever its name; nothing when there is no such folder. Links are not followed.

    :raises CatalogUnavailableError: when it, or a folder below it, cannot be listed; names the folder.
    """
    system, path = _file_system(uri)
    system.invalidate_cache()
    infos = found(system, path, withdirs=True) if is_object_store(uri) else everything(system, path)
    return [
        Entry(name.rstrip("/"), _changed_at(info), int(info.get("size") or 0), info["type"] == "directory")
        for name, info in sorted(infos.items())
        if name.rstrip("/") != path.rstrip("/")
    ]


@as_os_errors()
def delete_entries(uri: str, entries: Iterable[Entry]) -> Deleted:
    """Delete files, and folders that are empty then; those that are gone already are fine.

    :param uri: a URI of the file system that they are on.
    :return: how many files, and their bytes.
    """
    system, _ = _file_system(uri)
    deleted: list[int] = []
    for entry in sorted(entries, key=lambda entry: entry.path, reverse=True):  # what is in a folder comes before it
        if entry.is_folder:
            with suppress(OSError):  # not empty
                system.rmdir(entry.path)
        else:
            with suppress(FileNotFoundError):
                system.rm_file(entry.path)
                deleted.append(entry.bytes)
    return Deleted(len(deleted), sum(deleted))


@as_os_errors()
def delete_files(folder: str, uris: Iterable[str]) -> None:
    """Delete files below a folder, and the folders in it that are empty then; missing ones are fine."""
    root = plain_path(folder)
    for uri in uris:
        system, path = _file_system(uri)
        with suppress(FileNotFoundError):
            system.rm_file(path)
        with suppress(OSError):  # not empty, or no folder at all in an object store
            while len(path := path.rpartition("/")[0]) > len(root):
                system.rmdir(path)


def _changed_at(info: Mapping[str, Any]) -> datetime | None:
    changed = next((info[key] for key in _TIMES if info.get(key)), None)
    if isinstance(changed, int | float):
        return datetime.fromtimestamp(changed, UTC)
    if isinstance(changed, str):
        changed = datetime.fromisoformat(changed)
    return changed if isinstance(changed, datetime) and changed.tzinfo else None


def _file_system(uri: str) -> tuple[fsspec.AbstractFileSystem, str]:
    try:
        system, path = fsspec.core.url_to_fs(uri)
        return system, path
    except ImportError as error:
        scheme = uri.split(":", 1)[0]
        if scheme in EXTRAS:
            raise MissingExtraError(EXTRAS[scheme]) from error
        raise ConfigurationError(f"{uri}: {error}") from error
    except ValueError as error:
        raise ConfigurationError(f"{uri}: no file system for this address ({error})") from error
