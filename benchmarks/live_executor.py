"""Runs loops as Airflow's LocalExecutor does: a process for each, forked from one that knows Airflow, and nothing of the tables.

Arguments: the definitions, then the DAGs. It ends when it gets SIGTERM, after all loops have come to their end.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path


def main(definitions: Path, dag_ids: list[str]) -> int:
    """Fork a process for each loop, and wait for them.

    :return: 0 when all came to a good end.
    """
    for module in ("airflow.executors.local_executor", "airflow.sdk.execution_time.task_runner"):
        import_module(module)
    gc.freeze()  # as the executor does, so that nothing is copied for a look at it
    loops = [_forked(definitions, dag_id) for dag_id in dag_ids]

    def stop(*_: object) -> None:
        for pid in loops:
            os.kill(pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    return max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in loops)


def _forked(definitions: Path, dag_id: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        import_module("airflow_dynamic_tables.dag_factory")  # the file of the DAG does that, and it imports the operators
        import_module("live_loop").run(definitions, dag_id)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
