"""The session of a command."""

from __future__ import annotations

import getpass
import os
import socket
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from uuid import uuid4

from airflow_dynamic_tables.cli.commands.one_off.ctas import make_here
from airflow_dynamic_tables.cli.commands.refresh import run_here, spark_runner, stopped_like_ctrl_c
from airflow_dynamic_tables.cli.progress import progress_of
from airflow_dynamic_tables.cli.project import project_of
from airflow_dynamic_tables.cli.state import quiet_workspace_of
from airflow_dynamic_tables.core.query_tests.plan import QueryTestOutcomes, QueryTestPlans
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.services.creating.deciding import Decision
from airflow_dynamic_tables.services.creating.wanted import Created, WantedTable
from airflow_dynamic_tables.sql.session import SqlSession


@contextmanager
def session_of(arguments: Namespace) -> Iterator[SqlSession]:
    """A session on what the arguments name; mistakes of the definitions are printed on stderr.

    The usual folder of definitions need not exist: the first statement that declares a table makes it.
    """
    project = project_of(arguments, may_be_new=True)
    with progress_of(arguments).step("Reading the definitions"):
        mistakes = project.load()[1]
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    owner = f"{getpass.getuser()}@{socket.gethostname()} (dynamic-tables sql, process {os.getpid()})"
    with quiet_workspace_of(arguments) as workspace:
        refresh = partial(run_here, workspace, arguments=arguments)

        def create(wanted: WantedTable, decision: Decision) -> Created:
            token = str(uuid4())
            return make_here(workspace, wanted, decision, arguments, (token, f"{owner} (statement {token})"))

        yield SqlSession.opened(project, workspace, refresh, create, partial(_query_here, arguments), owner)


def _query_here(arguments: Namespace, plans: QueryTestPlans, environment: Mapping[str, str]) -> QueryTestOutcomes:
    """Run queries by the Spark that the arguments name; Ctrl-C and SIGTERM stop them."""
    with progress_of(arguments).step("Starting Spark"), stopped_like_ctrl_c():
        runner = spark_runner(SparkSettings(), arguments)
        return runner.run_query_tests(plans, environment)
