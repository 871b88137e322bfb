"""One loop of a continuous table, all that the task of such a table does but for the two questions that it asks Airflow.

``live_executor`` imports this in the process of each loop, so that the memory of what it imports is counted where it is used.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from airflow_dynamic_tables.core.schedule import ContinuousSettings
from airflow_dynamic_tables.dags.declared import load_workflow
from airflow_dynamic_tables.runners.local.runner import LocalServerRunner
from airflow_dynamic_tables.services.continuous.base import Work
from airflow_dynamic_tables.services.continuous.loop import DefinitionWatch, Halt, Loop, strategy_of
from airflow_dynamic_tables.services.continuous.partition_commit import PartitionCommits
from airflow_dynamic_tables.services.refresh.planning import job_environment
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import open_workspace, why_suspended

_LONG = timedelta(days=1)


def run(definitions: Path, dag_id: str) -> None:
    """Turn until a signal says to stop."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=stop.set, daemon=True).start())
    needed = load_workflow(definitions, dag_id, None)
    (table,) = needed.of_workflow(dag_id)
    settings = embedded_settings(os.environ)
    with open_workspace(settings) as workspace:
        runner = LocalServerRunner(table.spark, settings.database_url, lambda _line: None)
        work = Work(
            workspace=workspace,
            table=table,
            sources=needed.sources,
            parents=(),
            identity=uuid4(),
            owner=f"loop of {dag_id}",
            submit=lambda plan: runner.run(plan, job_environment(workspace, plan)),
            stop_job=runner.stop,
        )
        watch = DefinitionWatch(table, needed.sources, lambda: load_workflow(definitions, dag_id, None))
        has_news = PartitionCommits(workspace, table, needed.sources).watched(time.monotonic)

        def halt() -> Halt | None:
            has_news()
            return watch.halt() or (
                Halt("it is suspended") if why_suspended(table.identifier, workspace.find_entry(table.identifier)) else None
            )

        strategy = strategy_of(work)
        loop = Loop(
            strategy=strategy,
            freshness=table.freshness,
            settings=ContinuousSettings(hold=_LONG, events=_LONG),
            halt=halt,
            stop=stop,
            clock=workspace.now,
            seconds=time.monotonic,
        )
        try:
            loop.run()
        finally:
            strategy.close()
