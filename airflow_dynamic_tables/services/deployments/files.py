"""Writing of definition files: one writer at a time, and atomic replacement of each file.

Manual edits hold no lock. A writer therefore passes the content that it has read, and nothing is written if the file has
changed since.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_dynamic_tables.clients.files import keep_names
from airflow_dynamic_tables.exceptions import ConfigurationError, ConflictError

_LOCK = ".statements.lock"
_HALF = ".statements-"
"""Prefix of temporary files. Files whose names begin with a dot are not definitions."""

_PATIENCE = 60.0
"""Seconds to wait for another writer, which only loads all definitions and makes a few catalog calls."""

_PAUSE = 0.05
"""Seconds between two attempts to get the lock."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """The new content of a file, and the content when it was read; ``None``: no such file."""

    path: Path
    before: bytes | None
    after: bytes | None

    @property
    def reversed(self) -> FileChange:
        """The change that reverts this one."""
        return FileChange(self.path, self.after, self.before)


def read(path: Path) -> bytes | None:
    """Return the content of a file; ``None`` if it does not exist.

    :raises ConfigurationError: if it cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from error


@contextlib.contextmanager
def only_writer(folder: Path, patience: float = _PATIENCE) -> Iterator[None]:
    """Hold the write lock of a folder while the body runs. The lock is released if the process dies.

    :raises ConflictError: if another writer holds the lock for too long.
    :raises ConfigurationError: if the folder is not writable.
    """
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise _refused(folder, error) from error
    try:
        _wait(lock, folder, patience)
        for half in folder.glob(f"{_HALF}*"):  # left by a writer that died
            half.unlink(missing_ok=True)
        yield
    finally:
        os.close(lock)


def remove_if_unused(folders: Sequence[Path]) -> None:
    """Remove folders that were created for a file that was not written, if they contain nothing else.

    :param folders: innermost first; the lock file is in the first one.
    """
    if [entry.name for entry in folders[0].iterdir()] == [_LOCK]:
        (folders[0] / _LOCK).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def write(change: FileChange) -> None:
    """Write a change atomically. The caller must be the :func:`only_writer` of its folder.

    :raises ConflictError: if the file has changed since it was read.
    :raises ConfigurationError: if the file cannot be written.
    """
    if change.path.is_symlink():
        raise ConfigurationError(f"{change.path} is a link; change the file that it leads to.")
    if read(change.path) != change.before:
        raise ConflictError(f"Another process changed {change.path} meanwhile; nothing was done. Look at it and try again.")
    try:
        if change.after is None:
            change.path.unlink(missing_ok=True)
        else:
            _put(change.path, change.after)
        keep_names(change.path.parent)
    except OSError as error:
        raise _refused(change.path, error) from error


def _wait(lock: int, folder: Path, patience: float) -> None:
    end = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise ConflictError(
                    f"Another process has been writing into {folder} for {patience:g} seconds; try again."
                ) from None
        except OSError as error:
            raise ConfigurationError(f"{folder} lies where files cannot be locked ({error.strerror}).") from error
        time.sleep(_PAUSE)


def _put(path: Path, content: bytes) -> None:
    handle, half = tempfile.mkstemp(prefix=_HALF, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), _mode(path))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(half, path)  # noqa: PTH105 - as the functions beside it
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(half)  # noqa: PTH108
        raise


def _mode(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return stat.S_IMODE(path.stat().st_mode)
    return stat.S_IMODE(path.parent.stat().st_mode) & 0o666


def _refused(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"{path} cannot be written: {error.strerror}. Statements change the files of the definitions; where these come from "
        "elsewhere, change them there."
    )
