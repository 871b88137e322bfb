"""The state of a command: ledger and catalogs, from options or from the installation's settings."""

from __future__ import annotations

import getpass
import os
import socket
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from airflow_dynamic_tables.cli.project import defined_names, find_definitions
from airflow_dynamic_tables.cli.running import progress_of
from airflow_dynamic_tables.clients.connections import Connections
from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.exceptions import DynamicTableError, TableNotFoundError
from airflow_dynamic_tables.schedulers.base import WorkflowScheduler
from airflow_dynamic_tables.services.project import new_definitions
from airflow_dynamic_tables.services.settings import WorkspaceSettings, embedded_settings, find_catalogs_file
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace


@contextmanager
def workspace_of(arguments: Namespace, doing: str = "Asking catalogs and ledger") -> Iterator[Workspace]:
    """Open ledger and catalogs for the body, which must not print to stdout."""
    with progress_of(arguments).step(doing), quiet_workspace_of(arguments) as workspace:
        try:
            yield workspace
        except TableNotFoundError as error:
            raise TableNotFoundError(f"{error}{_meant(arguments, workspace)}") from error


def _meant(arguments: Namespace, workspace: Workspace) -> str:
    """Suggest a table, if a full name is similar to that of a defined table or of one in the same database."""
    name = getattr(arguments, "table", None)
    if not isinstance(name, str) or name.count(".") != 2:
        return ""  # a shorter name is looked up in the definitions, which make the suggestion
    known = set(defined_names(arguments))
    catalog, database, _ = name.split(".")
    with suppress(DynamicTableError):
        known |= {f"{catalog}.{database}.{table}" for table in workspace.readable(catalog).list_tables(database)}
    hint = "" if name in known else did_you_mean(name, known)
    return f" Did you mean{hint.partition('did you mean')[2]}" if hint else ""


def quiet_workspace_of(arguments: Namespace) -> Workspace:
    """Open ledger and catalogs as a context manager, for a body that prints or prompts.

    If Airflow runs the command, it sets ``installed_schedulers``, which reach this Airflow without a connection.
    """
    workspace = open_workspace(settings_of(arguments))
    schedulers: Callable[[str, Connections], WorkflowScheduler] | None = getattr(arguments, "installed_schedulers", None)
    return replace(workspace, schedulers=schedulers) if schedulers is not None else workspace


def owner_of(command: str, token: str) -> str:
    """Return the owner name of a stage that a command creates."""
    # Two containers may share host name and process id; the token distinguishes them.
    return f"{getpass.getuser()}@{socket.gethostname()} (dynamic-tables {command} {token}, process {os.getpid()})"


def settings_of(arguments: Namespace) -> WorkspaceSettings:
    """Return the location of the state: options override the installation's settings.

    If Airflow runs the command, the settings come from its connection: it sets ``installed_settings``, a function that takes the
    catalogs file of the definitions. Otherwise they come from the environment.
    """
    definitions = find_definitions(arguments) or new_definitions(arguments.definitions)
    installed: Callable[[Path | None], WorkspaceSettings] = getattr(arguments, "installed_settings", _settings_of_the_environment)
    settings = installed(find_catalogs_file(definitions) if definitions else None)
    if arguments.database_url:
        settings = replace(settings, database_url=arguments.database_url)
    if arguments.catalogs:
        settings = replace(settings, catalogs_file=Path(arguments.catalogs))
    return settings


def _settings_of_the_environment(catalogs_file: Path | None) -> WorkspaceSettings:
    return embedded_settings(os.environ, catalogs_file)
