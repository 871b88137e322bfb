"""The session of a command."""

from __future__ import annotations

import getpass
import os
import socket
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from airflow_dynamic_tables.cli.commands.refresh import run_here
from airflow_dynamic_tables.cli.project import project_of
from airflow_dynamic_tables.cli.state import workspace_of
from airflow_dynamic_tables.sql.session import Session


@contextmanager
def session_of(arguments: Namespace) -> Iterator[Session]:
    """A session on what the arguments name; mistakes of the definitions are printed on stderr."""
    project = project_of(arguments)
    for mistake in project.load()[1]:
        print(mistake, file=sys.stderr)
    owner = f"{getpass.getuser()}@{socket.gethostname()} (dynamic-tables sql, process {os.getpid()})"
    with workspace_of(arguments) as workspace:
        refresh = partial(run_here, workspace, arguments=arguments)
        yield Session.opened(project, workspace, refresh, owner)
