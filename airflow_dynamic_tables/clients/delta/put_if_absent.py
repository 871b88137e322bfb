"""Atomic put-if-absent, the commit primitive of a Delta log.

A call has three outcomes: written, certainly not written, or unknown.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from airflow_dynamic_tables.clients.files import file_system, keep_names
from airflow_dynamic_tables.clients.object_stores import as_os_errors
from airflow_dynamic_tables.exceptions import CommitRejectedError, CommitUnknownError, UnsupportedError

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
    if "s3" in system.protocol:
        return _put(system, path, content)
    raise UnsupportedError(
        f"{uri}: Delta tables are committed on a local disk or in S3; of {uri.partition(':')[0]} it is not known here how to "
        "write a file only when there is none."
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


def _put(system: Any, path: str, content: bytes) -> bool:
    """Conditional put (``If-None-Match: *``) in a bucket whose store is known to enforce the condition."""
    _prove(system, path.rpartition("/")[0])
    try:
        with as_os_errors():
            system.pipe_file(path, content, mode="create", chunksize=_WHOLE)
    except OSError as error:
        is_there = _is_there(system, path)
        if is_there and (_is_taken(error) or isinstance(error, PermissionError)):
            return False  # an earlier attempt of the same request may have succeeded
        if isinstance(error, PermissionError) and is_there is False:
            raise _refused(path, error) from error
        if error.errno in _NO_CONDITION:
            raise _no_condition(path) from error
        raise CommitUnknownError(f"Nobody knows whether {path} was written ({error}).") from error
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
    """Check, once per process and bucket, that the store enforces the condition; some stores ignore it and overwrite silently.

    :raises UnsupportedError: when the store overwrites.
    :raises CommitRejectedError: when the check fails; nothing was committed.
    """
    bucket = f"{system.endpoint_url or (system.client_kwargs or {}).get('endpoint_url')}/{folder.partition('/')[0]}"
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
