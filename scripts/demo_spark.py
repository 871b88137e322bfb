"""The demo's Spark: a server of its own that stays warm between tables, where this machine can have one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from demo_home import BIN, LOGS

from airflow_dynamic_tables.clients.processes import machine
from airflow_dynamic_tables.runners.local.folder import ServerFolder
from airflow_dynamic_tables.runners.local.server import stop
from airflow_dynamic_tables.services.settings import embedded_settings


@contextmanager
def warm_spark(environ: Mapping[str, str]) -> Iterator[None]:
    """Start the server beside what the body does, and end it afterwards, whichever task has started it anew meanwhile.

    :param environ: says where the installation has its state.
    """
    if not machine():
        yield
        return
    with (LOGS / "spark.log").open("wb") as log:
        command = [str(BIN / "dynamic-tables"), "spark", "start"]
        starting = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        starting.wait()
        stop(ServerFolder.of(embedded_settings(environ).database_url))
