"""The environment of a job that runs in this process: files, Python modules, and progress reports."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql.connect.shell.progress import StageInfo

from airflow_dynamic_tables.clients.files import list_files, open_file, plain_path, write_text
from airflow_dynamic_tables.jobs.drivers.connect import Surroundings
from airflow_dynamic_tables.runners.base import tasks_done


class WorkerFiles(Surroundings):
    """The file systems that this worker can access.

    :param folder: for copies of files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write_text(self, uri: str, text: str) -> None:
        """See :meth:`Surroundings.write_text`."""
        write_text(uri, text)

    def list_files(self, uri: str) -> list[tuple[str, int]]:
        """See :meth:`Surroundings.list_files`."""
        root = plain_path(uri)
        try:
            found = list_files(uri)
        except FileNotFoundError:
            return []
        return sorted((uri + plain_path(name)[len(root) :], int(info.get("size") or 0)) for name, info in found.items())

    def local_copy(self, uri: str) -> Path:
        """See :meth:`Surroundings.local_copy`."""
        copy = self._folder / uri.rpartition("/")[2]
        with open_file(uri) as stream:
            copy.write_bytes(stream.read())
        return copy


class TaskProgress:
    """Reports the number of finished tasks whenever it changes, and measures how long the job has waited for a core.

    :param tell: receives the line.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._told = ""
        self._waits_since: float | None = None

    def __call__(self, stages: Iterable[StageInfo] | None, inflight_tasks: int, done: bool, **_others: object) -> None:
        """Process the server's report, which is sent every two seconds while it changes."""
        known = list(stages or ())
        finished = sum(stage.num_completed_tasks for stage in known)
        planned = sum(stage.num_tasks for stage in known)
        if done or inflight_tasks or finished == planned:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = time.monotonic()
        line = tasks_done(finished, planned)
        if known and line != self._told:
            self._told = line
            self._tell(line)

    def seconds_without_core(self) -> float:
        """Seconds that tasks have waited while none was running."""
        since = self._waits_since
        return 0.0 if since is None else time.monotonic() - since


@contextmanager
def folder_for_modules() -> Iterator[Path]:
    """A folder whose modules can be imported during the body; the next job may have other modules of the same names."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            yield Path(folder)
        finally:
            # Iterate over copies and remove items one by one, because other threads may add their own.
            for path in sys.path.copy():
                if path.startswith(folder):
                    sys.path.remove(path)
            for name, module in sys.modules.copy().items():
                if str(getattr(module, "__file__", None)).startswith(folder):
                    sys.modules.pop(name, None)
