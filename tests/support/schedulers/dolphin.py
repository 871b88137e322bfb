"""A stand-in for DolphinScheduler: it keeps what it is told, and refuses what the real one refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from airflow_dynamic_tables.clients.connections import Connection
from tests.support.described_server import DescribedServer, Request, described_server

PROJECT = 149_000_000_000_001
"""Codes are longer than what fits into 32 bits."""


@cache
def description(release: str) -> dict[str, Any]:
    text = (Path(__file__).parent / "dolphinscheduler.yaml").read_text()
    if release == "3.2":
        for new, old in (("workflow-definition", "process-definition"), ("workflowDefinition", "processDefinition")):
            text = text.replace(new, old)
        text = text.replace("workflowInstance", "processInstance").replace("WorkflowDefinition", "ProcessDefinition")
    parsed: dict[str, Any] = yaml.safe_load(text)
    return parsed


class Refused(Exception):  # noqa: N818 - an answer, and no error of the test
    """An answer with a code."""


@dataclass
class StandIn:
    """Projects by code, workflows by code, and schedules by id, as the real one would give them."""

    release: str
    server: DescribedServer = field(default_factory=lambda: DescribedServer(""))
    projects: dict[int, str] = field(default_factory=dict)
    workflows: dict[int, dict[str, Any]] = field(default_factory=dict)
    schedules: dict[int, dict[str, Any]] = field(default_factory=dict)
    dies_at: int | None = None
    """After how many requests the client is killed: it gets no answer, but what it asked for is done."""
    hidden: set[str] = field(default_factory=set)
    """Names of projects that this user does not see."""

    @property
    def word(self) -> str:
        return "process" if self.release == "3.2" else "workflow"

    def answer(self, request: Request) -> tuple[int, Any]:
        """What it answers: status 200 whatever becomes of it."""
        if request.headers.get("token") != "t0ken":
            return 401, None
        operation = request.operation.replace("Process", "Workflow")
        try:
            data = getattr(self, f"_{operation}")(request)
        except Refused as refused:
            code, message = refused.args
            return 200, {"code": code, "msg": message, "data": None}
        if self.dies_at is not None and len(self.server.requests) >= self.dies_at:
            return 503, None
        return (201 if operation.startswith("create") else 200), {"code": 0, "msg": "success", "data": data}

    def connections(self, conn_id: str) -> Connection:
        assert conn_id == "dynamic_tables_dolphinscheduler"
        extra = {"gateway": "https://gateway.example.org/", "gateway_token": "${dynamic_tables_token}", "version": self.release}
        return Connection(host=self.server.url, password="t0ken", extra=extra)

    def _queryProjectListPaging(self, request: Request) -> Any:  # noqa: N802 - operations go by the names of the API
        visible = {code: name for code, name in self.projects.items() if name not in self.hidden}
        return _page([{"code": code, "name": name} for code, name in visible.items()], request)

    def _createProject(self, request: Request) -> Any:  # noqa: N802
        name = request.body["projectName"]
        if name in self.projects.values():
            raise Refused(10019, f"project {name} already exists")
        self.projects[PROJECT + len(self.projects)] = name
        return {"code": max(self.projects), "name": name}

    def _genTaskCodeList(self, request: Request) -> Any:  # noqa: N802
        self._project(request)
        return [PROJECT + 100 + len(self.server.requests)]

    def _queryWorkflowDefinitionListPaging(self, request: Request) -> Any:  # noqa: N802
        project = self._project(request)
        return _page([item for item in self.workflows.values() if item["projectCode"] == project], request)

    def _createWorkflowDefinition(self, request: Request) -> Any:  # noqa: N802
        project = self._project(request)
        if any(item["name"] == request.body["name"] for item in self.workflows.values()):
            raise Refused(10168, "workflow definition name already exists")
        code = PROJECT + 1_000 + len(self.server.requests)
        self.workflows[code] = {"code": code, "projectCode": project, "releaseState": "OFFLINE", **_said(request)}
        return self.workflows[code]

    def _queryWorkflowDefinitionByCode(self, request: Request) -> Any:  # noqa: N802
        workflow = self._workflow(request)
        return {f"{self.word}Definition": workflow, "taskDefinitionList": json.loads(workflow["tasks"])}

    def _updateWorkflowDefinition(self, request: Request) -> Any:  # noqa: N802
        workflow = self._workflow(request)
        if workflow["releaseState"] == "ONLINE":
            raise Refused(50008, "workflow definition is online, and cannot be edited")
        workflow.update(_said(request))
        return workflow

    def _releaseWorkflowDefinition(self, request: Request) -> Any:  # noqa: N802
        workflow = self._workflow(request)
        workflow["releaseState"] = request.body["releaseState"]
        if request.body["releaseState"] == "OFFLINE":
            for schedule in self._schedules_of(workflow["code"]):
                schedule["releaseState"] = "OFFLINE"
        return True

    def _deleteWorkflowDefinitionByCode(self, request: Request) -> Any:  # noqa: N802
        workflow = self._workflow(request)
        if workflow["releaseState"] == "ONLINE":
            raise Refused(50021, "workflow definition is already online")
        for schedule in self._schedules_of(workflow["code"]):
            del self.schedules[schedule["id"]]
        del self.workflows[workflow["code"]]

    def _queryScheduleListPaging(self, request: Request) -> Any:  # noqa: N802
        self._project(request)
        return _page(self._schedules_of(int(request.query[f"{self.word}DefinitionCode"])), request)

    def _createSchedule(self, request: Request) -> Any:  # noqa: N802
        self._project(request)
        code = int(request.body[f"{self.word}DefinitionCode"])
        if self.workflows[code]["releaseState"] != "ONLINE":
            raise Refused(50004, "workflow definition is not on line")
        if self._schedules_of(code):
            raise Refused(10204, "the workflow has a schedule already")
        number = len(self.server.requests)
        told = json.loads(request.body["schedule"])
        self.schedules[number] = {"id": number, f"{self.word}DefinitionCode": code, "releaseState": "OFFLINE", **told}
        return self.schedules[number]

    def _updateSchedule(self, request: Request) -> Any:  # noqa: N802
        schedule = self.schedules[int(request.path["id"])]
        if schedule["releaseState"] == "ONLINE":
            raise Refused(10024, "online status does not allow update operations")
        schedule.update(json.loads(request.body["schedule"]))
        return schedule

    def _publishScheduleOnline(self, request: Request) -> Any:  # noqa: N802
        schedule = self.schedules[int(request.path["id"])]
        if self.workflows[schedule[f"{self.word}DefinitionCode"]]["releaseState"] != "ONLINE":
            raise Refused(50004, "workflow definition is not on line")
        schedule["releaseState"] = "ONLINE"
        return True

    def _offlineSchedule(self, request: Request) -> Any:  # noqa: N802
        self.schedules[int(request.path["id"])]["releaseState"] = "OFFLINE"
        return True

    def _project(self, request: Request) -> int:
        code = int(request.path["projectCode"])
        if code not in self.projects:
            raise Refused(10018, f"project {code} not found")
        return code

    def _workflow(self, request: Request) -> dict[str, Any]:
        self._project(request)
        code = int(request.path["code"])
        if code not in self.workflows:
            raise Refused(50003, f"workflow definition {code} does not exist")
        return self.workflows[code]

    def _schedules_of(self, code: int) -> list[dict[str, Any]]:
        return [item for item in self.schedules.values() if item[f"{self.word}DefinitionCode"] == code]


def _said(request: Request) -> dict[str, Any]:
    return {"name": request.body["name"], "tasks": request.body["taskDefinitionJson"]}


def _page(items: list[dict[str, Any]], request: Request) -> dict[str, Any]:
    matching = [item for item in items if request.query.get("searchVal", "") in item.get("name", "")]
    size = int(request.query["pageSize"])
    first = (int(request.query["pageNo"]) - 1) * size
    return {"totalList": matching[first : first + size], "total": len(matching)}


@contextmanager
def stand_in(release: str) -> Iterator[StandIn]:
    dolphin = StandIn(release)
    with described_server(description(release), dolphin.answer) as server:
        dolphin.server = server
        yield dolphin
