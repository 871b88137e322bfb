"""Many continuous tables on one warm server of two cores, each with a loop in a process of its own, as a task of Airflow has it.

First what the loops cost when nothing is new: CPU of 1, 10 and 50 of them, and the memory of each. Then partitions arrive, table
after table. At the end the server must know no session any more, hold no more memory than before, and no row may be lost or
doubled. CPU and not time is measured where it can be: others on the machine do not change it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path

import psutil
from live_tables import MB, Heap, Live, cpu, memory
from measure import check, spread

STEPS = (1, 10, 50)
IDLE = 2.0
"""Percent of a core that a table may cost with nothing new."""

SETTLING = 15
"""Seconds after the first versions, before anything is measured."""


def main(tables: int, freshness: int, idle: int, seconds: int, every: float) -> None:
    """Measure, print.

    :param idle: seconds of CPU that are looked at with nothing new.
    :param seconds: how long partitions arrive, one for some table ``every`` so many seconds.
    """
    names = [f"t{number:02d}" for number in range(tables)]
    with tempfile.TemporaryDirectory() as folder:
        live = Live(Path(folder), names, f"{freshness} seconds", "1g")
        with live.server("local[2]") as server:
            for count in [step for step in STEPS if step < tables]:
                with live.loops(names[:count]) as loops:
                    _idle(loops, idle)
            with live.loops(names) as loops:
                _idle(loops, idle)
                before = Heap.of(server)
                _busy(live, server, loops, seconds, every)
                time.sleep(freshness)
                after = Heap.of(server)
        made = sum(len(live.refreshes(name)) for name in names)
        print(f"the server's heap: {before.used / MB:.1f} MB before, {after.used / MB:.1f} MB after; {made} refreshes in all")
        check("sessions that are left on the server", [after.sessions], "", 0)
        check("partitions that are lost or doubled", [sum(map(live.wrong, names))], "", 0)


def _idle(loops: list[psutil.Process], seconds: int) -> None:
    """What loops cost that have nothing to do."""
    time.sleep(SETTLING)
    started, before = time.monotonic(), cpu(loops)
    time.sleep(seconds)
    took = time.monotonic() - started
    percent = [100 * (now - then) / took for now, then in zip(cpu(loops), before, strict=True)]
    check(f"{len(loops)} tables with nothing new, CPU of each", percent, "% of a core", IDLE)
    print(f"  memory of each: {spread(memory(loops), 'MB')}", flush=True)


def _busy(live: Live, server: psutil.Process, loops: list[psutil.Process], seconds: int, every: float) -> None:
    """Partitions arrive, and become visible."""
    since = datetime.now(UTC)
    started, before, of_server = time.monotonic(), cpu(loops), cpu([server])[0]
    for name in cycle(live.names):
        if time.monotonic() - started > seconds:
            break
        live.arrive(name)
        time.sleep(every)
    live.wait(live.names)
    took = time.monotonic() - started
    delays = sorted(delay for name in live.names for delay in live.delays(name, since))
    loops_cpu, server_cpu = sum(cpu(loops)) - sum(before), cpu([server])[0] - of_server
    print(f"{len(delays)} partitions in {took:.0f} s, load of the machine {os.getloadavg()[1]:.1f}")
    print(f"  CPU of a refresh: {loops_cpu / len(delays):.2f} s in its loop, {server_cpu / len(delays):.2f} s in the server")
    print(
        f"  seconds until visible: median {delays[len(delays) // 2]:.1f}, 95 % {delays[int(len(delays) * 0.95)]:.1f}", flush=True
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=50)
    parser.add_argument("--freshness", type=int, default=10, help="seconds")
    parser.add_argument("--idle", type=int, default=60, help="seconds with nothing new that are measured")
    parser.add_argument("--seconds", type=int, default=300, help="how long partitions arrive")
    parser.add_argument("--every", type=float, default=2, help="seconds between two partitions, of whichever table")
    main(**vars(parser.parse_args()))
