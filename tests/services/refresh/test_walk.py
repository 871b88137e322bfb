"""The way of a request through one refresh: the modules that get the request, or a value derived from it."""

from __future__ import annotations

import sys
import tomllib
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.formats.base import LakeTable
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import Attempt, run
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import RegisteredTable, open_workspace
from airflow_dynamic_tables.services.writes.protocol import StagedWrite
from tests.support.pyarrow_job import write_numbers

ROOT = Path(__file__).parents[3]
PACKAGE = "airflow_dynamic_tables"
MOST = (84, 29, 21)
"""Stays, modules and climbs; a change that needs more changes the design on purpose."""

DERIVED = (RefreshRequest, DynamicTable, TableIdentifier, RegisteredTable, LakeTable, StagedWrite, Attempt, RefreshPlan)
"""What is made of a request; an argument of one of these types carries it on."""


def storeys() -> dict[str, int]:
    """How high every folder of the package lies, by the contracts of the house; the highest is 0."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one.get("containers") == [PACKAGE])
    return {name.strip(" ()"): depth for depth, layer in enumerate(layers) for name in layer.split("|")}


class Walk:
    """The modules that a request enters, in order. A function that it has passed is not walked again."""

    def __init__(self) -> None:
        self.stays: list[str] = []
        self._passed: set[CodeType] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event != "call" or frame.f_code in self._passed or not module.startswith(f"{PACKAGE}.") or not _carries(frame):
            return
        self._passed.add(frame.f_code)
        if self.stays[-1:] != [module]:
            self.stays.append(module)

    @property
    def climbs(self) -> int:
        rooms = storeys()
        depths = [rooms[module.split(".")[1]] for module in self.stays]
        return sum(later < earlier for earlier, later in pairwise(depths))


def _carries(frame: FrameType) -> bool:
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    return any(isinstance(frame.f_locals.get(name), DERIVED) for name in names)


def test_a_request_passes_few_modules(tmp_path: Path) -> None:
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
    assert f"{PACKAGE}.services.refresh.running" in walk.stays
    figures = (len(walk.stays), len(set(walk.stays)), walk.climbs)
    assert all(figure <= most for figure, most in zip(figures, MOST, strict=True)), (figures, walk.stays)
