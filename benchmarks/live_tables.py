"""Continuous tables on a warm server, and partitions that arrive for them: what the benchmarks of continuous mode share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.runners.local.folder import Options, ServerFolder
from airflow_dynamic_tables.runners.local.server import start, stop
from airflow_dynamic_tables.services.settings import WorkspaceSettings, embedded_settings
from airflow_dynamic_tables.services.workspace import open_workspace

ROWS = 10
"""Rows of every partition."""

MB = 1024 * 1024
_PATTERN = "yyyyMMddHHmmss"
_SESSIONS = "org.apache.spark.sql.connect.service.SessionHolder"


@dataclass
class Live:
    """Some continuous tables, their sources, and the server that refreshes them.

    :param folder: where nothing is yet.
    :param names: of the tables; each has a source of its own.
    """

    folder: Path
    names: Sequence[str]
    freshness: str
    memory: str
    arrived: dict[str, dict[str, datetime]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.definitions.parent.mkdir(parents=True)
        self.definitions.write_text(json.dumps(self._defined()))  # JSON is YAML, too
        for name in self.names:
            (self.folder / "data" / name).mkdir(parents=True)
            self.arrived[name] = {}
            self.arrive(name)

    @property
    def definitions(self) -> Path:
        """The file with all of them."""
        return self.folder / "dags" / "definitions" / "live.yaml"

    @property
    def environ(self) -> dict[str, str]:
        """The environment of an installation that is nobody else's."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "DYNAMIC_TABLES", "SPARK"))}
        return {**kept, "AIRFLOW_HOME": str(self.folder / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}

    @property
    def settings(self) -> WorkspaceSettings:
        """Of that installation."""
        return embedded_settings(self.environ)

    def _defined(self) -> dict[str, object]:
        options = {"partition.time-extractor.timestamp-formatter": _PATTERN, "partition.time-interval": "1 second"}
        source = {"format": "json", "schema": "x bigint", "partitioned_by": ["pt"], "watermark": "source", "options": options}
        table = {
            "freshness": self.freshness,
            "partitioned_by": ["pt"],
            "options": {"partition.fields.pt.date-formatter": _PATTERN},
            "spark": {"conn_id": "spark_warm"},
        }
        query = "SELECT pt, count(*) AS n, count(DISTINCT x) AS different FROM raw.{} GROUP BY pt"
        return {
            "defaults": {"catalog": "lake", "database": "live"},
            "sources": [{"name": f"raw.{name}", "path": str(self.folder / "data" / name), **source} for name in self.names],
            "dynamic_tables": [{"name": name, "query": query.format(name), **table} for name in self.names],
        }

    def arrive(self, name: str) -> None:
        """A partition appears, whole from the first moment on; two of a table need a second between them."""
        now = datetime.now(UTC)
        partition = f"{now:%Y%m%d%H%M%S}"
        hidden = self.folder / "data" / name / f".{partition}"
        hidden.mkdir()
        (hidden / "part-0.json").write_text("".join(f'{{"x": {number}}}\n' for number in range(ROWS)))
        (hidden / "_SUCCESS").touch()
        hidden.rename(hidden.with_name(f"pt={partition}"))
        self.arrived[name][partition] = datetime.now(UTC)

    @contextmanager
    def server(self, master: str) -> Iterator[psutil.Process]:
        """The warm server, while the body runs."""
        folder = ServerFolder.of(self.settings.database_url)
        start(folder, Options(master, self.memory, idle_seconds=None))
        process = folder.process()
        assert process is not None
        try:
            yield psutil.Process(process.pid)
        finally:
            stop(folder)

    @contextmanager
    def loops(self, names: Sequence[str]) -> Iterator[list[psutil.Process]]:
        """The loops of some tables, while the body runs; each has its first version when that begins.

        :raises SystemExit: when one came to a bad end.
        """
        dags = [f"dynamic_table__lake__live__{name}" for name in names]
        command = [sys.executable, str(Path(__file__).with_name("live_executor.py")), str(self.definitions), *dags]
        with self._log.open("w") as log, subprocess.Popen(command, env=self.environ, stdout=log, stderr=log) as executor:
            try:
                while len(loops := psutil.Process(executor.pid).children()) < len(names):
                    self._check(executor)
                    time.sleep(1)
                self.wait(names, executor)
                yield loops
            finally:
                executor.send_signal(signal.SIGTERM)
        self._check(executor)

    @property
    def _log(self) -> Path:
        return self.folder / "loops.log"

    def _check(self, executor: subprocess.Popen[bytes]) -> None:
        if executor.poll():
            raise SystemExit(f"a loop failed:\n{self._log.read_text()[-2000:]}")

    def wait(self, names: Sequence[str], executor: subprocess.Popen[bytes] | None = None) -> None:
        """Until these tables have everything that arrived for them."""
        waiting = list(names)
        while waiting:
            if executor is not None:
                self._check(executor)
            waiting = [name for name in waiting if not self.arrived[name].keys() <= self.visible(name).keys()]
            time.sleep(1)

    def refreshes(self, name: str) -> list[Refresh]:
        """All that succeeded, the oldest first."""
        with open_workspace(self.settings) as workspace:
            history = workspace.ledger.list_refreshes(TableIdentifier("lake", "live", name), 100_000)
        return [refresh for refresh in reversed(history) if refresh.state is RefreshState.SUCCEEDED]

    def visible(self, name: str) -> dict[str, datetime]:
        """When each partition became visible first."""
        found: dict[str, datetime] = {}
        for refresh in self.refreshes(name):
            for spec in refresh.partitions:
                assert refresh.finished_at is not None
                found.setdefault(str(spec["pt"]), refresh.finished_at)
        return found

    def delays(self, name: str, since: datetime) -> list[float]:
        """Seconds from the arrival of each partition since then until it was visible."""
        visible = self.visible(name)
        return [(visible[one] - at).total_seconds() for one, at in self.arrived[name].items() if at >= since]

    def wrong(self, name: str) -> int:
        """Partitions of a table that are lost or doubled, or of which a row is."""
        with open_workspace(self.settings) as workspace:
            table = workspace.existing_table(TableIdentifier("lake", "live", name))
            rows = table.sample(1_000_000)
        wanted = Counter((partition, ROWS, ROWS) for partition in self.arrived[name])
        there = Counter((row["pt"], row["n"], row["different"]) for row in rows)
        return sum(((wanted - there) + (there - wanted)).values())


@dataclass(frozen=True, slots=True)
class Heap:
    """What lives in a server after its memory was collected: bytes, and sessions that it knows."""

    used: int
    sessions: int

    @classmethod
    def of(cls, server: psutil.Process) -> Heap:
        """Asked of the JVM itself."""
        asked = subprocess.run(["jcmd", str(server.pid), "GC.class_histogram"], capture_output=True, text=True, check=True)
        lines = [line.split() for line in asked.stdout.splitlines()]
        (total,) = (int(words[2]) for words in lines if words[:1] == ["Total"])
        return cls(total, sum(int(words[1]) for words in lines if _SESSIONS in words[3:]))


def cpu(processes: Sequence[psutil.Process]) -> list[float]:
    """Seconds of CPU that each process took until now."""
    return [times.user + times.system for times in (process.cpu_times() for process in processes)]


def memory(processes: Sequence[psutil.Process]) -> list[float]:
    """Megabytes of memory of each process, of what several share its part only."""
    return [process.memory_full_info().pss / MB for process in processes]
