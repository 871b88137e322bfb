"""Files of definitions that are written for somebody: one writer at a time, and each file whole, the old one or the new one.

Who edits a file by hand holds no lock. So whoever writes says what stood in the file when it was read, and writes nothing when
something else stands there meanwhile.
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
"""How the names of files begin that are being written. Files whose names begin with a dot are no definitions."""

_PATIENCE = 60.0
"""Seconds to wait for another writer. It needs no more than a look at all definitions and a few calls of a catalog."""

_PAUSE = 0.05
"""Seconds between two attempts to get the lock."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """What is to stand in a file, and what stood there when it was read; ``None``: no such file."""

    path: Path
    before: bytes | None
    after: bytes | None

    @property
    def reversed(self) -> FileChange:
        """What takes it back."""
        return FileChange(self.path, self.after, self.before)


def read(path: Path) -> bytes | None:
    """What stands in a file; ``None`` when there is none.

    :raises ConfigurationError: when it cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from error


@contextlib.contextmanager
def only_writer(folder: Path, patience: float = _PATIENCE) -> Iterator[None]:
    """Let nobody else write into a folder by this function while the body runs; a process that dies lets go of it.

    :raises ConflictError: when somebody else keeps writing.
    :raises ConfigurationError: when nobody may write there.
    """
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise _refused(folder, error) from error
    try:
        _wait(lock, folder, patience)
        for half in folder.glob(f"{_HALF}*"):  # of a writer that died
            half.unlink(missing_ok=True)
        yield
    finally:
        os.close(lock)


def remove_if_unused(folders: Sequence[Path]) -> None:
    """Remove folders that were made for a file that is not written after all, as far as nothing else is in them.

    :param folders: innermost first; the lock of statements is in the first one.
    """
    if [entry.name for entry in folders[0].iterdir()] == [_LOCK]:
        (folders[0] / _LOCK).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def write(change: FileChange) -> None:
    """Put a change into its file, in one step. Only for the :func:`only_writer` of its folder.

    :raises ConflictError: when something else stands there than was read.
    :raises ConfigurationError: when the file cannot be written.
    """
    if change.path.is_symlink():
        raise ConfigurationError(f"{change.path} is a link; change the file that it leads to.")
    if read(change.path) != change.before:
        raise ConflictError(f"Somebody else changed {change.path} meanwhile; nothing was done. Look at it and try again.")
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
                raise ConflictError(f"Somebody else is writing into {folder} for {patience:g} seconds; try again.") from None
        except OSError as error:
            raise ConfigurationError(f"{folder} lies where files cannot be locked ({error.strerror}).") from error
        time.sleep(_PAUSE)


def _put(path: Path, content: bytes) -> None:
    """Write beside the file, and rename."""
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
    """Who may read the file: as now; a new one, whoever may read the folder."""
    with contextlib.suppress(FileNotFoundError):
        return stat.S_IMODE(path.stat().st_mode)
    return stat.S_IMODE(path.parent.stat().st_mode) & 0o666


def _refused(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"{path} cannot be written: {error.strerror}. Statements change the files of the definitions; where these come from "
        "elsewhere, change them there."
    )
