"""The log of a Delta table: reading its entries, and writing one by an atomic put-if-absent."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from airflow_dynamic_tables.clients.files import as_os_errors, file_system, is_object_store, keep_names, list_entries, open_file
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, CommitRejectedError, CommitUnknownError, UnsupportedError

_T = TypeVar("_T")

_PROBE = ".dynamic-tables-probe"
"""A file beside the log's entries, used to check that the store refuses to overwrite an existing object."""

_proven: set[str] = set()
"""Addresses of the buckets that passed this check in this process."""

_TAKEN = {errno.EEXIST, errno.EINVAL, errno.EBUSY}
"""Error numbers of a conditional put when the object exists or another put of it is in progress; existence is then checked."""

_WHOLE = 3 * 2**30
"""Part size in bytes; two parts exceed the limit of a store. The condition is only proven for objects written in one request."""

_NO_CONDITION = {errno.ENOSYS, errno.ENOTSUP}


def put_if_absent(uri: str, content: bytes) -> bool:
    """Write a file if it does not exist, creating its folders; False when it exists or was written concurrently.

    A client may resend its request after a lost response, so the existing file can be the one that this call wrote.

    :raises CommitRejectedError: when the file was certainly not written.
    :raises CommitUnknownError: when the outcome is unknown.
    :raises UnsupportedError: when the store has no put-if-absent; nothing was written.
    """
    system, path = file_system(uri)
    if "file" in system.protocol:
        return _link(Path(path), content)
    if is_object_store(uri):
        return _put(system, path, content)
    if "hdfs" in system.protocol:
        return _rename(system, path, content)
    raise UnsupportedError(
        f"{uri}: Delta tables are committed on a local disk, in S3, Google Cloud Storage, Azure or HDFS; of "
        f"{uri.partition(':')[0]} it is not known here how to write a file only when there is none."
    )


def _link(target: Path, content: bytes) -> bool:
    """Hard-link a complete file to its name: linking fails when the name exists, and no reader sees a partial file."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            is_new = _link_once(target, content)
        except FileNotFoundError:  # another engine, or a cleanup with a fast clock, removed the file before it was linked
            is_new = _link_once(target, content)
    except OSError as error:
        todo = "check that the folder is there and that this process may write to it, and that its disk has room and knows links"
        raise CommitRejectedError(f"{target} could not be written, so nothing was committed: {error}; {todo}.") from error
    if is_new:
        with suppress(OSError):  # the file is already visible, even where folders cannot be synced
            _keep(target)
    return is_new


def _link_once(target: Path, content: bytes) -> bool:
    whole = target.parent / f".{target.name}.{uuid4().hex}.tmp"
    try:
        _write(whole, content)
        return _linked(whole, target)
    finally:
        with suppress(OSError):
            whole.unlink()


def _keep(target: Path) -> None:
    """Sync a file's name, and that of its folder, which may be new, to disk."""
    for folder in target.parents[:2]:
        keep_names(folder)


def _write(file: Path, content: bytes) -> None:
    with file.open("xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _linked(whole: Path, target: Path) -> bool:
    try:
        os.link(whole, target)
    except OSError as error:
        if whole.stat().st_nlink > 1:  # a file server linked the file, but its response was lost
            return True
        if isinstance(error, FileExistsError):
            return False
        raise
    return True


def _rename(system: Any, path: str, content: bytes) -> bool:
    """Rename a complete file to its name: HDFS refuses this when the name exists."""
    folder, _, name = path.rpartition("/")
    whole = f"{folder}/.{name}.{uuid4().hex}.tmp"
    try:
        with as_os_errors():
            system.makedirs(folder, exist_ok=True)
            system.pipe_file(whole, content)
    except OSError as error:
        todo = "check that HDFS has room, and that this process may write there"
        raise CommitRejectedError(f"{path} could not be written, so nothing was committed: {error}; {todo}.") from error
    try:
        with as_os_errors():
            system.client.rename(whole, path, overwrite=False)
    except OSError as error:
        if _is_there(system, whole) is not False:  # otherwise only the answer was lost
            if _is_there(system, path):
                return False
            raise CommitUnknownError(f"It is unknown whether {path} was written ({error}).") from error
    finally:
        with suppress(OSError), as_os_errors():
            system.rm_file(whole)
    return True


def _put(system: Any, path: str, content: bytes) -> bool:
    """Conditional put in a bucket whose store is known to enforce the condition.

    It is ``If-None-Match: *`` in S3 and Azure, and ``ifGenerationMatch=0`` in Google Cloud Storage.
    """
    _prove(system, path.rpartition("/")[0])
    # Of Azure, the condition is that of the last request, which makes the parts an object.
    in_one_request = {} if "abfs" in system.protocol else {"chunksize": _WHOLE}
    try:
        with as_os_errors():
            system.pipe_file(path, content, mode="create", **in_one_request)
    except OSError as error:
        is_there = _is_there(system, path)
        if is_there and (_is_taken(error) or isinstance(error, PermissionError)):
            return False  # an earlier attempt of the same request may have succeeded
        if isinstance(error, PermissionError) and is_there is False:
            raise _refused(path, error) from error
        if error.errno in _NO_CONDITION:
            raise _no_condition(path) from error
        raise CommitUnknownError(f"It is unknown whether {path} was written ({error}).") from error
    return True


def _is_taken(error: OSError) -> bool:
    return isinstance(error, FileExistsError) or error.errno in _TAKEN  # s3fs raises FileExistsError without a number


def _is_there(system: Any, path: str) -> bool | None:
    """Return whether the object exists; ``None`` when the store does not answer."""
    try:
        with as_os_errors():
            system.invalidate_cache()
            return bool(system.exists(path))
    except OSError:
        return None


def _prove(system: Any, folder: str) -> None:
    """Check, once per process and bucket, that the store enforces the condition; some stores ignore it and overwrite silently."""
    bucket = f"{system.protocol}{system.storage_options}/{folder.partition('/')[0]}"
    if bucket in _proven:
        return
    probe = f"{folder}/{_PROBE}"
    for _ in range(2):  # the first put may create the probe
        try:
            with as_os_errors():
                system.pipe_file(probe, b"", mode="create")
        except PermissionError as error:
            raise _refused(probe, error) from error
        except OSError as error:
            if _is_taken(error) and _is_there(system, probe):
                _proven.add(bucket)
                return
            if error.errno in _NO_CONDITION:
                raise _no_condition(probe) from error
            raise CommitRejectedError(f"{probe} cannot be written, so nothing was committed: {error}") from error
    raise _no_condition(probe)


def _refused(path: str, error: OSError) -> CommitRejectedError:
    return CommitRejectedError(f"{path} may not be written, so nothing was committed: {error}; give this process the permission.")


def _no_condition(path: str) -> UnsupportedError:
    return UnsupportedError(
        f"The store of {path} does not know conditional puts (If-None-Match), so two commits of a Delta table could overwrite "
        "one another; use format iceberg there, or another store."
    )


Action = Mapping[str, Mapping[str, Any]]
"""One line of an entry: the action's kind, such as ``add`` or ``commitInfo``, and its content."""

_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.(?:(?:\d{10}\.(\d{10})\.|[0-9a-f-]{36}\.)?parquet|[0-9a-f-]{36}\.json)")
"""A single-file checkpoint, one part of a multi-part checkpoint, or a v2 checkpoint that refers to sidecar files."""

_OF_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*")

FOLDER = "_delta_log"
"""The folder of a table's log."""

_TOGETHER = 16
"""Entries read in parallel, because each read from an object store has high latency."""

_ENTRIES_TOGETHER = 4
"""Entries read completely in parallel; one of a large commit needs much memory."""


class DeltaLog:
    """The log of the table at ``location``, a URI without a trailing slash."""

    def __init__(self, location: str) -> None:
        self.location = location

    def uri(self, version: int) -> str:
        """The URI of a version's entry, whether or not it exists."""
        return f"{self.location}/{FOLDER}/{version:020d}.json"

    def versions(self) -> list[int]:
        """The versions whose entries can be read, ascending and without gaps, from version 0 or a checkpoint on.

        Earlier entries are ignored: a log cleanup may be deleting them, or they were written too late for any reader to use.

        :raises CatalogUnavailableError: when the log cannot be listed.
        """
        names = self._names()
        entries = _numbers(_ENTRY, names)
        known = {*entries}
        gap = next((entry for entry in reversed(entries) if entry - 1 not in known), 0)
        checkpoints = _whole_checkpoints(names)
        # Versions after the newest checkpoint are read from there. Entries after an older one may have been written too late.
        starts = {0, *checkpoints, max(checkpoints, default=-1) + 1}
        start = min((entry for entry in entries if entry >= gap and entry in starts), default=None)
        return [entry for entry in entries if start is not None and entry >= start]

    def may_be_cut_off(self, version: int) -> bool:
        """Return whether a checkpoint covers a version, so that its entry may have been deleted. Raises as :meth:`versions`."""
        return max(_numbers(_OF_CHECKPOINT, self._names()), default=-1) >= version

    def checkpoints(self) -> list[int]:
        """The versions that have complete checkpoints, ascending. Raises as :meth:`versions`."""
        return [*_whole_checkpoints(self._names())]

    def newest_checkpoint(self) -> list[str]:
        """The URIs of the newest complete checkpoint's files. Raises as :meth:`versions`."""
        found = _whole_checkpoints(self._names())
        return [f"{self.location}/{FOLDER}/{name}" for name in (found[max(found)] if found else ())]

    def exists(self) -> bool:
        """Return whether a log exists; after a cleanup it may consist of a checkpoint alone. Raises as :meth:`versions`."""
        return any(_ENTRY.fullmatch(name) or _OF_CHECKPOINT.fullmatch(name) for name in self._names())

    def entry(self, version: int) -> list[Action] | None:
        """All actions of an entry, in order; ``None`` when the entry does not exist (any more).

        :raises CatalogUnavailableError: when the entry cannot be read, is malformed, or is empty.
        """
        actions = self._read(version, whole=True)
        if actions == []:
            raise CatalogUnavailableError(
                f"Entry {self.uri(version)} of the log is empty: a writer is writing it now, or was stopped before. "
                'If no writer is, put the line {"commitInfo":{}} into it.'
            )
        return actions

    def entries(self, versions: Iterable[int]) -> Iterator[list[Action] | None]:
        """The entries of several versions, in order and read lazily, because many large ones do not fit into memory.

        Raises as :meth:`entry`.
        """
        return (actions for _, actions in _read_lazily(self.entry, versions, _ENTRIES_TOGETHER))

    def info(self, version: int) -> Mapping[str, Any] | None:
        """The ``commitInfo`` of an entry; empty when it has none. ``None`` and errors as :meth:`entry`."""
        first = self._read(version, whole=False)
        if first is not None and not any("commitInfo" in action for action in first):
            first = self.entry(version)
        if first is None:
            return None
        return next((action["commitInfo"] or {} for action in first if "commitInfo" in action), {})

    def infos(self, versions: Iterable[int]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """The ``commitInfo`` of several versions, in order and read lazily; versions without an entry are skipped."""
        return ((version, info) for version, info in _read_lazily(self.info, versions, _TOGETHER) if info is not None)

    def put(self, version: int, actions: Sequence[Action]) -> bool:
        """Write an entry atomically; False when an entry of that number exists, possibly from a retry within this call.

        :raises CommitRejectedError: when the entry was certainly not written.
        :raises CommitUnknownError: when the outcome is unknown because the response was lost.
        :raises UnsupportedError: when the store has no atomic put-if-absent; nothing was written.
        """
        text = "".join(json.dumps(action, ensure_ascii=False, separators=(",", ":")) + "\n" for action in actions)
        return put_if_absent(self.uri(version), text.encode())

    def _names(self) -> list[str]:
        """Names directly in the log folder; its subfolders can hold checkpoint sidecars or a copy of the log."""
        split = (entry.path.rpartition("/") for entry in list_entries(f"{self.location}/{FOLDER}"))
        return [name for folder, _, name in split if folder.endswith(f"/{FOLDER}")]

    def _read(self, version: int, *, whole: bool) -> list[Action] | None:
        uri = self.uri(version)
        try:
            with as_os_errors(), open_file(uri) as stream:
                lines = stream if whole else [stream.readline()]
                actions = [json.loads(line) for line in lines if line.strip()]
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise CatalogUnavailableError(f"Entry {uri} of the log cannot be read: {error}") from error
        if not all(isinstance(action, dict) for action in actions):
            raise CatalogUnavailableError(f"Entry {uri} of the log cannot be read: it is no list of actions.")
        return actions


def _read_lazily(read: Callable[[int], _T], versions: Iterable[int], together: int) -> Iterator[tuple[int, _T]]:
    """Read several versions in order, each time more of them at once, because often only the first one is consumed."""
    waiting = list(versions)
    size = 1
    with ThreadPoolExecutor(together, thread_name_prefix="delta-log") as executor:
        while waiting:
            group, waiting = waiting[:size], waiting[size:]
            size = min(2 * size, together)
            yield from zip(group, executor.map(read, group), strict=True)


def _numbers(pattern: re.Pattern[str], names: Iterable[str]) -> list[int]:
    """The versions of the files that match a pattern, ascending."""
    return sorted({int(match[1]) for match in map(pattern.fullmatch, names) if match})


def _whole_checkpoints(names: Iterable[str]) -> dict[int, list[str]]:
    """The files of each complete checkpoint by version, ascending; incomplete checkpoints are ignored."""
    found: dict[tuple[int, int], list[str]] = {}
    for match in filter(None, map(_CHECKPOINT.fullmatch, names)):
        found.setdefault((int(match[1]), int(match[2] or 0)), []).append(match[0])
    return {version: files for (version, parts), files in sorted(found.items()) if len(files) == (parts or len(files))}
