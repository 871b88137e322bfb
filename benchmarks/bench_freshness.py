"""A table that is to be ten seconds fresh, on a warm server of two cores: 95 % of its partitions are visible within twenty.

A partition arrives every five seconds, for three minutes; ``--seconds 7200`` is the long form. What the loop and the server hold
is looked at after the first minute and at the end, for what grows without end shows in the long form.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import psutil
from live_tables import MB, Heap, Live, cpu, memory
from measure import check

FRESHNESS = 10
EVERY = 5
LOOKS = 60
"""Seconds between two looks at the load of the machine."""


def main(seconds: int) -> None:
    """Let partitions arrive, print how long they took."""
    with tempfile.TemporaryDirectory() as folder:
        live = Live(Path(folder), ["live"], f"{FRESHNESS} seconds", "1g")
        with live.server("local[2]") as server, live.loops(live.names) as loops:
            loads: list[float] = []
            since = datetime.now(UTC)
            end = time.monotonic() + seconds
            _arrive(live, min(LOOKS, seconds), loads)
            before = _held(server, loops)
            while (left := end - time.monotonic()) > 0:
                _arrive(live, min(LOOKS, left), loads)
            live.wait(live.names)
            after = _held(server, loops)
            per_minute = 60 * cpu(loops)[0] / (time.time() - loops[0].create_time())
        delays = sorted(live.delays("live", since))
        versions = len(live.refreshes("live"))
        print(f"{len(delays)} partitions, {versions} versions; load of the machine {min(loads):.1f} to {max(loads):.1f}")
        print(f"  after the first minute {before}\n  at the end             {after}")
        print(f"  CPU of the loop: {per_minute:.1f} s a minute; seconds until visible: median {delays[len(delays) // 2]:.1f}")
        check("95 % are visible within", [delays[int(len(delays) * 0.95)]], "s", 2 * FRESHNESS)
        check("partitions that are lost or doubled", [live.wrong("live")], "", 0)


def _arrive(live: Live, seconds: float, loads: list[float]) -> None:
    """Partitions, for that long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        live.arrive("live")
        time.sleep(EVERY)
    loads.append(os.getloadavg()[0])


def _held(server: psutil.Process, loops: list[psutil.Process]) -> str:
    heap = Heap.of(server)
    resident = server.memory_info().rss / MB
    return (
        f"loop {memory(loops)[0]:.0f} MB, server {resident:.0f} MB, of which {heap.used / MB:.1f} MB live in its heap, "
        f"{heap.sessions} sessions"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=180, help="how long partitions arrive")
    main(**vars(parser.parse_args()))
