"""``docker-compose.yml`` without a Docker engine: the compose specification's own schema, and what it cannot check."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

FILE = Path(__file__).parent.parent / "docker-compose.yml"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return content


def test_it_follows_the_compose_specification() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_part_of_an_installation_is_there_and_watched(compose: dict[str, Any]) -> None:
    services = compose["services"]
    airflow = {"api-server", "scheduler", "dag-processor", "triggerer"}
    assert airflow | {"init", "postgres", "objects", "spark-master", "spark-worker"} == set(services)
    unwatched = {name for name, service in services.items() if "healthcheck" not in service}
    assert unwatched == {"init"}, "only what ends by itself needs no health check"
    assert {services[name]["command"] for name in airflow} == airflow


def test_whatever_is_waited_for_exists_and_can_become_ready(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        for other, waiting in service.get("depends_on", {}).items():
            assert other in services, f"{name} waits for {other}"
            assert waiting["condition"] == ("service_completed_successfully" if other == "init" else "service_healthy")


def test_volumes_and_configs_are_declared(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert {config["source"] for config in service.get("configs", [])} <= set(compose["configs"])
        mounted = [volume.split(":")[0] for volume in service.get("volumes", [])]
        assert {source for source in mounted if not source.startswith(".")} <= set(compose["volumes"])
        assert all((FILE.parent / source).exists() for source in mounted if source.startswith("."))


def test_nothing_listens_beyond_this_machine_and_images_are_pinned(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert not service["image"].endswith(":latest")
        assert ":" in service["image"], name
