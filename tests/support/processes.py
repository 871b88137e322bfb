"""Work in other processes: in several that start together, as Airflow's do, or in one that may do less; and who runs at all."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil


def at_once(number: int, work: Callable[[int], object]) -> list[object]:
    """Run work in so many forked processes; each is told its number.

    :return: what each returned, or the name of the error it raised.
    """
    context = multiprocessing.get_context("fork")
    start, results = context.Barrier(number), context.SimpleQueue()

    def run(me: int) -> None:
        start.wait()
        try:
            results.put(work(me))
        except Exception as error:
            traceback.print_exc()
            results.put(type(error).__name__)

    processes = [context.Process(target=run, args=(me,)) for me in range(number)]
    for process in processes:
        process.start()
    found = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return found


def as_nobody(work: Callable[[], object]) -> object:
    """Run work in a forked process that folders without permissions are closed to, which they never are to root.

    :return: what it returned, or the text of the error that it raised.
    """

    def with_less_rights(_: int) -> object:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        try:
            return work()
        except Exception as error:
            return str(error)

    return at_once(1, with_less_rights)[0]


def command_lines() -> list[str]:
    return [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]


def command_line(process: psutil.Process) -> str:
    """Its command line; empty when it is gone."""
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def descendants(pid: int) -> list[psutil.Process]:
    """The processes that a process started, and those that they started; none when it is gone."""
    with suppress(psutil.NoSuchProcess):
        found: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
        return found
    return []


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a child process, and all that it started."""
    started = descendants(process.pid)
    process.kill()
    for child in started:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    process.wait()


def wait_until(condition: Callable[[], object], awaited: str, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{awaited} did not come within {seconds} s"
        time.sleep(0.05)


@contextmanager
def running_server(name: str, command: Sequence[str], log: Path, answers: Callable[[], object]) -> Iterator[None]:
    """Run a server in the folder of its log; the body begins when it answers, and the server ends with it."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=log.parent, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def is_up() -> object:
        assert process.poll() is None, log.read_text()[-4000:]
        return answers()

    try:
        wait_until(is_up, f"an answer of {name}")
        yield
    finally:
        process.terminate()
        process.wait()
