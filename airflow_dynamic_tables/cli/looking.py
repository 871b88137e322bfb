"""``list``, ``show`` and ``history``: what stands where."""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import asdict

from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.project import definitions, identifier
from airflow_dynamic_tables.cli.running import FAILED, OK
from airflow_dynamic_tables.cli.state import workspace
from airflow_dynamic_tables.services import status
from airflow_dynamic_tables.services.status import TableDetails

_LIST = ("identifier", "refresh_mode", "freshness", "version", "data_timestamp", "last_refresh")
_VERSIONS = ("number", "data_timestamp", "committed_at", "snapshot", "token")
_HISTORY = ("started_at", "table", "action", "state", "schedule_time", "version", "rows", "seconds", "error")


def list_(arguments: Namespace) -> int:
    """Print every dynamic table at a glance."""
    defined, sound = definitions(arguments)
    with workspace(arguments) as state:
        output.listing(status.list_tables(state, defined.tables), arguments.output, _LIST)
    return OK if sound else FAILED


def show(arguments: Namespace) -> int:
    """Print one dynamic table in full, with its first rows when asked."""
    name = identifier(arguments, arguments.table)
    with workspace(arguments) as state:
        details = status.show_table(state, name, arguments.limit)
        rows = status.sample(state, name, arguments.rows) if arguments.rows else []
    if arguments.output == "table":
        _show(details, rows)
    else:
        output.record({**output.plain(details), "rows": rows}, arguments.output)
    return OK


def _show(details: TableDetails, rows: list[dict[str, object]]) -> None:
    entry = details.table
    output.record({**asdict(details.status), "partition_keys": entry.partition_keys, "comment": entry.comment}, "table")
    for title, records, columns in (
        ("columns", entry.columns, ("name", "type", "comment")),
        ("versions", details.versions, _VERSIONS),
        ("refreshes", details.refreshes, _HISTORY),
        ("rows", rows, ()),
    ):
        if records:
            print(f"\n{title}:")
            output.listing(records, "table", columns)


def history(arguments: Namespace) -> int:
    """Print the latest refreshes, newest first."""
    name = str(identifier(arguments, arguments.table)) if arguments.table else None
    with workspace(arguments) as state:
        refreshes = state.ledger.list_refreshes(name, arguments.limit)
    if not refreshes:
        print(f"No refresh{f' of {name}' if name else ''} is recorded.", file=sys.stderr)
    output.listing(refreshes, arguments.output, _HISTORY)
    return OK
