"""The state a command works on: ledger and catalogs, from options and environment."""

from __future__ import annotations

import os
from argparse import Namespace
from dataclasses import replace

from airflow_dynamic_tables.cli.project import find_definitions
from airflow_dynamic_tables.services.settings import Settings, embedded_settings, find_catalogs_file
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace


def settings(arguments: Namespace) -> Settings:
    """Where the state lives: an option wins over its environment variable, that one over the catalogs file of the definitions."""
    path = find_definitions(arguments)
    options = {"DYNAMIC_TABLES_DATABASE_URL": arguments.database_url, "DYNAMIC_TABLES_CATALOGS": arguments.catalogs}
    found = embedded_settings(
        {**os.environ, **{name: value for name, value in options.items() if value}}, path and find_catalogs_file(path)
    )
    connections = getattr(arguments, "connections", None)  # Airflow's own, when Airflow runs the command
    return replace(found, connections=connections) if connections else found


def workspace_of(arguments: Namespace) -> Workspace:
    """Ledger and catalogs, to be used as a context manager."""
    return open_workspace(settings(arguments))
