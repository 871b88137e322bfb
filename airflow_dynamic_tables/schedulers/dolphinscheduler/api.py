"""DolphinScheduler's public REST API: what this package asks of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.exceptions import ConfigurationError, SchedulerError, WorkflowNotFoundError
from airflow_dynamic_tables.schedulers.http import Address, HttpServer

_PAGE = 100
"""How many objects are asked for at once."""

_MOST_PAGES = 1_000
"""After so many the server gives the same page again and again."""

# Codes of answers, of org.apache.dolphinscheduler.api.enums.Status.
_SUCCESS = 0
_NAME_EXISTS = (10019, 10168)
_NOT_FOUND = (10018, 50003)
_NO_RIGHT = (30001, 30002, 1400001)


@dataclass(frozen=True, slots=True)
class Names:
    """What a release calls workflows: release 3.3 renamed them throughout."""

    path: str
    code: str
    priority: str
    definition: str


NAMES: Mapping[str, Names] = {
    "3.2": Names("process-definition", "processDefinitionCode", "processInstancePriority", "processDefinition"),
    "3.3": Names("workflow-definition", "workflowDefinitionCode", "workflowInstancePriority", "workflowDefinition"),
}
"""By release; later ones go by the names of 3.3."""


@dataclass(frozen=True, slots=True)
class TimeTable:
    """When a workflow runs: a cron expression of Quartz, and a time zone."""

    crontab: str
    timezone: str

    def as_text(self) -> str:
        """As the API takes it: with the dates between which it holds, which are as far apart as can be."""
        dates = {"startTime": "2000-01-01 00:00:00", "endTime": "2099-12-31 23:59:59"}
        return json.dumps({**dates, "crontab": self.crontab, "timezoneId": self.timezone})


@dataclass(frozen=True, slots=True)
class Schedule:
    """The schedule of a workflow."""

    id: int
    time_table: TimeTable
    is_online: bool


@dataclass(frozen=True, slots=True)
class Task:
    """The HTTP task of a workflow: its code, and its parameters as the API has them."""

    code: int
    params: Mapping[str, Any]


class NameTakenError(SchedulerError):
    """An object of that name exists already."""


class DolphinApi:
    """A DolphinScheduler by its REST API, with the token of one of its users.

    All methods raise :class:`~airflow_dynamic_tables.exceptions.SchedulerUnavailableError` when it cannot be reached,
    :class:`~airflow_dynamic_tables.exceptions.ConfigurationError` when it does not let us in or do that,
    :class:`~airflow_dynamic_tables.exceptions.WorkflowNotFoundError` when there is no such project or workflow, and
    :class:`~airflow_dynamic_tables.exceptions.SchedulerError` when it says no.
    """

    def __init__(self, address: Address, token: str, names: Names) -> None:
        self._server = HttpServer(address)
        self._server.let_in("token", token)
        self._names = names

    @property
    def url(self) -> str:
        """Where it is."""
        return self._server.address.url

    def find_project(self, name: str) -> int | None:
        """The code of the project of that name."""
        for project in self._pages("/projects", {"searchVal": name}, "list the projects"):
            if project.get("name") == name:
                return self._code(project)
        return None

    def create_project(self, name: str, description: str) -> int:
        """Create a project; its code.

        :raises NameTakenError: when there is one of that name, which this user may not see.
        """
        form = {"projectName": name, "description": description}
        return self._code(self._ask("POST", "/projects", f"create the project {name}", form=form))

    def find_workflow(self, project: int, name: str) -> int | None:
        """The code of the workflow of that name."""
        for workflow in self._pages(self._workflows(project), {"searchVal": name}, f"list the workflows of project {project}"):
            if workflow.get("name") == name:
                return self._code(workflow)
        return None

    def is_online(self, project: int, workflow: int) -> bool:
        """Whether a workflow is released."""
        return bool(self._definition(project, workflow)[self._names.definition].get("releaseState") == "ONLINE")

    def task(self, project: int, workflow: int) -> Task | None:
        """The only task of a workflow; ``None`` when it has others, or is of another kind."""
        tasks = self._definition(project, workflow).get("taskDefinitionList")
        if not isinstance(tasks, list) or len(tasks) != 1 or tasks[0].get("taskType") != "HTTP":
            return None
        params = tasks[0].get("taskParams")
        # Some releases give them as text.
        params = json.loads(params) if isinstance(params, str) else params
        return Task(self._code(tasks[0]), params if isinstance(params, Mapping) else {})

    def new_task_code(self, project: int) -> int:
        """A code for a task that is to be created."""
        codes = self._ask("GET", f"/projects/{project}/task-definition/gen-task-codes", "give a code", query={"genNum": "1"})
        if not isinstance(codes, list) or not codes or not isinstance(codes[0], int):
            raise self._server.misunderstood("which code a new task has")
        return codes[0]

    def create_workflow(self, project: int, form: Mapping[str, str]) -> int:
        """Create a workflow, which is not released; its code.

        :raises NameTakenError: when there is one of that name.
        """
        return self._code(self._ask("POST", self._workflows(project), f"create the workflow {form['name']}", form=form))

    def update_workflow(self, project: int, workflow: int, form: Mapping[str, str]) -> None:
        """Update a workflow, which must not be released."""
        self._ask("PUT", f"{self._workflows(project)}/{workflow}", f"update the workflow {form['name']}", form=form)

    def release(self, project: int, workflow: int, *, online: bool) -> None:
        """Release a workflow, or take it back, and its schedule with it."""
        state = "ONLINE" if online else "OFFLINE"
        path = f"{self._workflows(project)}/{workflow}/release"
        self._ask("POST", path, f"set the workflow {workflow} {state.lower()}", form={"releaseState": state})

    def delete_workflow(self, project: int, workflow: int) -> None:
        """Delete a workflow, which must not be released, and its schedule."""
        self._ask("DELETE", f"{self._workflows(project)}/{workflow}", f"delete the workflow {workflow}")

    def schedule(self, project: int, workflow: int) -> Schedule | None:
        """The schedule of a workflow."""
        found = self._pages(self._schedules(project), {self._names.code: str(workflow)}, f"list the schedules of {workflow}")
        for item in found:
            if item.get(self._names.code) == workflow and isinstance(item.get("id"), int):
                time_table = TimeTable(str(item.get("crontab")), str(item.get("timezoneId")))
                return Schedule(item["id"], time_table, item.get("releaseState") == "ONLINE")
        return None

    def create_schedule(self, project: int, workflow: int, time_table: TimeTable) -> int:
        """Give a released workflow a schedule, which is not released; its id."""
        form = {self._names.code: str(workflow), "schedule": time_table.as_text()}
        schedule = self._ask("POST", self._schedules(project), f"schedule the workflow {workflow}", form=form)
        if not isinstance(schedule, Mapping) or not isinstance(schedule.get("id"), int):
            raise self._server.misunderstood("which id the schedule has")
        return int(schedule["id"])

    def update_schedule(self, project: int, schedule: int, time_table: TimeTable) -> None:
        """Change a schedule, which must not be released."""
        form = {"schedule": time_table.as_text()}
        self._ask("PUT", f"{self._schedules(project)}/{schedule}", f"change the schedule {schedule}", form=form)

    def release_schedule(self, project: int, schedule: int, *, online: bool) -> None:
        """Release a schedule of a released workflow, or take it back."""
        state = "online" if online else "offline"
        self._ask("POST", f"{self._schedules(project)}/{schedule}/{state}", f"set the schedule {schedule} {state}")

    def close(self) -> None:
        """Let go of the connections."""
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
        """All objects of a list, page by page."""
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
        """What is in a successful answer. Other answers have status 200, too, and a code."""
        answer = self._server.send(method, path, query=query, form=form)
        body = self._server.expect(answer, what)
        if not isinstance(body, Mapping) or not isinstance(body.get("code"), int):
            raise self._server.misunderstood("whether it succeeded")
        if body["code"] == _SUCCESS:
            return body.get("data")
        said = f"DolphinScheduler did not {what}: {shown(str(body.get('msg')))} ({body['code']})"
        if body["code"] in _NO_RIGHT:
            raise ConfigurationError(f"{said}; give the user of connection {self._server.address.conn_id!r} the right to do so.")
        kinds = {**dict.fromkeys(_NAME_EXISTS, NameTakenError), **dict.fromkeys(_NOT_FOUND, WorkflowNotFoundError)}
        raise kinds.get(body["code"], SchedulerError)(f"{said}.")

    def _code(self, item: Any) -> int:
        if not isinstance(item, Mapping) or not isinstance(item.get("code"), int):
            raise self._server.misunderstood("which code it has")
        return int(item["code"])
