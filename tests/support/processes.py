"""Work in other processes: in several that start together, as Airflow's do, or in one that may do less; and who runs at all."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable

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
