"""A dead process is noticed on its own machine, and never guessed on another."""

import os
import subprocess
import sys

from airflow_dynamic_tables.services.writes.leases import current_process, is_dead
from tests.support.suite import missing_service


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
    host, namespace, pid, started, _ = current_process().split("|")
    assert not is_dead(current_process())
    assert is_dead("|".join((host, namespace, pid, str(int(started) - 1))))


def test_a_process_of_another_machine_is_never_called_dead() -> None:
    _, namespace, _, started, _ = current_process().split("|")
    assert not is_dead("|".join(("another-host", namespace, "999999999", started)))
    assert not is_dead("whatever")


def test_no_two_processes_look_the_same_and_without_a_namespace_none_is_called_dead() -> None:
    assert current_process() != current_process()
    host, _, _, started, random = current_process().split("|")
    assert not is_dead("|".join((host, "", "999999999", started, random)))


def test_a_living_process_that_proc_hides_is_not_called_dead() -> None:
    """It is another user's, and ``/proc`` is mounted with ``hidepid=2``."""
    if os.geteuid() != 0:
        missing_service("needs root, who alone can hide processes")
    code = (
        f"import os, sys; from {current_process.__module__} import is_dead; os.setgroups([]); os.setgid(65534); os.setuid(65534);"
        " print(os.path.exists('/proc/' + sys.argv[1]), is_dead(sys.argv[2]))"
    )
    look = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    other = [sys.executable, "-c", code, str(os.getpid()), current_process()]
    done = subprocess.run(["unshare", "--mount", "sh", "-c", look, "sh", *other], capture_output=True, text=True, check=False)
    if done.returncode and "mount" in done.stderr:
        missing_service(done.stderr)
    assert done.stdout.split() == ["False", "False"], done.stderr
