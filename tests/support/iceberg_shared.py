"""One table that is refreshed here and changed by another engine, in every kind of catalog that both know."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.steps import Step
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import DynamicTableError
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.workspace import open_workspace
from tests.contracts.refreshing.place import MARCH, Place
from tests.support.clock import Clock
from tests.support.iceberg_spark import jdbc_properties

_MARKS: dict[str, list[pytest.MarkDecorator]] = {
    "sql": [],
    "sql on postgres": [pytest.mark.postgres],
    "iceberg on postgres": [pytest.mark.postgres],
    "rest": [],
    "apache rest": [],
    "hive": [pytest.mark.metastore],
}

CATALOGS = [pytest.param(kind, marks=marks) for kind, marks in _MARKS.items()]
"""Parameters of a fixture: every kind of catalog."""


BEFORE = {1: [11, 12], 2: [21, 22]}
"""Rows by day of March of a table that two refreshes filled."""


class IcebergEngine(Protocol):
    """Another engine that reads and writes Iceberg tables."""

    def connect(self, properties: Mapping[str, str], name: str) -> str:
        """Open a catalog under a name, by the properties of Iceberg's own library."""

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """Run a statement."""


@dataclass(frozen=True)
class SharedTable:
    """The table; ``{t}`` in a statement is its name in the engine, ``{c}`` that of its catalog, ``{d}`` that of its database."""

    place: Place
    engine: IcebergEngine

    def sql(self, *statements: str) -> list[dict[str, Any]]:
        """Run statements of the engine, and return the rows of the last one."""
        table = self.place.table
        names = {"t": str(table), "c": table.catalog, "d": table.database}
        return [self.engine.sql(statement.format(**names)) for statement in statements][-1]

    def fill(self) -> None:
        """Refresh two days."""
        for day, rows in BEFORE.items():
            self.place.refresh(day, rows, token=f"d{day}")

    def at_commit(self, token: str, *statements: str) -> None:
        """Run statements of the engine when the refresh of that token is about to commit."""

        def run() -> None:
            self.sql(*statements)

        self.place.at(Step.COMMIT, token, run)

    def theirs(self) -> dict[int, list[int]]:
        """The rows by day of March, as the engine reads them."""
        found: dict[int, list[int]] = {}
        for row in self.sql("SELECT ds, n FROM {t} ORDER BY ds, n"):
            found.setdefault(int(row["ds"][-2:]), []).append(row["n"])
        return found

    def snapshots(self) -> list[int]:
        """The snapshots by age, oldest first."""
        return [row["snapshot_id"] for row in self.sql("SELECT snapshot_id FROM {t}.snapshots ORDER BY committed_at")]

    def full_refresh(self, day: int, token: str = "") -> Version:
        """Refresh the complete table with what the sources have of all days."""
        return self.place.refresh(day, token=token, full_refresh=True)

    @property
    def folder(self) -> Path:
        folder = self.place.workspace.table(self.place.table, "iceberg").folder()
        assert folder is not None
        return Path(folder.removeprefix("file:").removeprefix("//"))


def check_that_a_commit_lands_in_no_other_table(filled: SharedTable, *statements: str) -> None:
    """Refresh while statements of the engine take the table away, and once more; the table then has the later rows."""
    place = filled.place
    filled.at_commit("d3", *statements)
    with pytest.raises(DynamicTableError, match=r"was dropped|moved to another folder|[Nn]othing was committed"):
        place.refresh(3, [31], token="d3")
    assert place.history()["d3"][0] == "FAILED"
    place.refresh(4, [41], token="d4")
    assert filled.theirs() == place.rows()
    assert place.rows()[4] == [41]


@contextmanager
def shared_table(
    kind: str, folder: Path, empty_state: Path, request: pytest.FixtureRequest, engine: IcebergEngine
) -> Iterator[SharedTable]:
    """A table that was never refreshed, and the engine on its catalog."""
    name, warehouse = f"lake_{uuid4().hex[:8]}", f"file://{folder}/lake"
    state = f"sqlite:///{shutil.copy(empty_state, folder / 'state.db')}"
    if kind == "sql on postgres":
        state = request.getfixturevalue("postgres_state")()
    entry, properties = _catalog(kind, state, warehouse, request)
    file = folder / "catalogs.yaml"
    file.write_text(json.dumps({"catalogs": [{"name": name, **entry}]}))
    clock = Clock()
    clock.time = MARCH
    engine.connect(properties, name)
    with open_workspace(WorkspaceSettings(state, f"file://{folder}/warehouse", file), clock) as workspace:
        table = TableIdentifier(name, f"db_{uuid4().hex}" if kind == "hive" else "sales", "figures")
        yield SharedTable(Place(workspace, clock, folder, table, "iceberg"), engine)


def _catalog(
    kind: str, state: str, warehouse: str, request: pytest.FixtureRequest
) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """The entry of a catalog, and how Iceberg's library opens it."""
    if kind.startswith("sql"):
        return {"type": "sql", "connection-params": {"warehouse": warehouse}}, jdbc_properties(state, warehouse)
    if kind == "iceberg on postgres":
        url = request.getfixturevalue("postgres").create_database(f"iceberg_{uuid4().hex[:12]}")
        params = {"type": "sql", "uri": url, "warehouse": warehouse}
        return {"type": "iceberg", "connection-params": params}, jdbc_properties(url, warehouse)
    if kind == "hive":
        uri = request.getfixturevalue("hive_metastore").uri
        properties = {"type": "hive", "uri": uri, "warehouse": warehouse}
        return {"type": "iceberg", "connection-params": {"uri": uri, "warehouse": warehouse}}, properties
    server = request.getfixturevalue("apache_rest" if kind == "apache rest" else "iceberg_rest")
    server.empty()
    return {"type": "iceberg", "connection-params": {"uri": server.uri}}, {"type": "rest", "uri": server.uri}
