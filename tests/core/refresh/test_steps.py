"""Steps of a refresh as audit events: their names are promised."""

import re
import sys

from airflow_dynamic_tables.core.refresh import steps
from airflow_dynamic_tables.core.refresh.steps import Step, trace

heard: list[tuple[str, tuple[object, ...]]] = []


def test_every_step_is_in_the_table() -> None:
    assert re.findall(r"^([a-z]+)  +\w", str(steps.__doc__), re.MULTILINE) == list(Step)


def test_a_step_is_an_audit_event() -> None:
    sys.addaudithook(lambda event, arguments: heard.append((event, arguments)) if event.startswith("airflow_dy") else None)
    trace(Step.PUBLISHING, "t1")
    assert heard == [("airflow_dynamic_tables.publishing", ("t1",))]
