"""How fresh a parent has to be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.refresh.upstream import parents_of

TABLES = """
defaults: {catalog: lake, database: crm}
dynamic_tables:
- {name: scheduled, freshness: 1 day, on: [elsewhere], query: SELECT 1 AS x}
- {name: updated, freshness: 36 hours, schedule: none, on: [elsewhere], query: SELECT 1 AS x}
- {name: elsewhere, freshness: 1 day, query: SELECT 1 AS x}
"""

NOON = datetime(2024, 1, 2, 12, 30, tzinfo=UTC)


def test_a_parent_without_a_schedule_has_to_keep_its_own_promise(tmp_path: Path) -> None:
    (tmp_path / "tables.yaml").write_text(TABLES)
    tables = load_definitions(tmp_path / "tables.yaml", cache=Cache(None)).tables
    names = [TableIdentifier("lake", "crm", name) for name in ("scheduled", "updated")]
    scheduled, updated = parents_of(names, tables)
    assert scheduled.required(NOON) == datetime(2024, 1, 2, tzinfo=UTC)
    assert updated.required(NOON) == NOON - timedelta(hours=36)
