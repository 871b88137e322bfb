"""``refresh``: one refresh without Airflow, with spark-submit as a child process."""

from __future__ import annotations

import getpass
import os
import signal
import socket
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.progress import Progress
from airflow_dynamic_tables.cli.project import definitions, named_table, schedule_time
from airflow_dynamic_tables.cli.running import OK
from airflow_dynamic_tables.cli.state import workspace
from airflow_dynamic_tables.core.plan import RefreshPlan
from airflow_dynamic_tables.services.planning import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refreshing import run
