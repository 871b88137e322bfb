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
    """One import error for every broken definitions file, where Airflow shows those of DAG files.

    Airflow 3 knows import errors of Python files only, and one of the DAG file would hide every DAG of it. But the DAG
    processor files a DAG that cannot be serialized under that DAG's own ``relative_fileloc``: so each broken file becomes a
    DAG that claims to come from there. Outside of a DAG processor nothing would catch the error. Works in Airflow 3.2 and
    3.3; 3.4 will have importers for YAML.
    """
    if not _in_dag_processor() or not airflow_version.startswith(("3.2.", "3.3.")):
        return []
    by_file = itertools.groupby(sorted(mistakes), key=lambda mistake: mistake.path)
    return [_BrokenFile(path, tuple(of_file)) for path, of_file in by_file]


def _in_dag_processor() -> bool:
    """Whether Airflow parses to serialize: a process with a supervisor that runs no task."""
    return hasattr(sys.modules.get("airflow.sdk.execution_time.task_runner"), "SUPERVISOR_COMMS")


class _BrokenFile(DAG):
    """A DAG that stands for a file and cannot be serialized."""

    def __init__(self, path: Path, mistakes: tuple[Mistake, ...]) -> None:
        digest = hashlib.sha256(str(path).encode()).hexdigest()[:16]
        super().__init__(dag_id=f"dynamic_tables__broken_file_{digest}", schedule=None, auto_register=False)
        self._path = path
        self._mistakes = mistakes

    def validate(self) -> None:
        """Called when the loader's own path has been set: put the broken file's in its place."""
        super().validate()  # type: ignore[no-untyped-call]
        loader = Path(self.fileloc)
        if self.relative_fileloc and self._path.is_relative_to(loader.parent):
            self.relative_fileloc = str(Path(self.relative_fileloc).parent / self._path.relative_to(loader.parent))
        else:
            self.relative_fileloc = str(self._path)

    def get_serialized_fields(self) -> Any:  # type: ignore[override]  # a class method there; here it depends on the file
        """Refuse, with all mistakes of the file."""
        # Airflow shows a traceback, which begins with the cause: so what is wrong stands first, not after lines of Airflow's.
        raise SerializationError("The definitions have mistakes, see above.") from DefinitionError(self._mistakes)
