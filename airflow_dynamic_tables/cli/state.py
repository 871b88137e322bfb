"""The state a command works on: ledger and catalogs, from options and from where the installation keeps it."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from airflow_dynamic_tables.cli.project import find_definitions
from airflow_dynamic_tables.services.project import new_definitions
from airflow_dynamic_tables.services.settings import Settings, embedded_settings, find_catalogs_file
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace


def workspace_of(arguments: Namespace) -> Workspace:
    """Ledger and catalogs, to be used as a context manager."""
    return open_workspace(settings_of(arguments))


def settings_of(arguments: Namespace) -> Settings:
    """Where the state lives: an option wins over what the installation says.

    The installation is Airflow's connection when Airflow runs the command, which then brings ``installed_settings``: settings,
    given the catalogs file of the definitions. Else it is the environment.
    """
    definitions = find_definitions(arguments) or new_definitions(arguments.definitions)
    installed: Callable[[Path | None], Settings] = getattr(arguments, "installed_settings", _settings_of_the_environment)
    settings = installed(find_catalogs_file(definitions) if definitions else None)
    if arguments.database_url:
        settings = replace(settings, database_url=arguments.database_url)
    if arguments.catalogs:
        settings = replace(settings, catalogs_file=Path(arguments.catalogs))
    return settings


def _settings_of_the_environment(catalogs_file: Path | None) -> Settings:
    return embedded_settings(os.environ, catalogs_file)
