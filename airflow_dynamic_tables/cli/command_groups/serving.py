"""The command that serves the gateway, and what its refreshes are told."""

from __future__ import annotations

from airflow_dynamic_tables.cli import argument_types
from airflow_dynamic_tables.cli.arguments import STATE, Argument, Command

AS_SOMEBODY_ELSE = (
    Argument(
        ("--scheduled",),
        "as its schedule would: skipped if no input changed, and five failures in a row suspend the table",
        {"action": "store_true"},
    ),
    Argument(
        ("--token",),
        "unique name of this refresh in the history (default: a random one)",
        {"metavar": "TOKEN", "type": argument_types.token},
    ),
)
"""How a program runs a refresh that somebody else asked for."""

SERVING_COMMANDS: tuple[Command, ...] = (
    Command(
        "serve",
        "run the REST API without Airflow",
        "airflow_dynamic_tables.cli.serving.command.serve_gateway",
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
        "Serve the REST gateway: tables, their history and plans, and refreshes as jobs, each in a process that runs the "
        "command refresh. The token gives access to all of it. It prints its address on stderr; SIGTERM or Ctrl-C ends it.",
    ),
)
