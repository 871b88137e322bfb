"""Processes that look at a table again and again while somebody else changes it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import BrokenBarrierError
from typing import Any, Protocol

from tests.support.faults.children import PROCESSES

FAILED = "failed: "
_PATIENCE = 300  # seconds: a process that starts on a busy machine may take its time


class Reader(Protocol):
    """One who reads a table; lives in a process of its own."""

    def poll(self) -> tuple[str, str]:
        """Look once.

        :return: the way it was looked, and what was seen: equal texts for equal content.
        """

    def close(self) -> list[str]:
        """Let go of everything.

        :return: what was wrong beside what was seen.
        """


@dataclass(slots=True)
class Sight:
    """What a process saw, how many times one after the other, and for how long that took."""

    state: str
    times: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """What one process saw: ``seen`` in order, and how often it looked in which way."""

    seen: list[Sight]
    ways: Counter[str]
    complaints: list[str]

    @property
    def polls(self) -> int:
        """How often it looked."""
        return self.ways.total()


class Watchers:
    """Reader processes at work; all have looked once, and found the table readable, before the body begins."""

    def __init__(self, make: Callable[..., Reader], arguments: tuple[Any, ...], processes: int) -> None:
        self._stop, self._polls = PROCESSES.Event(), PROCESSES.Value("q", 0)
        self._ready = PROCESSES.Barrier(processes + 1)
        self._pool = ProcessPoolExecutor(processes, PROCESSES, _share, (self._stop, self._polls, self._ready))
        self._futures: list[Future[Report]] = [self._pool.submit(_watch, make, arguments) for _ in range(processes)]
        for future in self._futures:
            future.add_done_callback(lambda _: self._ready.abort())  # nobody waits for one that broke off

    @property
    def polls(self) -> int:
        """How often all of them looked until now."""
        return int(self._polls.value)

    @property
    def alive(self) -> bool:
        """Whether none of them broke off."""
        return not any(future.done() for future in self._futures)

    def begin(self) -> None:
        """Wait until all of them look."""
        try:
            self._ready.wait(_PATIENCE)
        except BrokenBarrierError:
            for future in self._futures:
                if future.done():
                    future.result()
            raise

    def reports(self) -> list[Report]:
        """Stop them and take what they saw."""
        self._stop.set()
        return [future.result(_PATIENCE) for future in self._futures]

    def stop(self) -> None:
        """Stop them, whatever happened."""
        self._stop.set()
        self._ready.abort()
        self._pool.shutdown()


@contextmanager
def watching(make: Callable[..., Reader], *arguments: Any, processes: int = 4) -> Iterator[Watchers]:
    """Have processes look at a table all the time while the body changes it.

    :param make: makes a process's reader from ``arguments``; a function or class of a module.
    """
    watchers = Watchers(make, arguments, processes)
    try:
        watchers.begin()
        yield watchers
    finally:
        watchers.stop()


_shared: Any = None


def _share(*shared: Any) -> None:
    global _shared
    _shared = shared


def _watch(make: Callable[..., Reader], arguments: tuple[Any, ...]) -> Report:
    stop, polls, ready = _shared
    reader = make(*arguments)
    seen: list[Sight] = []
    ways: Counter[str] = Counter()
    while not stop.is_set():
        start = time.monotonic()
        way, state = _look(reader)
        ways[way] += 1
        if not seen or seen[-1].state != state:
            seen.append(Sight(state))
        seen[-1].times += 1
        seen[-1].seconds += time.monotonic() - start
        with polls.get_lock():
            polls.value += 1
        if ways.total() == 1:
            ready.wait(_PATIENCE)
    return Report(seen, ways, reader.close())


def _look(reader: Reader) -> tuple[str, str]:
    try:
        return reader.poll()
    except Exception as error:  # a reader that fails has seen something wrong
        return "failed", f"{FAILED}{type(error).__name__}: {error}"
