"""HDFS as this process sees it; what needs a cluster is in ``tests/faults/test_yarn.py``."""

from __future__ import annotations

import subprocess
import sys

import pytest

from airflow_dynamic_tables.clients.hdfs import HadoopFileSystem

PROGRAM = """
import os
from airflow_dynamic_tables.clients.files import file_system
system, _ = file_system("hdfs://127.0.0.1:1/lake")
if child := os.fork():
    print(os.waitpid(child, 0)[1])
else:
    del system
    os._exit(0)
"""


def test_a_process_that_used_hdfs_can_fork() -> None:
    """As Airflow's do for each task: a client that was dropped in the child waited for threads that are not there."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[-1] == "0"


def test_a_file_system_is_opened_once() -> None:
    assert HadoopFileSystem("127.0.0.1", 1) is HadoopFileSystem("127.0.0.1", 1)


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("hdfs://127.0.0.1:1/lake/ds=a;b", "/lake/ds=a;b"),
        ("/lake/ds=a;b?c#d", "/lake/ds=a;b?c#d"),
        ("hdfs://127.0.0.1:1", "/"),
        ("", "/"),
    ],
)
def test_a_path_may_have_any_sign(uri: str, path: str) -> None:
    assert HadoopFileSystem._strip_protocol(uri) == path
