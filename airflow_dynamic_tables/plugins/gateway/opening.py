"""Construction of the gateway from Airflow's configuration: connection, definitions, logins and DAGs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from airflow.configuration import conf
from fastapi import FastAPI
from starlette.types import ASGIApp

from airflow_dynamic_tables.api.access import Caller
from airflow_dynamic_tables.api.app import make_app
from airflow_dynamic_tables.api.desk import AppComponents, Declared, Workspaces, guarded, known_table
from airflow_dynamic_tables.clients.connections import Connections
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.dags.declared import configured_threshold
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConfigurationError, DefinitionError
from airflow_dynamic_tables.hooks.dynamic_table_catalog import DynamicTableCatalogHook, configured_connection
from airflow_dynamic_tables.plugins.gateway.access import AirflowAccess
from airflow_dynamic_tables.plugins.gateway.runs import AT_ONCE, AirflowRuns, airflow_as
from airflow_dynamic_tables.plugins.metadata import AirflowMetadata
from airflow_dynamic_tables.plugins.page.files import PATH, PageFiles
from airflow_dynamic_tables.schedulers.airflow import AirflowScheduler
from airflow_dynamic_tables.schedulers.base import DEFAULT_SCHEDULER, WorkflowScheduler, open_scheduler
from airflow_dynamic_tables.services.project import Project, open_project
from airflow_dynamic_tables.services.settings import find_catalogs_file
from airflow_dynamic_tables.services.workspace import Workspace


def open_gateway(airflow: ASGIApp) -> FastAPI:
    """Create the gateway of this Airflow, with the page. Configuration errors are returned to the requests that they affect."""
    declared = Declared(_open_project)
    runs = AirflowRuns(airflow, partial(_workflow_of, declared))
    workspaces, as_caller = Workspaces(_open_workspace), partial(_as_caller, airflow)
    components = AppComponents(
        workspaces,
        declared,
        AirflowAccess(),
        runs,
        at_once=AT_ONCE,
        as_caller=as_caller,
        paused=AirflowScheduler(AirflowMetadata()).paused,
    )
    app = make_app(components)
    app.mount(PATH, PageFiles())
    return app


def _as_caller(airflow: ASGIApp, workspace: Workspace, caller: Caller) -> Workspace:
    """Return a workspace that accesses this Airflow as the caller, so that the caller's permissions apply to pausing DAGs."""

    def open_as_caller(name: str, connections: Connections) -> WorkflowScheduler:
        token = caller.user.token
        is_here = name == DEFAULT_SCHEDULER and token is not None
        return AirflowScheduler(airflow_as(token, airflow)) if is_here else open_scheduler(name, connections)

    return replace(workspace, schedulers=open_as_caller)


def _workflow_of(declared: Declared, workspace: Workspace, identifier: TableIdentifier) -> str:
    return guarded(known_table(declared, workspace, identifier)).workflow_id


def _open_project() -> Project | None:
    with _unavailable():
        path = _definitions()
        return open_project(str(path), threshold=configured_threshold()) if path is not None else None


def _open_workspace() -> Workspace:
    with _unavailable():
        path = _definitions()
        catalogs_file = find_catalogs_file(path) if path is not None else None
        return DynamicTableCatalogHook(configured_connection(), catalogs_file).get_conn()


def _definitions() -> Path | None:
    """Return the path of the definitions, see option ``definitions``; ``None`` if not configured and not beside the DAGs."""
    named = str(conf.get("dynamic_tables", "definitions", fallback="")) or os.environ.get("DYNAMIC_TABLES_DEFINITIONS")
    if named:
        return Path(named)
    beside = Path(conf.get_mandatory_value("core", "dags_folder")) / "definitions"
    return beside if beside.exists() else None


@contextmanager
def _unavailable() -> Iterator[None]:
    """Translate configuration errors: the request is valid, and can be retried after the configuration is corrected."""
    try:
        yield
    except (ConfigurationError, DefinitionError) as error:
        raise CatalogUnavailableError(f"The gateway is not configured rightly. {error}") from error
