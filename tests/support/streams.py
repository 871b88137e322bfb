"""A table that a stream keeps fresh, of JSON files that appear while it runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.identifiers import ObjectPath, TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import TableNotFoundError
from airflow_dynamic_tables.formats.base import LakeTable
from airflow_dynamic_tables.services.continuous.base import TurnOutcome, Work
from airflow_dynamic_tables.services.continuous.streams.strategy import Streaming
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace, utc_now

TABLE = TableIdentifier("lake", "sales", "seen")

ALL_ROWS = "SELECT id, ts FROM raw.events"

WINDOWS = """
    SELECT date_format(w.start, 'HH:mm') AS minute, count(*) AS n, sum(id) AS ids
    FROM (SELECT window(ts, '1 minute') AS w, id FROM raw.events) GROUP BY w"""

KAFKA_LOGIN = {
    "bootstrap.servers": "127.0.0.1:1",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "me",
    "sasl.password": "hunter2",
}
"""Extra of a connection to a broker that nobody runs."""

DEADLINE = 240
"""Seconds that anything may take on a machine that has a lot to do."""


@dataclass(frozen=True)
class StreamSite:
    """A folder of events for each source, a warehouse and a state.

    ``source`` declares what the table reads instead of the folders; ``catalogs`` is a file of catalogs.
    """

    home: Path
    database_url: str
    query: str = ALL_ROWS
    source: str = ""
    catalogs: Path | None = None
    watermark: str = ""
    more: str = ""
    sources: tuple[str, ...] = ("events",)
    format: str = "iceberg"
    strategy: str = "stream"

    def open(self, clock: Callable[[], datetime] = utc_now) -> Workspace:
        return open_workspace(WorkspaceSettings(self.database_url, f"file://{self.home}/warehouse", self.catalogs), clock)

    def work(self, workspace: Workspace, submit: Callable[[RefreshPlan], object], stop: Callable[[], None]) -> Work:
        definitions = load_definitions(self._definitions())
        table = definitions.tables[TABLE]
        return Work(workspace, table, definitions.sources, (), uuid4(), "dag/run/refresh", submit, stop)

    def streaming(self, workspace: Workspace, submit: Callable[[RefreshPlan], object], stop: Callable[[], None]) -> Streaming:
        return Streaming(self.work(workspace, submit, stop))

    def arrive(self, name: str, *events: tuple[int, str], source: str = "events") -> None:
        folder = self.home / source
        folder.mkdir(exist_ok=True)
        half = folder / f".{name}"
        half.write_text("".join(json.dumps({"id": number, "ts": f"2024-01-01T{at}"}) + "\n" for number, at in events))
        half.rename(folder / f"{name}.json")

    def _definitions(self) -> Path:
        for source in self.sources:
            (self.home / source).mkdir(exist_ok=True)
        file = self.home / "seen.yaml"
        folders = "".join(
            f"""
- name: raw.{name}
  format: json
  path: {self.home}/{name}
  schema: id bigint, ts timestamp
  {self.watermark}"""
            for name in self.sources
        )
        file.write_text(f"""
defaults: {{catalog: lake, database: sales}}
sources: {self.source or folders}
dynamic_tables:
- name: seen
  freshness: 2 seconds
  continuous: {{strategy: {self.strategy}}}
  format: {self.format}
  {self.more}
  query: |
    {self.query.strip()}
""")
        return file


def table_of(workspace: Workspace) -> LakeTable:
    """The table, in the format that its catalog says.

    :raises TableNotFoundError: when there is none yet.
    """
    entry = workspace.catalog(TABLE.catalog).get_table(ObjectPath(TABLE.database, TABLE.table))
    assert isinstance(entry, CatalogDynamicTable)
    return workspace.table(TABLE, entry.format)


def rows(workspace: Workspace) -> list[tuple[object, ...]]:
    try:
        return sorted(tuple(row.values()) for row in table_of(workspace).sample(100_000))
    except TableNotFoundError:
        return []


def ids(workspace: Workspace) -> list[object]:
    return [row[0] for row in rows(workspace)]


def turn_until(strategy: Streaming, condition: Callable[[], bool]) -> list[Version]:
    """Turn until a condition holds."""
    until = time.monotonic() + DEADLINE
    versions: list[Version] = []
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"the stream made {len(versions)} versions, and no more come")
        outcome: TurnOutcome = strategy.turn(1)
        versions += outcome.versions
    return versions
