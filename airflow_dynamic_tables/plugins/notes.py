"""Notes of DAG runs, which tasks cannot write in Airflow.

They contain the versions created by a run, a hint if there are none, because Airflow shows such a run as successful, and the
tables that are no longer declared and so have no DAG.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf
from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin
from sqlalchemy.orm import object_session

from airflow_dynamic_tables.plugins.gateway.mounting import PREFIX, Gateway
from airflow_dynamic_tables.plugins.page.views import VIEWS

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from sqlalchemy.orm import Session

NOTE = "Nothing to do: all refreshes were skipped. The last line of its log says why, and so does its XCom `skipped`."

_OPERATORS = frozenset({"DynamicTableRefreshOperator", "ContinuousRefreshOperator"})
"""Class names, because the scheduler, which calls this, has no operator classes."""


_MAINTENANCE = "SweepOperator"

_LONGEST = 1000
"""Most characters of a note in Airflow."""


@hookimpl
def on_dag_run_success(dag_run: DagRun) -> None:
    """Write the note. Airflow calls this for every run of every DAG, in the transaction that ends the run."""
    session = object_session(dag_run)
    if session is None:
        return  # ``airflow dags test`` stores no notes
    tasks: Any = getattr(dag_run.dag, "tasks", ())
    refreshes = {task.task_id for task in tasks if task.task_type in _OPERATORS}
    sweeps = {task.task_id for task in tasks if task.task_type == _MAINTENANCE}
    # Only for our DAGs, because this queries the database.
    if not (refreshes or sweeps) or dag_run.note:
        return
    if refreshes and _were_skipped(dag_run, refreshes):
        dag_run.note = NOTE
    elif refreshes:
        dag_run.note = version_note(_returned(session, dag_run, refreshes))
    elif tables := [table for report in _returned(session, dag_run, sweeps).values() for table in report.get("undeclared") or ()]:
        dag_run.note = undeclared_note(tables)


def version_note(reports: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the note about versions created by a run, one line per task, named if there are several; ``None`` without any."""
    versions = {task: report for task, report in sorted(reports.items()) if isinstance(report.get("version"), int)}
    lines = [
        (f"{task.removesuffix('.refresh')}: " if len(versions) > 1 else "") + _version(report)
        for task, report in versions.items()
    ]
    text = "\n\n".join(lines)
    return (text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…") or None


def _version(report: Mapping[str, Any]) -> str:
    rows, partitions, time = (report.get(name) for name in ("rows", "partitions", "schedule_time"))
    many = partitions if isinstance(partitions, list) else []
    place = f" in {many[0]}" if len(many) == 1 else f" in {len(many)} partitions" if many else ""
    counted = f", {rows:,} row{'' if rows == 1 else 's'}{place}" if isinstance(rows, int) else ""
    return f"Version {report['version']}{counted}" + (f", for {time}" if time else "")


def undeclared_note(tables: Sequence[str]) -> str:
    """Return the note about tables that are no longer declared; a long list is truncated."""
    what = (
        "These tables are no longer declared, so they have no DAG and are not refreshed. Each keeps its rows until "
        f"`dynamic-tables drop`; `dynamic-tables diff` tells of all {len(tables)}: "
    )
    names = ", ".join(tables)
    room = _LONGEST - len(what)
    return what + (names if len(names) <= room else f"{names[: room - 1]}…")


def _returned(session: Session, dag_run: DagRun, task_ids: set[str]) -> dict[str, dict[str, Any]]:
    from airflow.models.xcom import XCOM_RETURN_KEY, XComModel

    found = XComModel.get_many(run_id=dag_run.run_id, key=XCOM_RETURN_KEY, task_ids=task_ids, dag_ids=dag_run.dag_id)
    rows: Any = session.scalars(found)
    reports = {row.task_id: XComModel.deserialize_value(row) for row in rows}
    # With a custom XCom backend, these may be references to values stored elsewhere.
    return {task: report for task, report in reports.items() if isinstance(report, dict)}


def _were_skipped(dag_run: DagRun, task_ids: set[str]) -> bool:
    return all(ti.state == "skipped" for ti in dag_run.task_instances if ti.task_id in task_ids)


_IS_OPEN = conf.getboolean("dynamic_tables", "gateway", fallback=True)


class DynamicTablesPlugin(AirflowPlugin):
    """The plugin, found by Airflow via the entry point of this package.

    A closed gateway is mounted, too, because Airflow answers unknown paths with its UI.
    """

    name = "dynamic_tables"
    listeners = [sys.modules[__name__]]  # noqa: RUF012 - declared as a list by Airflow
    fastapi_apps = [{"app": Gateway(is_open=_IS_OPEN), "url_prefix": PREFIX, "name": "dynamic_tables"}]  # noqa: RUF012 - as above
    external_views = VIEWS if _IS_OPEN else []
