"""``make demo`` after its set-up: five tables of TPC-H on a server that stays warm against one spark-submit for each.

Both start from nothing but the data, in a folder of their own each time, so all that a newcomer waits for is counted: Airflow's
database, Airflow's start for every DAG, the start of the server.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import compare, interleave

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Measure both in turn, print."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        home.chmod(0o755)  # PostgreSQL does not run as root
        _demo(home, "data")
        measured = interleave(ROUNDS, warm=lambda: _demo(home, "warm"), cold=lambda: _demo(home, "cold", "cold"))
    compare("make demo", measured["warm"], measured["cold"], "by spark-submit alone", 0.6)


def _demo(home: Path, name: str, *arguments: str) -> float:
    """Seconds of a demo in a new folder; its data is that of the first one."""
    checkout = home / name
    shutil.rmtree(checkout, ignore_errors=True)
    for each in ("scripts", "dags"):
        shutil.copytree(ROOT / each, checkout / each)
    data = home / "data" / ".demo" / "tpch"
    if data.exists():
        shutil.copytree(data, checkout / ".demo" / "tpch")
    started = time.monotonic()
    command = [sys.executable, str(checkout / "scripts" / "demo.py"), "sql", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout)
    return time.monotonic() - started


if __name__ == "__main__":
    main()
