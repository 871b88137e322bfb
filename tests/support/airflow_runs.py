"""Stands for Airflow where only its runs matter: answers, as the supervisor of a task or trigger does, how many there are."""

from __future__ import annotations

from datetime import datetime

import pytest
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import DRCount, GetDRCount


class AirflowRuns:
    """The runs that Airflow knows: DAG, logical date and state."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, datetime | None, str]] = []
        self.error: Exception | None = None

    def send(self, msg: GetDRCount) -> DRCount:
        if self.error:
            raise self.error
        dates, states = msg.logical_dates, msg.states
        found = [run for run in self.runs if run[0] == msg.dag_id and (not dates or run[1] in dates)]
        return DRCount(count=sum(not states or state in states for _, _, state in found))

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", self, raising=False)
