"""What the job imports: a plain installation of Spark has no client of Spark Connect."""

from __future__ import annotations

import subprocess
import sys

JOB = """
import sys

sys.modules.update(dict.fromkeys(("google", "grpc", "pandas", "pyarrow")))  # importing them fails
import airflow_dynamic_tables.jobs.main
print("imported")  # without grpc, the client of Spark Connect ends the process, and reports success
"""


def test_the_driver_of_spark_submit_needs_no_spark_connect() -> None:
    done = subprocess.run([sys.executable, "-c", JOB], capture_output=True, text=True, timeout=120)
    assert done.stdout == "imported\n", done.stderr
