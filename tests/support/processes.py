"""The same work in several processes that start together, as Airflow's do."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable


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
