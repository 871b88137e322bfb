"""``serve``: the REST gateway without Airflow's api-server."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from functools import partial
from pathlib import Path

from airflow_dynamic_tables.api.desk import AppComponents
from airflow_dynamic_tables.api.processes import Processes
from airflow_dynamic_tables.api.server import VARIABLE, ListenAddress, TokenAccess, read_token, serve
from airflow_dynamic_tables.cli import arguments as argument_types
from airflow_dynamic_tables.cli.arguments import STATE, Argument
from airflow_dynamic_tables.cli.command_index import command
from airflow_dynamic_tables.cli.project import find_definitions, project_of
from airflow_dynamic_tables.cli.running import OK
from airflow_dynamic_tables.cli.state import quiet_workspace_of
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.project import Project

_WITH_AIRFLOW = ("-m", "airflow", "dynamic-tables")
_WITHOUT_AIRFLOW = ("-m", "airflow_dynamic_tables.cli.main")


@command(
    "serve",
    "run the REST API without Airflow",
    (
        Argument(("--host",), "address to listen on (default: 127.0.0.1, this machine only)", {"default": "127.0.0.1"}),
        Argument(
            ("--port",),
            "the port, or 0 for any that is free (default: 8090)",
            {"type": argument_types.port, "default": 8090, "metavar": "N"},
        ),
        Argument(
            ("--allow-host",),
            "another host name that requests may have, besides localhost and the address; may be repeated",
            {"metavar": "NAME", "action": "append", "dest": "allowed_hosts", "default": []},
        ),
        Argument(
            ("--token-file",),
            "file with the token, which no other user can read (default: the token is in $DYNAMIC_TABLES_TOKEN)",
            {"metavar": "PATH"},
        ),
        Argument(
            ("--jobs",),
            "how many refreshes run at once; others wait (default: 2)",
            {"type": argument_types.positive, "default": 2, "metavar": "N"},
        ),
        Argument(
            ("--patience",),
            "seconds that running refreshes get when the server is stopped; then they are stopped, too (default: 30)",
            {"type": argument_types.positive, "default": 30, "metavar": "N"},
        ),
        *STATE,
    ),
)
def serve_gateway(arguments: Namespace) -> int:
    """Serve the REST gateway: tables, their history and plans, and refreshes as jobs, each in a process that runs the
    command refresh.

    The token gives access to all of it. It prints its address on stderr; SIGTERM or Ctrl-C ends it.
    """
    if arguments.database_url and hasattr(arguments, "installed_settings"):
        raise ConfigurationError(
            "Airflow's connection says where the state is; leave out --database-url, or serve without Airflow."
        )
    token = read_token(Path(arguments.token_file) if arguments.token_file else None, os.environ)
    place = ListenAddress(arguments.host, arguments.port, tuple(arguments.allowed_hosts))
    with quiet_workspace_of(arguments) as workspace:
        workspace.ledger.check()
    if not place.is_loopback:
        print("Others read what is sent without encryption, the token, too; put a proxy with TLS before it.", file=sys.stderr)
    program = _WITH_AIRFLOW if hasattr(arguments, "installed_settings") else _WITHOUT_AIRFLOW
    refreshes = Processes(
        (sys.executable, *program),
        _environment(arguments),
        partial(quiet_workspace_of, arguments),
        arguments.jobs,
        float(arguments.patience),
    )
    gateway = AppComponents.of(
        partial(quiet_workspace_of, arguments), partial(_project, arguments), TokenAccess(token), refreshes
    )
    serve(gateway, refreshes, place, _tell)
    return OK


def _tell(address: str) -> None:
    print(f"Listening at {address}; {address}/v3/openapi.json says what it can be asked.", file=sys.stderr, flush=True)


def _project(arguments: Namespace) -> Project | None:
    return project_of(arguments) if find_definitions(arguments) is not None else None


def _environment(arguments: Namespace) -> dict[str, str]:
    """Return the environment of the server's refreshes: the same state and definitions, and no token.

    Option values are passed here and not on the command line, which other users can read.
    """
    definitions = find_definitions(arguments)
    said = {
        "DYNAMIC_TABLES_DEFINITIONS": str(definitions.absolute()) if definitions is not None else None,
        "DYNAMIC_TABLES_CATALOGS": str(Path(arguments.catalogs).absolute()) if arguments.catalogs else None,
        "DYNAMIC_TABLES_DATABASE_URL": arguments.database_url,
    }
    kept = {name: value for name, value in os.environ.items() if name != VARIABLE}
    return {**kept, **{name: value for name, value in said.items() if value is not None}}
