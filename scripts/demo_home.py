"""Where the demo lives, and the environment its Airflow runs in: everything below ``.demo``, nothing of the user's own."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".demo"
DATA = HOME / "data"
LOGS = HOME / "logs"
DAGS = ROOT / "dags"
BIN = Path(sys.executable).parent
SCALE = 0.01
"""TPC-H scale factor of the demo's data; 1 is about 1 GB."""


def settings(home: Path = HOME, dags: Path = DAGS) -> dict[str, str]:
    """The variables that make an Airflow the demo's: SQLite, no examples, Spark on this machine."""
    return {
        "AIRFLOW_HOME": str(home / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[*]"}),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def environment(home: Path = HOME, dags: Path = DAGS) -> dict[str, str]:
    """All environment variables of the demo's Airflow."""
    return {**os.environ, **settings(home, dags), "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}


def write_shell_file(file: Path, variables: Mapping[str, str]) -> None:
    """Write what a shell reads to run ``airflow`` as the demo does: ``. FILE``.

    :param variables: what it exports, besides the demo's programs in front of the ``PATH``.
    """
    exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    path = f'export PATH={shlex.quote(str(BIN))}:"$PATH"'
    file.write_text("\n".join([*exports, path, ""]))
