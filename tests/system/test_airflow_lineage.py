"""OpenLineage's events of a running Airflow, as its file transport writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from airflow_dynamic_tables.ledger.base import RefreshState
from tests.support.airflow import Stack, until
from tests.support.openlineage import check_event

pytestmark = [pytest.mark.large, pytest.mark.system, pytest.mark.postgres]

TABLES = """
defaults: {retries: 0, freshness: 1 day, schedule: 0 0 1 1 *, spark: {conn_id: spark_stand_in}}
sources: [{name: traced_source, format: json, path: FOLDER, schema: "x bigint, nap bigint"}]
dynamic_tables:
  - {name: lake.traced.numbers, query: SELECT x FROM traced_source}
  - {name: lake.traced.failing, query: SELECT x FROM traced_source, expectations: [{row_count: {min: 2}, action: fail}]}
"""

NUMBERS, FAILING = (f"dynamic_table__lake__traced__{name}" for name in ("numbers", "failing"))

ENABLED = f"""
for dag_id in {{"{NUMBERS}", "{FAILING}"}} & globals().keys():
    from airflow.providers.openlineage.utils.selective_enable import enable_lineage

    enable_lineage(globals()[dag_id])
"""


@pytest.fixture(scope="module")
def source(stack: Stack) -> Iterator[Path]:
    """The folder that both tables read; their DAGs emit events."""
    airflow = stack.airflow
    folder, before = airflow.home / "traced", airflow.dag_file.read_text()
    folder.mkdir()
    (folder / "rows.json").write_text(json.dumps({"x": 1, "nap": 0}) + "\n")
    airflow.append(ENABLED)
    airflow.define("traced.yaml", TABLES.replace("FOLDER", str(folder)))
    until("DAGs", lambda: stack.get("/dags", dag_id_pattern="__traced__")["total_entries"] == 2)
    yield folder
    airflow.dag_file.write_text(before)


def events_of(stack: Stack, dag_id: str) -> list[dict[str, Any]]:
    """Return the events of a DAG and its tasks, without one that is being written."""
    events = []
    for file in stack.airflow.lineage_events.iterdir():
        with suppress(json.JSONDecodeError):
            event = json.loads(file.read_text())
            if event["job"]["name"].startswith(dag_id):
                events.append(event)
    return events


def ended(stack: Stack, dag_id: str, runs: int) -> list[dict[str, Any]]:
    """Wait for the last events of runs and of their tasks; return all events after checking them."""

    def look() -> list[dict[str, Any]] | None:
        events = events_of(stack, dag_id)
        last = [event["job"]["name"] for event in events if event["eventType"] in ("COMPLETE", "FAIL")]
        return events if last.count(dag_id) >= runs and last.count(f"{dag_id}.refresh") >= runs else None

    events = until(f"events of {dag_id}", look)
    for event in events:
        check_event(event)
    return events


def test_each_commit_has_one_event_that_owns_the_table(stack: Stack, source: Path) -> None:
    stack.unpause(NUMBERS)
    stack.until_state(NUMBERS, stack.first_run(NUMBERS), "success")
    for _ in range(2):
        stack.until_state(NUMBERS, stack.trigger(NUMBERS, conf={"full_refresh": True}), "success")
    events = ended(stack, NUMBERS, runs=3)
    commits = [event for event in events if event["outputs"]]
    versions = [event["run"]["facets"]["dynamicTables_refresh"]["version"] for event in commits]
    assert sorted(versions) == [refresh.version for refresh in stack.airflow.refreshes("lake.traced.numbers")][::-1] == [1, 2, 3]
    assert {event["eventType"] for event in commits} == {"COMPLETE"}
    assert len({output["name"] for event in commits for output in event["outputs"]}) == 1, "no event names a stage"
    assert [[read["name"] for read in event["inputs"]] for event in commits] == [[str(source)]] * 3
    for event in commits:
        (origin,) = event["outputs"][0]["facets"]["columnLineage"]["fields"]["x"]["inputFields"]
        assert (origin["name"], origin["field"]) == (str(source), "x")


def test_a_failed_refresh_has_inputs_and_no_output(stack: Stack, source: Path) -> None:
    stack.unpause(FAILING)
    stack.until_state(FAILING, stack.first_run(FAILING), "failed")
    events = ended(stack, FAILING, runs=1)
    assert all(not event["outputs"] for event in events)
    (failure,) = (event for event in events if event["eventType"] == "FAIL" and event["job"]["name"] == f"{FAILING}.refresh")
    assert [read["name"] for read in failure["inputs"]] == [str(source)]
    facets = failure["run"]["facets"]
    assert "1 rows; at least 2 expected" in facets["errorMessage"]["message"]
    (refresh,) = stack.airflow.refreshes("lake.traced.failing")
    assert (facets["dynamicTables_refresh"]["refresh"], refresh.state) == (refresh.token, RefreshState.FAILED)
