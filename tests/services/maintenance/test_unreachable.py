"""The maintenance while a catalog is down: what it cannot ask it names, and does all else."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.services.maintenance.sweeping import sweep
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.ports import free_port


def test_a_catalog_that_is_down_fails_its_tables_alone_and_without_a_traceback(
    workspace: Workspace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    catalogs = tmp_path / "catalogs.yaml"
    gone = {"name": "gone", "type": "jdbc", "connection-params": {"url": f"postgresql://127.0.0.1:{free_port()}/shop"}}
    catalogs.write_text(json.dumps({"catalogs": [{"name": "lake", "type": "sql", "is-default": True}, gone]}))
    now = workspace.now()
    with open_workspace(replace(workspace.settings, catalogs_file=catalogs), workspace.clock) as opened:
        for name in ("gone.shop.orders", "lake.shop.orders"):
            identifier = TableIdentifier.parse(name)
            opened.ledger.record(
                Refresh(name, identifier, RefreshAction.FULL, "a test", RefreshState.FAILED, now, now, finished_at=now)
            )
        with caplog.at_level(logging.WARNING):
            report = sweep(opened)
    assert report.failed == ("gone.shop.orders",)
    assert [(record.levelname, record.exc_info) for record in caplog.records] == [("WARNING", None)] * 2
    assert all("gone.shop.orders" in text and "Connection refused" in text for text in caplog.messages)
