"""A refresh on the warm Spark server of this machine against the same one by a cold spark-submit.

Then what a class-data archive does for the latter. One table of a few rows, so that all of it is start-up.

The time of a refresh is that of its steps, as the history has them; that of the whole command has Python's start on top.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import compare, interleave

ROUNDS = 5
COLD = ("--master", "local[*]")


class Project:
    """What ``init`` writes, with a state of its own.

    :param folder: where nothing is yet.
    """

    def __init__(self, folder: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "DYNAMIC_TABLES", "SPARK"))}
        self.environ = {**kept, "AIRFLOW_HOME": str(folder / "airflow")}
        self.folder = folder
        self.commands: dict[str, list[float]] = {"cold": [], "warm": []}
        self.run("init")

    def run(self, *words: str, java: str = "") -> str:
        """Run a command.

        :param java: options of the driver's Java.
        :return: what it printed.
        """
        command = [sys.executable, "-m", "airflow_dynamic_tables.cli.main", *words]
        environ = {**self.environ, "SPARK_SUBMIT_OPTS": java}
        return subprocess.run(command, cwd=self.folder, env=environ, check=True, stdout=subprocess.PIPE, text=True).stdout

    def refresh(self, *options: str, java: str = "") -> float:
        """Refresh the table; the seconds of its steps."""
        printed = self.run("refresh", "daily_revenue", "--full-refresh", "--output", "json", *options, java=java)
        steps: dict[str, float] = json.loads(printed)["seconds"]
        return sum(seconds for name, seconds in steps.items() if "." not in name)

    def timed(self, side: str, *options: str) -> float:
        """The same; the time of the whole command is noted as of that side."""
        started = time.monotonic()
        seconds = self.refresh(*options)
        self.commands[side].append(time.monotonic() - started)
        return seconds


def main() -> None:
    """Warm against cold, then cold with an archive against cold."""
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder))
        project.run("spark", "start")
        try:
            project.refresh()
            measured = interleave(ROUNDS, warm=lambda: project.timed("warm"), cold=lambda: project.timed("cold", *COLD))
        finally:
            project.run("spark", "stop")
        compare("warm refresh", measured["warm"], measured["cold"], "spark-submit", 0.35)
        compare("the whole command", project.commands["warm"], project.commands["cold"], "spark-submit")

        archive = Path(folder) / "spark.jsa"
        project.refresh(*COLD, java=f"-XX:ArchiveClassesAtExit={archive}")
        mapped = f"-XX:SharedArchiveFile={archive}"
        measured = interleave(ROUNDS, archive=lambda: project.refresh(*COLD, java=mapped), plain=lambda: project.refresh(*COLD))
        compare("spark-submit with a class-data archive", measured["archive"], measured["plain"], "without", 0.85)


if __name__ == "__main__":
    main()
