"""What a task of DolphinScheduler sends, the gateway does."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import httpx

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.schedulers.base import Workflow, open_scheduler
from tests.support.gateway import served
from tests.support.schedulers.dolphin import StandIn

NAME = TableIdentifier.parse("lake.sales.alone")


def test_a_tick_is_a_refresh(dolphin: StandIn, tmp_path: Path, empty_state: Path) -> None:
    definitions = tmp_path / "definitions"
    definitions.mkdir()
    (definitions / "sales.yaml").write_text(
        f"dynamic_tables: [{{name: {NAME}, freshness: 1 day, scheduler: dolphinscheduler, query: SELECT 1 AS one}}]"
    )
    with served(tmp_path, definitions, Path(shutil.copy(empty_state, tmp_path / "state.db"))) as gateway:
        connection = dolphin.connections("dynamic_tables_dolphinscheduler")
        extra = {**connection.extra, "gateway": str(gateway.client.base_url), "gateway_token": "dolphin"}
        with open_scheduler("dolphinscheduler", lambda _: replace(connection, extra=extra)) as scheduler:
            scheduler.create(Workflow(NAME, NAME.workflow_id, "0 0 * * *", "UTC"))
        [workflow] = dolphin.workflows.values()
        params = json.loads(workflow["tasks"])[0]["taskParams"]
        # As its worker does: placeholders are set, and the task succeeds with status 200 alone.
        answer = httpx.request(
            params["httpMethod"],
            params["url"],
            headers={item["prop"]: item["value"] for item in params["httpParams"]},
            json=json.loads(params["httpBody"].replace("$[yyyy-MM-dd HH:mm:ss]", "2024-01-02 00:00:00")),
            timeout=120,
        )
        assert answer.status_code == httpx.codes.OK, answer.text
        [job] = gateway.refresher.started
        assert ([refresh.table for refresh in job.refreshes], job.wish.is_periodic) == ([NAME], True)
        assert str(job.wish.schedule_time).startswith("2024-01-02T00:00:00")
