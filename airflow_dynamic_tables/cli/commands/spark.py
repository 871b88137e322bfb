"""``spark``: the Spark server on this machine that stays warm between refreshes."""

from __future__ import annotations

import sys
from argparse import Namespace
from datetime import timedelta

from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.running import FAILED, OK
from airflow_dynamic_tables.cli.state import settings_of
from airflow_dynamic_tables.runners.local.folder import Options, ServerFolder
from airflow_dynamic_tables.runners.local.server import State, Status, start, status, stop

_WRONG = {
    State.HUNG: "The Spark server does not answer; end it with: dynamic-tables spark stop",
    State.DIED: "The Spark server has died; start another one with: dynamic-tables spark start",
}


def start_server(arguments: Namespace) -> int:
    """Start the server, and print what it is like."""
    folder = _folder(arguments)
    _, is_new = start(folder, Options(arguments.master, arguments.driver_memory, arguments.idle))
    print("The Spark server was started." if is_new else "The Spark server runs already.", file=sys.stderr)
    _print(status(folder), arguments.output)
    return OK


def stop_server(arguments: Namespace) -> int:
    """End the server."""
    print("The Spark server was ended." if stop(_folder(arguments)) else "No Spark server runs.", file=sys.stderr)
    return OK


def show_server(arguments: Namespace) -> int:
    """Print what the server is like."""
    found = status(_folder(arguments))
    _print(found, arguments.output)
    if found.state in _WRONG:
        print(_WRONG[found.state], file=sys.stderr)
        return FAILED
    return OK


def _folder(arguments: Namespace) -> ServerFolder:
    return ServerFolder.of(settings_of(arguments).database_url)


def _print(found: Status, form: str) -> None:
    """A person reads durations, and nothing of what is not known."""
    if form != "table":
        output.record(found, form)
        return
    shown = {name: value for name, value in output.items(found).items() if value is not None}
    durations = {name.removesuffix("_seconds"): timedelta(seconds=shown.pop(name)) for name in list(shown) if "seconds" in name}
    output.record({**shown, "state": found.state.value, **durations}, "table")
