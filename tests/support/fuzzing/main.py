"""The program: ``python -m tests.support.fuzzing.main --number 2000 --seed 1``; ``make fuzz`` calls it.

Mutants have numbers, from the seed on, and a number means the same mutant always: ``--number 1`` with the number of one that
failed repeats it.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
from mmap import mmap
from pathlib import Path

from tests.support.fuzzing.targets import TARGETS, mutant

SECONDS = 10
"""Processor time for one mutant."""

MEMORY = 500_000_000
"""Bytes that mutants may take, beside what the program has before the first one."""

_COUNTERS = struct.Struct("QQ")
"""What the child says to its parent: the number of its mutant, and how many failed."""


def main() -> int:
    """Try mutants until all are done; those that fail, and those that end the process, are printed."""
    parser = argparse.ArgumentParser(description="Spoil input, and see that it becomes a value or a mistake with its place.")
    parser.add_argument("--number", type=int, default=2_000, help="how many mutants")
    parser.add_argument("--seed", type=int, default=1, help="number of the first one")
    arguments = parser.parse_args()

    shared = mmap(-1, _COUNTERS.size)
    _COUNTERS.pack_into(shared, 0, arguments.seed, 0)
    began = time.monotonic()
    end = arguments.seed + arguments.number
    deaths = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        while (number := _COUNTERS.unpack_from(shared)[0]) < end:
            status = _in_child(shared, end)
            if status:
                number, failed = _COUNTERS.unpack_from(shared)
                deaths += 1
                _print(number, f"ended the process: {_reason(status)}")
                _COUNTERS.pack_into(shared, 0, number + 1, failed)
        os.chdir("/")
    failed = _COUNTERS.unpack_from(shared)[1] + deaths
    print(f"{arguments.number} mutants from {arguments.seed} on in {time.monotonic() - began:.0f} s: {failed} failed")
    return 1 if failed else 0


def _in_child(shared: mmap, end: int) -> int:
    """Try the mutants from the counter on; the status of the child."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    faulthandler.enable()
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    first, failed = _COUNTERS.unpack_from(shared)
    for number in range(first, end):
        _COUNTERS.pack_into(shared, 0, number, failed)
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        failed += not _holds(number)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    _COUNTERS.pack_into(shared, 0, end, failed)
    sys.stdout.flush()
    os._exit(0)


def _holds(number: int) -> bool:
    name, text = mutant(number)
    try:
        TARGETS[name].check(text)
    except Exception:
        _print(number, traceback.format_exc())
        return False
    return True


def _print(number: int, reason: str) -> None:
    name, text = mutant(number)
    print(f"mutant {number}, {name}: {reason}\n{text[:5_000]!a}\nagain: make fuzz NUMBER=1 SEED={number}\n", flush=True)


def _reason(status: int) -> str:
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit code {os.waitstatus_to_exitcode(status)}"


if __name__ == "__main__":
    sys.exit(main())
