"""DolphinScheduler as a scheduler, through its public REST API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from airflow_dynamic_tables.clients.connections import Connection, Connections
from airflow_dynamic_tables.core.cron import quartz_expression
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.exceptions import ConfigurationError, SchedulerError, UnsupportedScheduleError, WorkflowNotFoundError
from airflow_dynamic_tables.schedulers.base import Handler, Outcome, Workflow, WorkflowScheduler
from airflow_dynamic_tables.schedulers.http import Address, HttpServer, address_of

_PAGE = 100

_MOST_PAGES = 1_000
"""Limit of pages, because the server may return the same page repeatedly."""

# Result codes of org.apache.dolphinscheduler.api.enums.Status.
_SUCCESS = 0
_NAME_EXISTS = (10019, 10168)
_NOT_FOUND = (10018, 50003)
_NO_RIGHT = (30001, 30002, 1400001)


@dataclass(frozen=True, slots=True)
class Names:
    """Names of workflows in the API of a release: release 3.3 renamed them throughout."""

    path: str
    code: str
    priority: str
    definition: str


NAMES: Mapping[str, Names] = {
    "3.2": Names("process-definition", "processDefinitionCode", "processInstancePriority", "processDefinition"),
    "3.3": Names("workflow-definition", "workflowDefinitionCode", "workflowInstancePriority", "workflowDefinition"),
}
"""By release; later releases use the names of 3.3."""


@dataclass(frozen=True, slots=True)
class _QuartzSchedule:
    """The times of a workflow: a Quartz cron expression and a time zone."""

    crontab: str
    timezone: str

    def as_text(self) -> str:
        dates = {"startTime": "2000-01-01 00:00:00", "endTime": "2099-12-31 23:59:59"}
        return json.dumps({**dates, "crontab": self.crontab, "timezoneId": self.timezone})


@dataclass(frozen=True, slots=True)
class Schedule:
    """The schedule of a workflow."""

    id: int
    time_table: _QuartzSchedule
    is_online: bool


@dataclass(frozen=True, slots=True)
class Task:
    """The HTTP task of a workflow: its code, and its parameters as the API has them."""

    code: int
    params: Mapping[str, Any]


class _NameTakenError(SchedulerError):
    """An object of that name exists already."""


class _DolphinApi:
    """Client of DolphinScheduler's REST API, with the token of one of its users.

    All methods raise :class:`~airflow_dynamic_tables.exceptions.SchedulerUnavailableError` when it cannot be reached,
    :class:`~airflow_dynamic_tables.exceptions.ConfigurationError` when access or permission is denied,
    :class:`~airflow_dynamic_tables.exceptions.WorkflowNotFoundError` when there is no such project or workflow, and
    :class:`~airflow_dynamic_tables.exceptions.SchedulerError` when it rejects the request.
    """

    def __init__(self, address: Address, token: str, names: Names) -> None:
        self._server = HttpServer(address)
        self._server.let_in("token", token)
        self._names = names

    @property
    def url(self) -> str:
        return self._server.address.url

    def find_project(self, name: str) -> int | None:
        for project in self._pages("/projects", {"searchVal": name}, "list the projects"):
            if project.get("name") == name:
                return self._code(project)
        return None

    def create_project(self, name: str, description: str) -> int:
        form = {"projectName": name, "description": description}
        return self._code(self._ask("POST", "/projects", f"create the project {name}", form=form))

    def find_workflow(self, project: int, name: str) -> int | None:
        for workflow in self._pages(self._workflows(project), {"searchVal": name}, f"list the workflows of project {project}"):
            if workflow.get("name") == name:
                return self._code(workflow)
        return None

    def is_online(self, project: int, workflow: int) -> bool:
        return bool(self._definition(project, workflow)[self._names.definition].get("releaseState") == "ONLINE")

    def task(self, project: int, workflow: int) -> Task | None:
        """Return the only task of a workflow; ``None`` when it has several tasks, or one of another type."""
        tasks = self._definition(project, workflow).get("taskDefinitionList")
        if not isinstance(tasks, list) or len(tasks) != 1 or tasks[0].get("taskType") != "HTTP":
            return None
        params = tasks[0].get("taskParams")
        # Some releases return the parameters as text.
        params = json.loads(params) if isinstance(params, str) else params
        return Task(self._code(tasks[0]), params if isinstance(params, Mapping) else {})

    def new_task_code(self, project: int) -> int:
        codes = self._ask("GET", f"/projects/{project}/task-definition/gen-task-codes", "give a code", query={"genNum": "1"})
        if not isinstance(codes, list) or not codes or not isinstance(codes[0], int):
            raise self._server.misunderstood("which code a new task has")
        return codes[0]

    def create_workflow(self, project: int, form: Mapping[str, str]) -> int:
        return self._code(self._ask("POST", self._workflows(project), f"create the workflow {form['name']}", form=form))

    def update_workflow(self, project: int, workflow: int, form: Mapping[str, str]) -> None:
        """Update a workflow, which must be offline."""
        self._ask("PUT", f"{self._workflows(project)}/{workflow}", f"update the workflow {form['name']}", form=form)

    def release(self, project: int, workflow: int, *, online: bool) -> None:
        state = "ONLINE" if online else "OFFLINE"
        path = f"{self._workflows(project)}/{workflow}/release"
        self._ask("POST", path, f"set the workflow {workflow} {state.lower()}", form={"releaseState": state})

    def delete_workflow(self, project: int, workflow: int) -> None:
        self._ask("DELETE", f"{self._workflows(project)}/{workflow}", f"delete the workflow {workflow}")

    def schedule(self, project: int, workflow: int) -> Schedule | None:
        found = self._pages(self._schedules(project), {self._names.code: str(workflow)}, f"list the schedules of {workflow}")
        for item in found:
            if item.get(self._names.code) == workflow and isinstance(item.get("id"), int):
                time_table = _QuartzSchedule(str(item.get("crontab")), str(item.get("timezoneId")))
                return Schedule(item["id"], time_table, item.get("releaseState") == "ONLINE")
        return None

    def create_schedule(self, project: int, workflow: int, time_table: _QuartzSchedule) -> int:
        form = {self._names.code: str(workflow), "schedule": time_table.as_text()}
        schedule = self._ask("POST", self._schedules(project), f"schedule the workflow {workflow}", form=form)
        if not isinstance(schedule, Mapping) or not isinstance(schedule.get("id"), int):
            raise self._server.misunderstood("which id the schedule has")
        return int(schedule["id"])

    def update_schedule(self, project: int, schedule: int, time_table: _QuartzSchedule) -> None:
        """Update a schedule, which must be offline."""
        form = {"schedule": time_table.as_text()}
        self._ask("PUT", f"{self._schedules(project)}/{schedule}", f"change the schedule {schedule}", form=form)

    def release_schedule(self, project: int, schedule: int, *, online: bool) -> None:
        state = "online" if online else "offline"
        self._ask("POST", f"{self._schedules(project)}/{schedule}/{state}", f"set the schedule {schedule} {state}")

    def close(self) -> None:
        self._server.close()

    def _workflows(self, project: int) -> str:
        return f"/projects/{project}/{self._names.path}"

    @staticmethod
    def _schedules(project: int) -> str:
        return f"/projects/{project}/schedules"

    def _definition(self, project: int, workflow: int) -> Mapping[str, Any]:
        definition = self._ask("GET", f"{self._workflows(project)}/{workflow}", f"show the workflow {workflow}")
        if not isinstance(definition, Mapping) or not isinstance(definition.get(self._names.definition), Mapping):
            raise self._server.misunderstood("what the workflow is like")
        return definition

    def _pages(self, path: str, query: Mapping[str, str], what: str) -> Iterator[Mapping[str, Any]]:
        for number in range(1, _MOST_PAGES + 1):
            page = self._ask("GET", path, what, query={**query, "pageNo": str(number), "pageSize": str(_PAGE)})
            items = page.get("totalList") if isinstance(page, Mapping) else None
            if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
                raise self._server.misunderstood("what there is")
            yield from items
            if len(items) < _PAGE:
                return

    def _ask(
        self, method: str, path: str, what: str, query: Mapping[str, str] | None = None, form: Mapping[str, str] | None = None
    ) -> Any:
        # Failures also have status 200, and an error code.
        answer = self._server.send(method, path, query=query, form=form)
        body = self._server.expect(answer, what)
        if not isinstance(body, Mapping) or not isinstance(body.get("code"), int):
            raise self._server.misunderstood("whether it succeeded")
        if body["code"] == _SUCCESS:
            return body.get("data")
        said = f"DolphinScheduler did not {what}: {shown(str(body.get('msg')))} ({body['code']})"
        if body["code"] in _NO_RIGHT:
            raise ConfigurationError(f"{said}; give the user of connection {self._server.address.conn_id!r} the right to do so.")
        kinds = {**dict.fromkeys(_NAME_EXISTS, _NameTakenError), **dict.fromkeys(_NOT_FOUND, WorkflowNotFoundError)}
        raise kinds.get(body["code"], SchedulerError)(f"{said}.")

    def _code(self, item: Any) -> int:
        if not isinstance(item, Mapping) or not isinstance(item.get("code"), int):
            raise self._server.misunderstood("which code it has")
        return int(item["code"])


CONNECTION = "dynamic_tables_dolphinscheduler"

_PROJECT = "dynamic_tables"

_MADE_BY = "Made by airflow-dynamic-tables, which changes it back to what the table's definition says."

_REQUEST_MILLISECONDS = 60_000
"""Timeout of the task's request to the gateway, which answers as soon as the refresh has started."""

_RETRIES, _RETRY_MINUTES = 3, 1
"""Enough for a restart of the gateway; repeated refresh requests are harmless."""


class DolphinScheduler(WorkflowScheduler):
    """The workflows of one project.

    Every step looks up the results of earlier attempts by the names of project and workflow, so that an interrupted call can
    be repeated.

    :param refresh_url: URL of the gateway for refresh requests of tasks.
    :param gateway_token: the bearer token of these requests; may be a parameter of the project, ``${name}``.
    """

    def __init__(self, api: _DolphinApi, project: str, refresh_url: str, gateway_token: str | None) -> None:
        self._api = api
        self._project = project
        self._refresh_url = refresh_url
        self._gateway_token = gateway_token

    @classmethod
    def from_connections(cls, connections: Connections) -> Self:
        """Return the scheduler of connection ``dynamic_tables_dolphinscheduler``.

        Its address includes the path, such as ``/dolphinscheduler``; its password or extra ``token`` is a token of one of its
        users. Extra ``gateway`` is the URL of the REST gateway, as reached by DolphinScheduler's workers, and
        ``gateway_token`` the token for it; ``project`` and ``version`` are the project and the release.
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
        api = _DolphinApi(address_of("DolphinScheduler", CONNECTION, connection), token, NAMES[version])
        project = connection.extra.get("project") or _PROJECT
        return cls(api, project, _refresh_url(connection), connection.extra.get("gateway_token"))

    def create(self, workflow: Workflow) -> Outcome:
        """Create a workflow and its schedule and set them online; existing ones are updated to the definition."""
        try:
            time_table = _QuartzSchedule(quartz_expression(workflow.cron), workflow.timezone)
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
        """Set the workflow and its schedule offline."""
        project, code = _codes(handler)
        self._api.release(project, code, online=False)
        return Outcome(handler, f"The workflow {handler['workflowId']} of DolphinScheduler is offline.")

    def resume(self, handler: Handler) -> Outcome:
        """Set the workflow and its schedule online."""
        project, code = _codes(handler)
        self._api.release(project, code, online=True)
        schedule = self._api.schedule(project, code)
        if schedule is None:
            raise WorkflowNotFoundError(f"The workflow {handler['workflowId']} of DolphinScheduler has no schedule any more.")
        self._api.release_schedule(project, schedule.id, online=True)
        return Outcome(handler, f"The workflow {handler['workflowId']} of DolphinScheduler is online.")

    def delete(self, handler: Handler) -> Outcome:
        """Delete the workflow, its schedule and its runs; the project is kept."""
        project, code = _codes(handler)
        try:
            # An online workflow cannot be deleted.
            self._api.release(project, code, online=False)
            self._api.delete_workflow(project, code)
        except WorkflowNotFoundError:
            return Outcome(handler, f"DolphinScheduler has no workflow {handler['workflowId']}.")
        return Outcome(handler, f"DolphinScheduler has deleted the workflow {handler['workflowId']}.")

    def close(self) -> None:
        """Close the connections."""
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
        except _NameTakenError:
            # Created concurrently, or not accessible to this user.
            project = self._api.find_project(self._project)
            if project is None:
                raise
            return project

    def _created(self, project: int, workflow: Workflow) -> int:
        form = self._form(workflow, self._api.new_task_code(project))
        try:
            return self._api.create_workflow(project, form)
        except _NameTakenError:
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

    def _schedule(self, project: int, code: int, time_table: _QuartzSchedule) -> None:
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
        """Return the parameters of the HTTP task.

        All values of its body are strings, because the task of release 3.3 supports no others. The schedule time is a
        placeholder, which DolphinScheduler replaces by the wall-clock time of the tick in the time zone of the schedule, which
        is that of the table.
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
    try:
        return int(handler["projectCode"]), int(handler["workflowCode"])
    except (KeyError, ValueError):
        raise WorkflowNotFoundError(
            f"DolphinScheduler was never asked to create the workflow {handler.get('workflowId', '')!r}."
        ) from None
