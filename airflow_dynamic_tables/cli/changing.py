"""``create``, ``adopt``, ``rollback``, ``publish``, ``abort``, ``gc`` and ``db upgrade``: changing the state without a job."""

from __future__ import annotations

import getpass
import os
import socket
import sys
from argparse import Namespace
from uuid import uuid4

from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.project import definitions, identifier, named_table, named_tables
from airflow_dynamic_tables.cli.running import FAILED, OK
from airflow_dynamic_tables.cli.state import workspace
from airflow_dynamic_tables.services.lifecycle import adopt, create
from airflow_dynamic_tables.services.quarantine import publish, reject
from airflow_dynamic_tables.services.restoring import RollbackRequest, rollback
from airflow_dynamic_tables.services.sweeping import sweep


def create_(arguments: Namespace) -> int:
    """Register the named tables, or all, and print what became of each."""
    defined, sound = definitions(arguments)
    tables = named_tables(defined, arguments.tables)
    with workspace(arguments) as state:
        done = [{"identifier": str(table.identifier), "registration": create(state, table)} for table in tables]
    output.listing(done, arguments.output)
    return OK if sound or arguments.tables else FAILED


def adopt_(arguments: Namespace) -> int:
    """Make a dynamic table of a table that is there already, and print what became of it."""
    defined, _ = definitions(arguments)
    table = named_table(defined, arguments.table)
    with workspace(arguments) as state:
        registration = adopt(state, table)
    output.record({"identifier": str(table.identifier), "registration": registration}, arguments.output)
    return OK


def gc(arguments: Namespace) -> int:
    """Settle what died, and print the tokens of the stages and what became of them."""
    with workspace(arguments) as state:
        report = sweep(state)
    output.record(report, arguments.output)
    return FAILED if report.failed else OK


def publish_(arguments: Namespace) -> int:
    """Commit a stage that is in quarantine and print its version."""
    with workspace(arguments) as state:
        version = publish(state, arguments.token)
        refresh = state.ledger.get_refresh(arguments.token)
    output.record({**({"table": refresh.table} if refresh else {}), **output.items(version)}, arguments.output)
    return OK


def abort(arguments: Namespace) -> int:
    """Delete a stage that is in quarantine."""
    with workspace(arguments) as state:
        reject(state, arguments.token, f"aborted by {getpass.getuser()}@{socket.gethostname()}")
    print(f"Stage {arguments.token} is aborted; its files are deleted.", file=sys.stderr)
    return OK


def rollback_(arguments: Namespace) -> int:
    """Restore an earlier version and print the new one."""
    owner = f"{getpass.getuser()}@{socket.gethostname()} (dynamic-tables rollback, process {os.getpid()})"
    name = identifier(arguments, arguments.table)
    with workspace(arguments) as state:
        version = rollback(state, RollbackRequest(name, arguments.to, str(uuid4()), owner))
    output.record({"table": str(name), "restored": arguments.to, **output.items(version)}, arguments.output)
    return OK


def upgrade_database(arguments: Namespace) -> int:
    """Bring the databases of ledger and catalogs to this release's schema."""
    with workspace(arguments) as state:
        state.upgrade()
    print("Ledger and catalogs are up to date.", file=sys.stderr)
    return OK
