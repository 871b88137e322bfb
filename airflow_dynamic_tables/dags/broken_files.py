"""Import errors of broken definitions files."""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from airflow import __version__ as airflow_version
from airflow.exceptions import SerializationError
from airflow.providers.common.compat.sdk import DAG

from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.exceptions import DefinitionError


def broken_files(mistakes: Iterable[Mistake]) -> list[DAG]:
    """Return a DAG for each broken definitions file that results in an import error of that file.

    Airflow 3 supports import errors of Python files only, and one of the DAG file would hide all of its DAGs. But the DAG
    processor assigns a serialization error to the DAG's ``relative_fileloc``. Therefore each broken file gets a DAG with its own
    path. Outside of a DAG processor, the error would not be caught. Works in Airflow 3.2 and 3.3; 3.4 will have importers for
    YAML.
    """
    if not _in_dag_processor() or not airflow_version.startswith(("3.2.", "3.3.")):
        return []
    by_file = itertools.groupby(sorted(mistakes), key=lambda mistake: mistake.path)
    return [_BrokenFile(path, tuple(of_file)) for path, of_file in by_file]


def _in_dag_processor() -> bool:
    """Return whether Airflow parses DAGs for serialization: the process has a supervisor, but runs no task."""
    return hasattr(sys.modules.get("airflow.sdk.execution_time.task_runner"), "SUPERVISOR_COMMS")


class _BrokenFile(DAG):
    """A DAG that represents a file, and fails to serialize."""

    def __init__(self, path: Path, mistakes: tuple[Mistake, ...]) -> None:
        digest = hashlib.sha256(str(path).encode()).hexdigest()[:16]
        super().__init__(dag_id=f"dynamic_tables__broken_file_{digest}", schedule=None, auto_register=False)
        self._path = path
        self._mistakes = mistakes

    def validate(self) -> None:
        """Replace the loader's path by that of the broken file; called after Airflow has set it."""
        super().validate()  # type: ignore[no-untyped-call]
        loader = Path(self.fileloc)
        if self.relative_fileloc and self._path.is_relative_to(loader.parent):
            self.relative_fileloc = str(Path(self.relative_fileloc).parent / self._path.relative_to(loader.parent))
        else:
            self.relative_fileloc = str(self._path)

    def get_serialized_fields(self) -> Any:  # type: ignore[override]  # a class method in Airflow; here it depends on the file
        """Raise the mistakes of the file."""
        # Airflow's traceback begins with the cause, so the mistakes come first.
        raise SerializationError("The definitions have mistakes, see above.") from DefinitionError(self._mistakes)
