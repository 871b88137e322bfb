"""Files by fsspec: listing, reading, writing and deleting, in folders and object stores.

Folders that cannot be listed are errors; fsspec's own walk treats them as empty. Files are deleted only in a folder given by the
caller, and links are never followed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import fsspec

from airflow_dynamic_tables.core.schema import is_hidden
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConfigurationError, MissingExtraError

_OBJECT_STORES = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "azure", "abfss": "azure"}
"""The extra of this package with the client of an object store's scheme."""

_EXTRAS = {**_OBJECT_STORES, "hdfs": "hdfs"}

_CLIENTS = frozenset({"adlfs", "aiohttp", "azure", "botocore", "gcsfs", "google", "hdfs_native"})
"""Packages of clients whose errors are not ``OSError``."""


@contextmanager
def as_os_errors() -> Iterator[None]:
    """Convert errors of object store clients to ``OSError``.

    :raises OSError: in particular when a connection is lost.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) or _CLIENTS.isdisjoint({_package(type(error).__module__), _raised_in(error)}):
            raise
        raise OSError(str(error).partition(r"\n\tat")[0].rstrip(".")) from error  # without the stack of a Java server


def _package(module: str) -> str:
    return module.partition(".")[0]


def _raised_in(error: Exception) -> str:
    """Return the package that raised an error: that of HDFS raises RuntimeError."""
    *_, (frame, _line) = traceback.walk_tb(error.__traceback__)
    return _package(str(frame.f_globals["__name__"]))


def is_object_store(uri: str) -> bool:
    """Return whether a URI is in an object store, by its scheme."""
    return uri.partition(":")[0] in _OBJECT_STORES


FileSystem: TypeAlias = Any
"""A file system of fsspec, which is untyped."""


def data_files(system: FileSystem, path: str) -> dict[str, Mapping[str, Any]]:
    """Files below a folder, or the file itself; hidden folders are skipped, because others may delete them at any time."""
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
    """Files and folders below a folder; entries that are deleted concurrently may be missing."""
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
    """List an object store, as :func:`data_files` or :func:`everything`: a call lists a thousand objects, and there are no
    folders.
    """
    with _listing(path):
        infos: dict[str, Mapping[str, Any]] = system.find(path, withdirs=withdirs, detail=True)
        # Of the path of a file, adlfs returns the name alone.
        return infos if isinstance(infos, dict) else {name: system.info(name) for name in infos}


def info_of(system: FileSystem, path: str) -> Mapping[str, Any] | None:
    """fsspec's info of a file or folder, ``None`` when it does not exist; all other errors are raised."""
    with _listing(path):
        try:
            info: Mapping[str, Any] = system.info(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
    return info


def _is_folder(system: FileSystem, info: Mapping[str, Any]) -> bool:
    """Return whether an entry is a folder or a link to one; only a local disk has links.

    :raises CatalogUnavailableError: when the link leads to a folder that contains it, which would never end.
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
    try:
        with as_os_errors():
            yield
    except OSError as error:
        raise CatalogUnavailableError(f"{folder} cannot be listed: {error.strerror or error}.") from error


_TIMES = ("mtime", "LastModified", "last_modified", "updated")
"""Keys of fsspec's info that hold the time of the last change."""

_TAGS = ("ETag", "etag")
"""Keys that hold an identifier of the content."""

_CREATED = "created"
"""Key that holds the time when a local file or its metadata last changed, which cannot be set back."""

SETTLED = timedelta(seconds=2)
"""The coarsest resolution of file timestamps: a file changed within it may change again without a visible difference."""

_BEHIND = timedelta(minutes=5)
"""The maximum lag of a file server's clock.

With timestamps in whole seconds, a file that changed that long ago by the local clock may have changed within the server's
current second.
"""


@as_os_errors()
def read_text(uri: str) -> str:
    """Read a small file.

    :raises FileNotFoundError: when it is not there.
    """
    system, path = file_system(uri)
    system.invalidate_cache()  # a listing before another process wrote the file does not have it
    return str(system.read_text(path, encoding="utf-8"))


def write_text(uri: str, text: str, *, private: bool = False) -> None:
    """Write a small file, creating its folders.

    :param private: a new file is readable by its owner only, where files have owners.
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
    """Create a folder and its parents from ``first`` on, accessible by their owner only, where files have owners.

    :raises CatalogUnavailableError: when they cannot be created.
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
    """Open a file for random-access reading of bytes.

    :raises FileNotFoundError: when it does not exist.
    """
    system, path = file_system(uri)
    return system.open(path, "rb")


def create_file(uri: str) -> Any:
    """Open a new file for writing bytes, creating its folders."""
    system, path = file_system(uri)
    system.makedirs(path.rpartition("/")[0], exist_ok=True)
    return system.open(path, "wb")


def exists(uri: str) -> bool:
    """Return whether a file or folder exists.

    :raises CatalogUnavailableError: when that cannot be determined, because of missing permissions or no response.
    """
    system, path = file_system(uri)
    system.invalidate_cache()
    return info_of(system, path) is not None


@as_os_errors()
def create_text(uri: str, text: str) -> None:
    """Write a small file that does not exist yet, creating its folders; a failed write leaves no file behind.

    :raises FileExistsError: when the file exists.
    """
    system, path = file_system(uri)
    system.makedirs(path.rpartition("/")[0], exist_ok=True)
    try:
        system.pipe_file(path, text.encode("utf-8"), mode="create")  # one request, whose condition every store checks
    except FileExistsError:
        raise
    except OSError:
        with suppress(OSError):
            system.rm(path)
        raise


def keep_names(folder: Path) -> None:
    """Sync the names in a local folder to disk, so that they survive a power failure.

    :raises OSError: when the disk fails or does not support it.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@as_os_errors()
def move_file(uri: str, target: str) -> None:
    """Rename a file within a file system, creating its folders; copied where the store cannot rename."""
    system, path = file_system(uri)
    _, other = file_system(target)
    system.makedirs(other.rpartition("/")[0], exist_ok=True)
    system.mv(path, other)


@as_os_errors()
def move_folder(uri: str, target: str) -> None:
    """Rename a folder within a file system; a missing one is ignored, as after an interrupted move.

    Files that were already moved stay where they are. An object store, which has no folders, copies each file.
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
    with suppress(FileNotFoundError):  # a folder of an object store disappears with its last file
        system.rm(path, recursive=True)


@as_os_errors()
def copy_file(uri: str, target: str) -> None:
    """Copy a file within a file system, creating its folders; server-side where the store supports it."""
    system, path = file_system(uri)
    _, other = file_system(target)
    system.makedirs(other.rpartition("/")[0], exist_ok=True)
    system.cp_file(path, other)


def list_files(uri: str) -> dict[str, Mapping[str, Any]]:
    """Data files below a folder: full URI to fsspec's info (``size``, and a time or tag of the last change).

    Names that begin with a dot or an underscore, or are in such a folder, are not data (Spark's rule). A link to a folder counts
    as a folder. URIs in an object store begin as ``uri``: Spark knows ``s3a://`` and often no ``s3://``, and a URI of Azure names
    the account, which its path does not.

    :raises FileNotFoundError: when the file or folder does not exist.
    :raises CatalogUnavailableError: names a folder that cannot be listed.
    """
    system, path = file_system(uri)
    system.invalidate_cache()
    infos = found(system, path) if is_object_store(uri) else data_files(system, path)
    if not infos and info_of(system, path) is None:
        raise FileNotFoundError(uri)
    root = path.rstrip("/")
    return {
        f"{uri.rstrip('/')}{name[len(root) :]}" if is_object_store(uri) else system.unstrip_protocol(name): info
        for name, info in sorted(infos.items())
        # An object store marks an empty folder by an object whose name ends with a slash.
        if not name.endswith("/") and not is_hidden(name[len(root) :])
    }


def fingerprint(files: Mapping[str, Mapping[str, object]]) -> str:
    """Identity of a set of files: a digest of every name, size, and time or tag of the last change."""
    digest = hashlib.sha256()
    for name, info in files.items():
        changed = _tag(info) or next((info[key] for key in _TIMES if key in info), "")
        moment = "" if _tag(info) else info.get(_CREATED, "")
        digest.update(f"{name}\0{info.get('size')}\0{changed}\0{moment}\n".encode())
    return f"files:{digest.hexdigest()[:16]}"


def is_settled(info: Mapping[str, object], seen_at: datetime) -> bool:
    """Return whether a later change of a file would alter its :func:`fingerprint`, as git checks files against its index.

    Of a link, only the size of its target is known. Timestamps with fractions of a second distinguish changes despite clock skew.

    :param seen_at: a timezone-aware time before the file was examined.
    """
    if _tag(info):
        return True
    changed = changed_at(info)
    if changed is None or info.get("islink"):
        return False
    created = info.get(_CREATED)
    is_fine = changed.microsecond > 0 or (isinstance(created, float) and not created.is_integer())
    return changed < seen_at - (SETTLED if is_fine else SETTLED + _BEHIND)


def _tag(info: Mapping[str, object]) -> object:
    return next((info[key] for key in _TAGS if info.get(key)), None)


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file, folder or link: its path within the file system, the time of its last change if known, and its size in bytes.

    A folder of an object store has a time if an object marks it, as Hadoop's client writes one for an empty folder.
    """

    path: str
    changed_at: datetime | None
    bytes: int
    is_folder: bool
    is_link: bool = False


def real_path(uri: str) -> str:
    """As :func:`plain_path`, with ``..`` and links resolved."""
    return _resolved(*file_system(uri))


def _resolved(system: FileSystem, path: str) -> str:
    return os.path.realpath(path) if "file" in system.protocol else posixpath.normpath(path)


def plain_path(uri: str) -> str:
    """The path of a URI within its file system, independent of the URI's spelling (``s3://`` or ``s3a://``)."""
    return file_system(uri)[1].rstrip("/")


def paths_below(uri: str, files: Iterable[str]) -> dict[str, str]:
    """The paths of files of the same scheme relative to a folder that contains them."""
    system, root = file_system(uri)
    start = len(root.rstrip("/")) + 1
    return {file: system._strip_protocol(file).rstrip("/")[start:] for file in files}


def list_entries(uri: str) -> list[FileEntry]:
    """All entries below a folder; empty when there is no such folder. Links are not followed.

    :raises CatalogUnavailableError: names a folder that cannot be listed.
    """
    system, path = file_system(uri)
    system.invalidate_cache()
    infos = found(system, path, withdirs=True) if is_object_store(uri) else everything(system, path)
    entries = {
        name.rstrip("/"): FileEntry(
            path=name.rstrip("/"),
            changed_at=changed_at(info),
            bytes=int(info.get("size") or 0),
            is_folder=info["type"] == "directory" or name.endswith("/"),
            is_link=bool(info.get("islink")),
        )
        for name, info in sorted(infos.items())  # the object that marks a folder follows the folder
    }
    entries.pop(path.rstrip("/"), None)
    return list(entries.values())


def changed_at(info: Mapping[str, Any]) -> datetime | None:
    """Return the time of the last change of a file, by its attributes; ``None`` if it is unknown."""
    changed = next((info[key] for key in _TIMES if info.get(key)), None)
    if isinstance(changed, int | float):
        return datetime.fromtimestamp(changed, UTC)
    if isinstance(changed, str):
        changed = datetime.fromisoformat(changed)
    return changed if isinstance(changed, datetime) and changed.tzinfo else None


def last_changed(infos: Iterable[Mapping[str, Any]]) -> datetime | None:
    """Return the time of the last change of some files, by their attributes; ``None`` if that of one is unknown."""
    times = [changed_at(info) for info in infos]
    known = [time for time in times if time is not None]
    return max(known) if known and len(known) == len(times) else None


def file_system(uri: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """The file system of a URI, and the path in it.

    :raises ConfigurationError: when no file system handles such a URI.
    :raises MissingExtraError: when its client is not installed.
    """
    scheme = uri.partition(":")[0]
    try:
        if scheme == "hdfs":
            from airflow_dynamic_tables.clients.hdfs import HadoopFileSystem  # an extra

            address = urlsplit(uri)
            return HadoopFileSystem(address.hostname, address.port), HadoopFileSystem._strip_protocol(uri)
        system, path = fsspec.core.url_to_fs(uri)
        return system, path
    except ImportError as error:
        if scheme in _EXTRAS:
            raise MissingExtraError(_EXTRAS[scheme]) from error
        raise ConfigurationError(f"{uri}: {error}") from error
    except ValueError as error:
        raise ConfigurationError(f"{uri}: no file system for this address ({error})") from error


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

    :raises ConfigurationError: when it is not in that folder.
    """
    system, path = file_system(uri)
    _Inside(root).check(path)
    with suppress(FileNotFoundError):
        system.rm(path, recursive=True)
    if "s3" in system.protocol:
        _abort_uploads(system, path)


def _abort_uploads(system: FileSystem, folder: str) -> None:
    """Abort the multipart uploads below a folder, as a killed Spark leaves them: a bucket keeps their parts without listing them.

    Does nothing where this process may not list or abort them.
    """
    bucket, key, _ = system.split_path(folder)
    page: Mapping[str, Any] = {"IsTruncated": True}
    with suppress(OSError), as_os_errors():
        while page["IsTruncated"]:
            after = {marker: page[f"Next{marker}"] for marker in ("KeyMarker", "UploadIdMarker") if f"Next{marker}" in page}
            page = system.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=f"{key}/", **after)
            for upload in page.get("Uploads", ()):
                system.call_s3("abort_multipart_upload", Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])


@as_os_errors()
def delete_entries(root: str, entries: Iterable[FileEntry]) -> Deleted:
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
        if entry.is_folder and is_object_store(root):
            if entry.changed_at is not None:
                system.rm_file(f"{entry.path}/")
        elif entry.is_folder:
            with suppress(OSError), as_os_errors():  # not empty
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
        with suppress(OSError), as_os_errors():  # not empty, or an object store without folders
            while len(path := path.rpartition("/")[0]) > len(inside.path):
                system.rmdir(path)


class _Inside:
    """Checks that paths are below a folder, both by name and after resolving links."""

    def __init__(self, root: str) -> None:
        self._system, path = file_system(root)
        self.path = path.rstrip("/")
        self._root = root
        self._real = _resolved(self._system, path)
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
            real = _resolved(self._system, folder)
            if real != self._real and not real.startswith(f"{self._real}/"):
                return False
            self._known.add(folder)
        return True
