"""Small files and listings on any file system that fsspec reaches."""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fsspec

from airflow_dynamic_tables.clients.listings import data_files, everything, found, info_of
from airflow_dynamic_tables.clients.object_stores import EXTRAS, as_os_errors, is_object_store
from airflow_dynamic_tables.core.tables.data_files import is_hidden
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConfigurationError, MissingExtraError

_TIMES = ("mtime", "LastModified", "last_modified", "updated")
"""Where fsspec's file systems say when a file was changed last."""

_TAGS = ("ETag", "etag")
"""Where they say what tells the content of a file from any other."""

_CREATED = "created"
"""Where a local disk says when a file, or what is said of it, was changed last: nobody can set that time back."""

SETTLED = timedelta(seconds=2)
"""The coarsest clock that stamps files: what was changed since then may change again and look the same."""

_BEHIND = timedelta(minutes=5)
"""How far the clock of a file server may be behind ours. Where it stamps whole seconds, what was changed so long ago by our clock
may have been changed in this second of its."""


@as_os_errors()
def read_text(uri: str) -> str:
    """Read a small file.

    :raises FileNotFoundError: when it is not there.
    """
    system, path = file_system(uri)
    return str(system.read_text(path, encoding="utf-8"))


def write_text(uri: str, text: str, *, private: bool = False) -> None:
    """Write a small file, making its folders.

    :param private: a new file is for its owner only, where files have owners.
    :raises CatalogUnavailableError: when it cannot be written.
    """
    system, path = file_system(uri)
    try:
        with as_os_errors():
            system.makedirs(path.rpartition("/")[0], exist_ok=True)
            if private and "file" in system.protocol:
                _write_private(path, text)
            else:
                system.write_text(path, text, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise CatalogUnavailableError(f"{uri} cannot be written: {reason}; check room and permissions there.") from error


def _write_private(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as stream:
        stream.write(text)


def make_private_folders(uri: str, first: str) -> None:
    """Make a folder, and those on the way to it from ``first`` on, for their owner only, where files have owners.

    :raises CatalogUnavailableError: when they cannot be made.
    """
    system, path = file_system(uri)
    if "file" not in system.protocol:
        return
    outermost, folder = Path(file_system(first)[1]), Path(path)
    try:
        outermost.parent.mkdir(parents=True, exist_ok=True)
        for made in (*reversed([one for one in folder.parents if one.is_relative_to(outermost)]), folder):
            made.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise CatalogUnavailableError(f"{uri} cannot be made: {error.strerror}; check room and permissions there.") from error


def open_file(uri: str) -> Any:
    """Open a file for reading bytes, from any place in it.

    :raises FileNotFoundError: when it is not there.
    """
    system, path = file_system(uri)
    return system.open(path, "rb")


def create_file(uri: str) -> Any:
    """Open a new file for writing bytes, making its folders."""
    system, path = file_system(uri)
    system.makedirs(path.rpartition("/")[0], exist_ok=True)
    return system.open(path, "wb")


def exists(uri: str) -> bool:
    """Whether there is such a file or folder.

    :raises CatalogUnavailableError: when nobody can tell, for want of a permission or of an answer.
    """
    system, path = file_system(uri)
    system.invalidate_cache()
    return info_of(system, path) is not None


@as_os_errors()
def create_text(uri: str, text: str) -> None:
    """Write a small file that nobody has written yet, making its folders; when there is no room for it, there is no file.

    :raises FileExistsError: when somebody has.
    """
    system, path = file_system(uri)
    system.makedirs(path.rpartition("/")[0], exist_ok=True)
    try:
        with system.open(path, "xb") as stream:
            stream.write(text.encode("utf-8"))
    except FileExistsError:
        raise
    except OSError:
        with suppress(OSError):
            system.rm(path)
        raise


def keep_names(folder: Path) -> None:
    """Have the names in a folder of a local disk survive a power cut.

    :raises OSError: when the disk fails, or cannot do that.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@as_os_errors()
def move_file(uri: str, target: str) -> None:
    """Give a file another name on the same file system, making its folders; copied where there is no renaming."""
    system, path = file_system(uri)
    _, other = file_system(target)
    system.makedirs(other.rpartition("/")[0], exist_ok=True)
    system.mv(path, other)


@as_os_errors()
def move_folder(uri: str, target: str) -> None:
    """Give a folder another name on the same file system; a missing one is fine, as after a move that somebody cut short.

    Files of it that were moved before stay where they are. An object store, which has no folders, copies each.
    """
    system, path = file_system(uri)
    _, other = file_system(target)
    if not system.exists(path):
        return
    if not is_object_store(uri) and not system.exists(other):
        system.makedirs(other.rpartition("/")[0], exist_ok=True)
        system.mv(path, other, recursive=True)
        return
    for file in system.find(path):
        system.makedirs(f"{other}{file[len(path) :]}".rpartition("/")[0], exist_ok=True)
        system.mv(file, f"{other}{file[len(path) :]}")
    with suppress(FileNotFoundError):  # a folder of an object store is gone with its last file
        system.rm(path, recursive=True)


@as_os_errors()
def copy_file(uri: str, target: str) -> None:
    """Copy a file on the same file system, making its folders; by the store itself where it can."""
    system, path = file_system(uri)
    _, other = file_system(target)
    system.makedirs(other.rpartition("/")[0], exist_ok=True)
    system.cp_file(path, other)


def list_files(uri: str) -> dict[str, Mapping[str, Any]]:
    """Data files below a folder: full URI to fsspec's info (``size``, and a time or tag of the last change).

    Names that begin with a dot or an underscore, or lie in such a folder, are not data (Spark's rule). A link to a folder is a
    folder.

    :raises FileNotFoundError: when there is no such file or folder.
    :raises CatalogUnavailableError: when it, or a folder below it, cannot be listed; names the folder.
    """
    system, path = file_system(uri)
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
        changed = _tag(info) or next((info[key] for key in _TIMES if key in info), "")
        moment = "" if _tag(info) else info.get(_CREATED, "")
        digest.update(f"{name}\0{info.get('size')}\0{changed}\0{moment}\n".encode())
    return f"files:{digest.hexdigest()[:16]}"


def is_settled(info: Mapping[str, object], seen_at: datetime) -> bool:
    """Whether a later change of a file would show in its :func:`fingerprint`, as git asks it of files beside its index.

    Of a link only the size of what it leads to is known. Fractions of a second tell two changes apart, whatever clock is off.

    :param seen_at: a time, timezone-aware, before the file was looked at.
    """
    if _tag(info):
        return True
    changed = _changed_at(info)
    if changed is None or info.get("islink"):
        return False
    created = info.get(_CREATED)
    is_fine = changed.microsecond > 0 or (isinstance(created, float) and not created.is_integer())
    return changed < seen_at - (SETTLED if is_fine else SETTLED + _BEHIND)


def _tag(info: Mapping[str, object]) -> object:
    return next((info[key] for key in _TAGS if info.get(key)), None)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, folder or link: its path within the file system, when it changed last if that is known, and its size in bytes."""

    path: str
    changed_at: datetime | None
    bytes: int
    is_folder: bool
    is_link: bool = False


def real_path(uri: str) -> str:
    """As :func:`plain_path`, without any ``..``, and with every link on the way followed where there are links."""
    system, path = file_system(uri)
    return os.path.realpath(path) if "file" in system.protocol else posixpath.normpath(path)


def plain_path(uri: str) -> str:
    """The path of a URI within its file system, the same however the URI spells it (``s3://`` or ``s3a://``)."""
    return file_system(uri)[1].rstrip("/")


def list_entries(uri: str) -> list[Entry]:
    """Everything below a folder, whatever its name; nothing when there is no such folder. Links are not followed.

    :raises CatalogUnavailableError: when it, or a folder below it, cannot be listed; names the folder.
    """
    system, path = file_system(uri)
    system.invalidate_cache()
    infos = found(system, path, withdirs=True) if is_object_store(uri) else everything(system, path)
    return [
        Entry(
            path=name.rstrip("/"),
            changed_at=_changed_at(info),
            bytes=int(info.get("size") or 0),
            is_folder=info["type"] == "directory",
            is_link=bool(info.get("islink")),
        )
        for name, info in sorted(infos.items())
        if name.rstrip("/") != path.rstrip("/")
    ]


def _changed_at(info: Mapping[str, Any]) -> datetime | None:
    changed = next((info[key] for key in _TIMES if info.get(key)), None)
    if isinstance(changed, int | float):
        return datetime.fromtimestamp(changed, UTC)
    if isinstance(changed, str):
        changed = datetime.fromisoformat(changed)
    return changed if isinstance(changed, datetime) and changed.tzinfo else None


def file_system(uri: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """The file system of a URI, and the path in it.

    :raises ConfigurationError: when there is none for such a URI.
    :raises MissingExtraError: when its client is not installed.
    """
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
