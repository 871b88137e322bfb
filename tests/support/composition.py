"""The services of ``docker-compose.yml`` as processes of this machine: the same commands, settings, configs and health checks."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.processes import kill_tree, wait_until

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"

_INSIDE = "/opt/airflow"
"""The home of Airflow in its image."""


@dataclass
class Composition:
    """What the file says, with the names of hosts, ports and folders of containers replaced by those of this machine.

    :param places: replacements of texts in the file.
    :param more: environment variables that only processes of one machine need, such as free ports.
    """

    folder: Path
    places: Mapping[str, str]
    more: Mapping[str, str]
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._content: dict[str, Any] = yaml.safe_load(FILE.read_text())
        self.services: dict[str, Any] = self._content["services"]

    def config(self, source: str) -> str:
        """Content of a config, as containers find it."""
        return self._here(self._content["configs"][source]["content"])

    def run(self, name: str) -> subprocess.CompletedProcess[str]:
        """Run a service that ends by itself."""
        return subprocess.run(
            self._command(name),
            env=self._environment(name),
            cwd=self._home(name),
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    def start(self, name: str) -> None:
        """Start a service, and wait until its health check succeeds."""
        with self.log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                self._command(name),
                env=self._environment(name),
                cwd=self._home(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(lambda: self._is_healthy(name), f"health of {name}")

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def inside(self, name: str, *command: str) -> str:
        """Output of a command that is run beside a service, with its settings."""
        done = subprocess.run(
            command, env=self._environment(name), cwd=self._home(name), capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    def stop(self) -> None:
        for process in self._processes.values():
            kill_tree(process)

    def check_health(self, name: str) -> subprocess.CompletedProcess[str]:
        """Run the health check of a service."""
        kind, *test = [self._here(part).replace("$$", "$") for part in self.services[name]["healthcheck"]["test"]]
        command = test if kind == "CMD" else ["/bin/sh", "-c", *test]
        return subprocess.run(
            command, env=self._environment(name), cwd=self._home(name), capture_output=True, text=True, check=False, timeout=120
        )

    def _is_healthy(self, name: str) -> bool:
        process = self._processes[name]
        assert process.poll() is None, f"{name} ended: {self.log(name).read_text()[-4000:]}"
        return self.check_health(name).returncode == 0

    def _command(self, name: str) -> list[str]:
        service = self.services[name]
        command = service.get("command", [])
        words: Sequence[str] = [command] if isinstance(command, str) else command
        entrypoint = service.get("entrypoint", ["airflow"])  # as the entry point of Airflow's image
        return [self._here(word, name) for word in (*entrypoint, *words)]

    def _environment(self, name: str) -> dict[str, str]:
        service = self.services[name]
        asked = {key: self._here(str(value), name) for key, value in (service.get("environment") or {}).items()}
        return {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder),
            "HOSTNAME": socket.gethostname(),
            "AIRFLOW_HOME": str(self._home(name)),
            **{key: os.environ[key] for key in ("JAVA_HOME", "PYTHONPATH", "LANG") if key in os.environ},
            **self.more,
            **asked,
        }

    def _home(self, name: str) -> Path:
        """The folder that stands for the home of Airflow in a container, with its volumes."""
        home = self.folder / name
        if not home.exists():
            home.mkdir()
            for volume in self.services[name].get("volumes", []):
                source, target = volume.split(":")[:2]
                if target.startswith(f"{_INSIDE}/"):
                    self._mount(source, home / target.removeprefix(f"{_INSIDE}/"))
        for config in self.services[name].get("configs", []):
            if config["source"] == "spark-defaults":
                file = Path(self._here(config["target"], name))
                file.parent.mkdir(exist_ok=True)
                file.write_text(self.config(config["source"]))
        return home

    def _mount(self, source: str, target: Path) -> None:
        if source.startswith("."):
            shutil.copytree(FILE.parent / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            volume = self.folder / "volumes" / source
            volume.mkdir(parents=True, exist_ok=True)
            target.symlink_to(volume)

    def _here(self, text: str, name: str = "") -> str:
        """Replace what a container has by what this machine has."""
        places = {**self.places, "/opt/project": str(ROOT), "/opt/spark-conf": str(self.folder / "spark-conf")}
        places |= {_INSIDE: str(self.folder / name)} if name else {}
        return re.sub("|".join(map(re.escape, sorted(places, key=len, reverse=True))), lambda found: places[found[0]], text)


def as_json(**values: object) -> str:
    """Values as they stand within a JSON object of the file."""
    return json.dumps(values)[1:-1]
