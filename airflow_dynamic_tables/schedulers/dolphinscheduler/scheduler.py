"""DolphinScheduler as the scheduler: a workflow for each table, whose only task asks the gateway for a refresh."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Self

from airflow_dynamic_tables.clients.connections import Connection, Connections
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.schedule.cron import quartz_expression
from airflow_dynamic_tables.exceptions import ConfigurationError, UnsupportedScheduleError, WorkflowNotFoundError
from airflow_dynamic_tables.schedulers.base import Handler, Outcome, Workflow, WorkflowScheduler
from airflow_dynamic_tables.schedulers.dolphinscheduler.api import NAMES, DolphinApi, NameTakenError, TimeTable
from airflow_dynamic_tables.schedulers.http import address_of

CONNECTION = "dynamic_tables_dolphinscheduler"
"""The connection by which its REST API is reached."""

_PROJECT = "dynamic_tables"
"""The project of the workflows, unless the connection names another."""

_MADE_BY = "Made by airflow-dynamic-tables, which changes it back to what the table's definition says."

_REQUEST_MILLISECONDS = 60_000
"""How long the task waits for the gateway, which answers when it has begun the refresh."""

_RETRIES, _RETRY_MINUTES = 3, 1
"""A gateway that is restarted is back by then; to ask twice for a refresh does no harm."""


class DolphinScheduler(WorkflowScheduler):
    """The workflows of one project.

    Each step finds what an earlier one has done already, by the names of project and workflow: what a kill cut short is simply
    begun again.

    :param refresh_url: of the gateway, where the tasks ask for a refresh.
    :param gateway_token: what they send as a bearer token; may be a parameter of the project, ``${name}``.
    """

    def __init__(self, api: DolphinApi, project: str, refresh_url: str, gateway_token: str | None) -> None:
        self._api = api
        self._project = project
        self._refresh_url = refresh_url
        self._gateway_token = gateway_token

    @classmethod
    def from_connections(cls, connections: Connections) -> Self:
        """That of connection ``dynamic_tables_dolphinscheduler``.

        Its address with the path, such as ``/dolphinscheduler``; its password or extra ``token`` is a token of one of its users.
        Extra ``gateway`` is the URL of the REST gateway, as DolphinScheduler's workers reach it, ``gateway_token`` one for it;
        ``project`` and ``version`` say which project and release it is.
        """
        connection = connections(CONNECTION)
        version = connection.extra.get("version") or "3.3"
        if version not in NAMES:
            raise ConfigurationError(f"Connection {CONNECTION!r} has a 'version' {version!r}; write {' or '.join(NAMES)}.")
        token = connection.extra.get("token") or connection.password
        if not token:
            raise ConfigurationError(
                f"Connection {CONNECTION!r} has no token; make one in the Security Center of DolphinScheduler, and put it into "
                "'password'."
            )
        api = DolphinApi(address_of("DolphinScheduler", CONNECTION, connection), token, NAMES[version])
        project = connection.extra.get("project") or _PROJECT
        return cls(api, project, _refresh_url(connection), connection.extra.get("gateway_token"))

    def create(self, workflow: Workflow) -> Outcome:
        """Create and release a workflow and its schedule, or bring them to what the definition says."""
        try:
            time_table = TimeTable(quartz_expression(workflow.cron), workflow.timezone)
        except ValueError as error:
            raise UnsupportedScheduleError(f"DolphinScheduler cannot have {workflow.table} refreshed: {error}.") from error
        project = self._made_project()
        code = self._api.find_workflow(project, workflow.workflow_id)
        if code is None:
            code = self._created(project, workflow)
        else:
            self._bring_up_to_date(project, code, workflow)
        if not self._api.is_online(project, code):
            self._api.release(project, code, online=True)
        self._schedule(project, code, time_table)
        told = f"DolphinScheduler runs the workflow {workflow.workflow_id} of project {self._project} at {time_table.crontab}."
        return Outcome(self._handler(workflow.workflow_id, project, code), told)

    def suspend(self, handler: Handler) -> Outcome:
        """Take the workflow offline, and its schedule with it."""
        project, code = _codes(handler)
        self._api.release(project, code, online=False)
        return Outcome(handler, f"The workflow {handler['workflowId']} of DolphinScheduler is offline.")

    def resume(self, handler: Handler) -> Outcome:
        """Set the workflow online, and its schedule."""
        project, code = _codes(handler)
        self._api.release(project, code, online=True)
        schedule = self._api.schedule(project, code)
        if schedule is None:
            raise WorkflowNotFoundError(f"The workflow {handler['workflowId']} of DolphinScheduler has no schedule any more.")
        self._api.release_schedule(project, schedule.id, online=True)
        return Outcome(handler, f"The workflow {handler['workflowId']} of DolphinScheduler is online.")

    def delete(self, handler: Handler) -> Outcome:
        """Delete the workflow, its schedule and its runs; the project stays."""
        project, code = _codes(handler)
        try:
            # A released one is not deleted.
            self._api.release(project, code, online=False)
            self._api.delete_workflow(project, code)
        except WorkflowNotFoundError:
            return Outcome(handler, f"DolphinScheduler has no workflow {handler['workflowId']}.")
        return Outcome(handler, f"DolphinScheduler has deleted the workflow {handler['workflowId']}.")

    def close(self) -> None:
        """Let go of the connections."""
        self._api.close()

    def _handler(self, workflow_id: str, project: int, code: int) -> Handler:
        return {
            "schedulerType": "dolphinscheduler",
            "endpoint": self._api.url,
            "workflowId": workflow_id,
            "projectCode": str(project),
            "workflowCode": str(code),
        }

    def _made_project(self) -> int:
        project = self._api.find_project(self._project)
        if project is not None:
            return project
        try:
            return self._api.create_project(self._project, _MADE_BY)
        except NameTakenError:
            # Made by somebody else meanwhile, or one that this user does not see.
            project = self._api.find_project(self._project)
            if project is None:
                raise
            return project

    def _created(self, project: int, workflow: Workflow) -> int:
        form = self._form(workflow, self._api.new_task_code(project))
        try:
            return self._api.create_workflow(project, form)
        except NameTakenError:
            code = self._api.find_workflow(project, workflow.workflow_id)
            if code is None:
                raise
            return code

    def _bring_up_to_date(self, project: int, code: int, workflow: Workflow) -> None:
        task = self._api.task(project, code)
        wanted = self._task_params(workflow.table)
        if task is not None and {name: task.params.get(name) for name in wanted} == wanted:
            return
        self._api.release(project, code, online=False)
        task_code = self._api.new_task_code(project) if task is None else task.code
        self._api.update_workflow(project, code, self._form(workflow, task_code))

    def _schedule(self, project: int, code: int, time_table: TimeTable) -> None:
        schedule = self._api.schedule(project, code)
        if schedule is None:
            self._api.release_schedule(project, self._api.create_schedule(project, code, time_table), online=True)
            return
        if schedule.time_table != time_table:
            self._api.release_schedule(project, schedule.id, online=False)
            self._api.update_schedule(project, schedule.id, time_table)
        elif schedule.is_online:
            return
        self._api.release_schedule(project, schedule.id, online=True)

    def _form(self, workflow: Workflow, task_code: int) -> dict[str, str]:
        """The workflow as the API takes it."""
        task = {
            "code": task_code,
            "name": "refresh",
            "description": f"Asks for a refresh of {workflow.table}",
            "taskType": "HTTP",
            "taskParams": self._task_params(workflow.table),
            "flag": "YES",
            "taskPriority": "MEDIUM",
            "workerGroup": "default",
            "environmentCode": -1,
            "failRetryTimes": _RETRIES,
            "failRetryInterval": _RETRY_MINUTES,
            "timeoutFlag": "CLOSE",
            "timeout": 0,
            "delayTime": 0,
            "taskExecuteType": "BATCH",
        }
        first = {"preTaskCode": 0, "preTaskVersion": 0, "postTaskCode": task_code, "postTaskVersion": 0}
        return {
            "name": workflow.workflow_id,
            "description": _MADE_BY,
            "taskDefinitionJson": json.dumps([task]),
            "taskRelationJson": json.dumps([{"name": "", **first, "conditionType": "NONE", "conditionParams": {}}]),
            "locations": json.dumps([{"taskCode": task_code, "x": 100, "y": 100}]),
        }

    def _task_params(self, table: TableIdentifier) -> dict[str, Any]:
        """What the task sends.

        Its body has text only, because the task of release 3.3 sends no other. The schedule time is a placeholder, for which
        DolphinScheduler sets the wall-clock time of the tick in the time zone of the schedule, which is that of the table.
        """
        body = {"tables": str(table), "scheduleTime": "$[yyyy-MM-dd HH:mm:ss]", "isPeriodic": "true"}
        headers = {"Authorization": f"Bearer {self._gateway_token}"} if self._gateway_token else {}
        return {
            "localParams": [],
            "resourceList": [],
            "url": self._refresh_url,
            "httpMethod": "POST",
            "httpParams": [{"prop": name, "httpParametersType": "HEADERS", "value": value} for name, value in headers.items()],
            "httpBody": json.dumps(body),
            "httpCheckCondition": "STATUS_CODE_DEFAULT",
            "condition": "",
            "connectTimeout": _REQUEST_MILLISECONDS,
            "socketTimeout": _REQUEST_MILLISECONDS,
        }


def _refresh_url(connection: Connection) -> str:
    gateway = connection.extra.get("gateway") or ""
    if not gateway.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"Connection {CONNECTION!r} does not say where the REST gateway is; put its URL into 'gateway' of the extra, for "
            "example https://gateway.example.org:8085."
        )
    return f"{gateway.rstrip('/')}/v3/dynamic-tables/refresh"


def _codes(handler: Mapping[str, str]) -> tuple[int, int]:
    """The codes of project and workflow.

    :raises WorkflowNotFoundError: when the workflow was never created.
    """
    try:
        return int(handler["projectCode"]), int(handler["workflowCode"])
    except (KeyError, ValueError):
        raise WorkflowNotFoundError(
            f"DolphinScheduler was never asked to create the workflow {handler.get('workflowId', '')!r}."
        ) from None
