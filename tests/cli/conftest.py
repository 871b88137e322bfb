"""A project folder with definitions and a little data, and ``dynamic_tables(...)`` to run a command in it."""

import logging
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_dynamic_tables.cli.main import main
from airflow_dynamic_tables.runners.spark_submit import SparkSubmitRunner
from tests.support.pyarrow_job import write_numbers

DEFINITIONS = """\
defaults: {catalog: lake, database: sales}
sources:
  - name: raw.orders
    format: parquet
    path: PROJECT/data/orders
    partitioned_by: [ds]
    schema: customer STRING, amount BIGINT, ds STRING
dynamic_tables:
  - name: daily_revenue
    comment: Revenue per day
    freshness: 1 day
    partitioned_by: [ds]
    options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
    timezone: Europe/Berlin
    query: SELECT ds, sum(amount) AS revenue FROM raw.orders GROUP BY ds
  - name: total
    freshness: 1 hour
    query: SELECT sum(revenue) AS revenue FROM daily_revenue
"""


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with ``dags/definitions`` and data, the current directory; the state lives in it too."""
    folder = tmp_path / "dags" / "definitions"
    folder.mkdir(parents=True)
    (folder / "sales.yaml").write_text(DEFINITIONS.replace("PROJECT", str(tmp_path)))
    write_orders(tmp_path, "2024-01-01", [("ada", 5), ("bob", 7)])
    write_orders(tmp_path, "2024-01-02", [("ada", 11)])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # Spark starts in half the time
    for name in ("DEFINITIONS", "CATALOGS", "DATABASE_URL", "WAREHOUSE"):
        monkeypatch.delenv(f"DYNAMIC_TABLES_{name}", raising=False)
    return tmp_path


@pytest.fixture
def numbers(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The definition of ``lake.sales.numbers`` in place of the others; jobs write 1, 2 and 3 into its column ``x``."""
    monkeypatch.setattr(SparkSubmitRunner, "run", lambda _self, plan, _environment: write_numbers(plan))
    file = project / "dags" / "definitions" / "sales.yaml"
    file.write_text("dynamic_tables: [{name: lake.sales.numbers, freshness: 1 hour, query: SELECT 1 AS x}]")
    return file


def write_orders(project: Path, ds: str, orders: list[tuple[str, int]]) -> None:
    folder = project / "data" / "orders" / f"ds={ds}"
    folder.mkdir(parents=True, exist_ok=True)
    customers, amounts = zip(*orders, strict=True)
    pq.write_table(pa.table({"customer": list(customers), "amount": list(amounts)}), folder / "part.parquet")


class Terminal:
    """A command of its own process whose stderr is a terminal, and whose stdout is a pipe."""

    def __init__(self, process: subprocess.Popen[str], end: int) -> None:
        self.process = process
        self._end = end
        self._seen = ""

    def wait_for(self, pattern: str) -> None:
        while not re.search(pattern, self._seen):
            assert self._read(), self._seen

    def ended(self) -> Ran:
        """Wait for the end of the command; ``err`` is all that the terminal was sent."""
        while self._read():
            pass
        out, _ = self.process.communicate(timeout=60)
        return Ran(self.process.returncode, out, self._seen)

    def _read(self) -> bool:
        try:
            read = os.read(self._end, 4096)
        except OSError:  # nothing has the terminal open any more
            return False
        self._seen += read.decode()
        return bool(read)


@pytest.fixture
def terminal(project: Path) -> Callable[..., AbstractContextManager[Terminal]]:
    @contextmanager
    def begin(*argv: str) -> Iterator[Terminal]:
        ours, theirs = pty.openpty()
        environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TERM": "xterm", "COLUMNS": "150"}
        with subprocess.Popen(
            [sys.executable, "-m", "airflow_dynamic_tables.cli.main", *argv],
            cwd=project,
            env=environ,
            stderr=theirs,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore Ctrl-C
        ) as process:
            os.close(theirs)
            try:
                yield Terminal(process, ours)
            finally:
                process.kill()
                os.close(ours)

    return begin


@pytest.fixture
def dynamic_tables(project: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    assert Path.cwd() == project
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def run(*argv: str) -> Ran:
        try:
            code = main(argv)
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    yield run
    root.handlers[:], root.level = handlers, level
