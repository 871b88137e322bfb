"""A dead process is noticed on its own machine, and never guessed on another."""

import subprocess
import sys

from airflow_dynamic_tables.services.stages.processes import current_process, is_dead


def _child() -> "subprocess.Popen[str]":
    module = current_process.__module__
    code = f"from {module} import current_process; print(current_process(), flush=True); input()"
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_process_is_alive_until_it_is_killed() -> None:
    with _child() as child:
        assert child.stdout is not None
        process = child.stdout.readline().strip()
        assert not is_dead(process)
        child.kill()
        child.wait()
        assert is_dead(process)


def test_a_reused_process_id_is_another_process() -> None:
    host, namespace, pid, started = current_process().split("|")
    assert not is_dead(current_process())
    assert is_dead("|".join((host, namespace, pid, str(int(started) - 1))))


def test_a_process_of_another_machine_is_never_called_dead() -> None:
    _, namespace, _, started = current_process().split("|")
    assert not is_dead("|".join(("another-host", namespace, "999999999", started)))
    assert not is_dead("whatever")
