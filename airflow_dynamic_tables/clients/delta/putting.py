"""Putting a file where there is none yet, whole or not at all: what a commit of a Delta table is, and nothing else.

Each of three outcomes says what it says: put, surely not put, or nobody knows.
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
"""A file beside the entries of a log by which a store shows that it refuses to write one that is there."""

_proven: set[str] = set()
"""Buckets, by their addresses, whose store has shown that in this process."""

_TAKEN = {errno.EEXIST, errno.EINVAL, errno.EBUSY}
"""What a conditional put may say when there is such an object, or another put of it is under way; then one looks again."""

_WHOLE = 3 * 2**30
"""Bytes of a part, two of which are more than a store takes at once. It is shown to heed the condition for whole objects only."""

_NO_CONDITION = {errno.ENOSYS, errno.ENOTSUP}


def put_if_absent(uri: str, content: bytes) -> bool:
    """Write a file that is not there yet, making its folders; False when it is there, or was made at the same moment.

    A client may send its request again after an answer was lost, so that the file that is there can be this very one.

    :raises CommitRejectedError: when it surely was not written.
    :raises CommitUnknownError: when nobody knows.
    :raises UnsupportedError: when the store cannot do that; nothing was written then.
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
    """A link to a whole file: it fails when the name is taken, and nobody ever reads a part."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            is_new = _link_once(target, content)
        except FileNotFoundError:  # another engine, or a maintenance whose clock is ahead, removed the file before it was linked
            is_new = _link_once(target, content)
    except OSError as error:
        todo = "check that the folder is there and that this process may write to it, and that its disk has room and knows links"
        raise CommitRejectedError(f"{target} could not be written, so nothing was committed: {error}; {todo}.") from error
    if is_new:
        with suppress(OSError):  # everybody reads it already, also where folders cannot be kept
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
    """Have the name of a file survive a power cut, and that of its folder, which may be new."""
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
        if whole.stat().st_nlink > 1:  # a file server has done it, and its answer was lost
            return True
        if isinstance(error, FileExistsError):
            return False
        raise
    return True


def _put(system: Any, path: str, content: bytes) -> bool:
    """A conditional put (``If-None-Match: *``), in a bucket whose store heeds the condition."""
    _prove(system, path.rpartition("/")[0])
    try:
        with as_os_errors():
            system.pipe_file(path, content, mode="create", chunksize=_WHOLE)
    except OSError as error:
        is_there = _is_there(system, path)
        if is_there and (_is_taken(error) or isinstance(error, PermissionError)):
            return False  # an earlier try of the same request may have landed
        if isinstance(error, PermissionError) and is_there is False:
            raise _refused(path, error) from error
        if error.errno in _NO_CONDITION:
            raise _no_condition(path) from error
        raise CommitUnknownError(f"Nobody knows whether {path} was written ({error}).") from error
    return True


def _is_taken(error: OSError) -> bool:
    return isinstance(error, FileExistsError) or error.errno in _TAKEN  # s3fs gives the one without a number


def _is_there(system: Any, path: str) -> bool | None:
    """Whether there is such an object; ``None`` when the store does not say."""
    try:
        with as_os_errors():
            system.invalidate_cache()
            return bool(system.exists(path))
    except OSError:
        return None


def _prove(system: Any, folder: str) -> None:
    """Check, once in a process, that a store does not simply overwrite: some do not know the condition, and do not say so.

    :raises UnsupportedError: when it does.
    :raises CommitRejectedError: when it cannot be asked; nothing was committed yet.
    """
    bucket = f"{system.endpoint_url or (system.client_kwargs or {}).get('endpoint_url')}/{folder.partition('/')[0]}"
    if bucket in _proven:
        return
    probe = f"{folder}/{_PROBE}"
    for _ in range(2):  # the first may be the one that makes it
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
