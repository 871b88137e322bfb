"""``make demo`` and ``make airflow`` themselves, in a folder of their own."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from tests.support.airflow import until

ROOT = Path(__file__).parents[2]
DAG = "dynamic_table__lake__sales__daily_revenue"


@pytest.fixture
def checkout() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="demo-"))
    folder.chmod(0o755)
    for name in ("scripts", "dags"):
        shutil.copytree(ROOT / name, folder / name)
    yield folder
    for left in processes_of(folder):
        left.kill()
    shutil.rmtree(folder)


def processes_of(folder: Path) -> list[psutil.Process]:
    return [found for found in psutil.process_iter(["cmdline", "environ"]) if str(folder) in str(found.info)]


@pytest.mark.long
@pytest.mark.postgres
@pytest.mark.spark
@pytest.mark.system
@pytest.mark.timeout(1800)
def test_commands_beside_the_demos_airflow(checkout: Path) -> None:
    subprocess.run([sys.executable, str(checkout / "scripts" / "demo.py")], check=True)
    assert processes_of(checkout) == []

    told = checkout / "told"
    with told.open("wb") as stream:
        airflow = subprocess.Popen([sys.executable, str(checkout / "scripts" / "run_airflow.py")], stdout=stream)
    until("Airflow", lambda: "Ctrl-C stops Airflow" in told.read_text() or airflow.poll() is not None, 300)
    assert airflow.poll() is None, told.read_text()
    today = datetime.now(UTC).date()
    days = f"--from-date {today - timedelta(days=3)}T00:00:00+00:00 --to-date {today - timedelta(days=2)}T00:00:00+00:00"
    beside = (
        f". {checkout}/.demo/env; airflow dags unpause {DAG} & airflow backfill create --dag-id {DAG} {days}; wait $!; "
        f"airflow dags list-runs {DAG} --output plain"
    )
    ended = subprocess.run(["bash", "-euc", beside], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "backfill" in ended.stdout

    airflow.send_signal(signal.SIGINT)
    assert airflow.wait(120) == 0
    assert processes_of(checkout) == []
