"""Where the demo lives, and the environment its Airflow runs in: everything below ``.demo``, nothing of the user's own."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from airflow_dynamic_tables.clients.processes import machine

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".demo"
DATA = HOME / "tpch"
LOGS = HOME / "logs"
DAGS = ROOT / "dags"
BIN = Path(sys.executable).parent
SCALE = 0.01
"""TPC-H scale factor of the demo's data; 1 is about 1 GB."""

WARM = {"conn_type": "spark_connect", "host": "local"}
"""The Airflow connection to the Spark server of this machine; a task that finds none starts it."""
COLD = {"conn_type": "spark", "host": "local[*]"}
"""The one to spark-submit, for a machine that cannot have such a server."""


def yesterday() -> date:
    """The day before this one (UTC): the last day of the demo's data, and of what a daily table can have."""
    return datetime.now(UTC).date() - timedelta(days=1)


def settings(home: Path = HOME, dags: Path = DAGS, is_warm: bool = bool(machine())) -> dict[str, str]:
    """The variables that make an Airflow the demo's, but for its database: no examples, Spark on this machine."""
    return {
        "AIRFLOW_HOME": str(home / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(WARM if is_warm else COLD),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # little data on a small machine: start fast
    }


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """All environment variables of the demo's Airflow.

    :param variables: those that are the demo's.
    """
    return {**os.environ, **variables, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}


def write_shell_file(file: Path, variables: Mapping[str, str]) -> None:
    """Write what a shell reads to run ``airflow`` as the demo does: ``. FILE``.

    :param variables: what it exports, besides the demo's programs in front of the ``PATH``.
    """
    exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    path = f'export PATH={shlex.quote(str(BIN))}:"$PATH"'
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)  # it may hold the password of a database
    file.write_text("\n".join([*exports, path, ""]))
