"""The way of a request through one refresh: few modules see it, and it only ever goes down the storeys."""

from __future__ import annotations

import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.refresh.planning import Attempt
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import open_workspace
from tests.support.pyarrow_job import write_numbers

ROOT = Path(__file__).parents[3]
PACKAGE = "airflow_dynamic_tables"
MOST = 12


def storeys(container: str) -> dict[str, int]:
    """How high every folder of a package lies, by the contracts of the house; the highest is 0."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one.get("containers") == [container])
    return {name.strip(" ()"): depth for depth, layer in enumerate(layers) for name in layer.split("|")}


ROOMS = storeys(PACKAGE)
SERVICES = storeys(f"{PACKAGE}.services")


def depth(module: str) -> tuple[int, int]:
    _, room, *folders = module.split(".")
    return ROOMS[room], SERVICES[folders[0]] if room == "services" else 0


class Walk:
    """Who hands the request, or the attempt made of it, to whom."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.climbs: set[tuple[str, str]] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not _carries(frame):
            return
        module = frame.f_globals.get("__name__", "")
        self.modules.add(module)
        caller = frame.f_back
        if caller is not None and _carries(caller):
            above = caller.f_globals.get("__name__", "")
            if depth(module) < depth(above):
                self.climbs.add((above, module))


def _carries(frame: FrameType) -> bool:
    if not frame.f_globals.get("__name__", "").startswith(f"{PACKAGE}."):
        return False
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    return any(isinstance(frame.f_locals.get(name), RefreshRequest | Attempt) for name in names)


def test_a_request_meets_few_modules_and_never_climbs(tmp_path: Path) -> None:
    (tmp_path / "tables.yaml").write_text("dynamic_tables: [{name: lake.sales.n, freshness: 1 day, query: SELECT 1 AS x}]")
    definitions = load_definitions(tmp_path / "tables.yaml")
    table = definitions.tables[TableIdentifier("lake", "sales", "n")]
    request = RefreshRequest(table, definitions.sources, datetime(2024, 3, 1, tzinfo=UTC), "t1", "a test")
    walk, before = Walk(), sys.getprofile()
    with open_workspace(embedded_settings({"AIRFLOW_HOME": str(tmp_path)})) as workspace:
        sys.setprofile(walk)
        try:
            version = run(workspace, request, write_numbers)
        finally:
            sys.setprofile(before)
    assert isinstance(version, Version)
    assert f"{PACKAGE}.services.refresh.running" in walk.modules
    assert len(walk.modules) <= MOST, sorted(walk.modules)
    assert walk.climbs == set()
