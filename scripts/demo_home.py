"""Where the demo lives, and the environment its Airflow runs in: everything below ``.demo``, nothing of the user's own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".demo"
DATA = HOME / "data"
LOGS = HOME / "logs"
DAGS = ROOT / "dags"
BIN = Path(sys.executable).parent
SCALE = 0.01
"""TPC-H scale factor of the demo's data; 1 is about 1 GB."""


def environment(home: Path = HOME, dags: Path = DAGS) -> dict[str, str]:
    """Environment variables of the demo's Airflow: SQLite, no examples, Spark on this machine."""
    return {
        **os.environ,
        "AIRFLOW_HOME": str(home / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[*]"}),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
    }
