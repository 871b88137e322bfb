"""The suite itself: what a test needs to run, which tests share a worker's servers, and where the time went."""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import NoReturn

import pytest

NEEDS = {
    "connect_server": ("spark",),
    "delta_spark": ("metastore", "spark"),
    "embedded_airflow": ("system",),
    "hive_metastore": ("metastore",),
    "hive_metastore_on_postgres": ("metastore", "postgres"),
    "iceberg_spark": ("spark",),
    "plain_spark": ("metastore", "spark"),
    "postgres": ("postgres",),
    "spark": ("spark",),
    "stack": ("system", "postgres"),
}
"""Marks of the tests that use a fixture, directly or by its name as a parameter. Other parameters are marked where they stand."""

SERVERS = {
    "stack": "airflow",
    "trino": "trino",
    "hive_metastore_on_postgres": "metastore-on-postgres",
    "iceberg_spark": "iceberg-spark",
    "plain_spark": "metastore",
    "delta_spark": "metastore",
    "hive_metastore": "metastore",
    "connect_server": "connect-server",
    "spark": "spark",
}
"""Fixtures that take long to start and much memory, and the name of the server: the tests of a server run in one worker.

A test that uses several of them belongs to the first.
"""

LARGE_PARTS = 64
"""Into how many parts the tests marked ``large`` are divided. Each build runs one, in at most about four minutes."""

QUICK_SECONDS = 0.1
"""``make quick`` leaves out the files whose tests take longer, on the average."""

UNKNOWN_SECONDS = 0.1
"""Seconds of a test whose file has no recorded ones."""

RECORDED = Path(__file__).with_name("seconds.json")
"""Seconds of a test, on the average, by unit: see :func:`unit_of`. ``--record-seconds`` writes it."""

_ROOT = RECORDED.parents[2]


def mark_needs(item: pytest.Item) -> None:
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    uses = {*getattr(item, "fixturenames", ()), *(value for value in parameters if isinstance(value, str))}
    for fixture in uses & NEEDS.keys():
        for mark in NEEDS[fixture]:
            item.add_marker(mark)
    server = next((server for fixture, server in SERVERS.items() if fixture in uses), "")
    if not server and item.get_closest_marker("metastore"):  # asked for by getfixturevalue
        server = "metastore-on-postgres" if item.get_closest_marker("postgres") else "metastore"
    if server:
        item.add_marker(pytest.mark.server(server))
    item.user_properties.append(("unit", unit_of(item)))


def mark_repetitions(items: Iterable[pytest.Item]) -> None:
    """Mark as large all but the first case of each ``sampled`` test."""
    seen = set()
    for item in items:
        if item.get_closest_marker("sampled"):
            test = item.nodeid.partition("[")[0]
            if test in seen:
                item.add_marker("large")
            seen.add(test)


def lacking(item: pytest.Item) -> set[str]:
    """What the implementation does not have that a test of a contract is about: mark ``lacks`` of its parameter."""
    return {what for mark in item.iter_markers("lacks") for what in mark.args}


def is_of_its_contract(item: pytest.Item) -> bool:
    """Whether the implementation that a test is about has all that the test ``needs``; else it is no test of that contract."""
    return lacking(item).isdisjoint(what for mark in item.iter_markers("needs") for what in mark.args)


def unit_of(item: pytest.Item) -> str:
    """Return the name of what is measured, and moved between workers and parts, together: a file's tests that use one server."""
    server = _server(item)
    return f"{_file(item)}{f'@{server}' if server else ''}{' large' if _is_large(item) else ''}"


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _server(item: pytest.Item) -> str:
    mark = item.get_closest_marker("server")
    return str(mark.args[0]) if mark else ""


def _is_large(item: pytest.Item) -> bool:
    return item.get_closest_marker("large") is not None


def recorded_seconds() -> dict[str, float]:
    recorded: dict[str, float] = json.loads(RECORDED.read_text())
    return recorded


def record_seconds(reports: Iterable[pytest.TestReport]) -> None:
    """Replace the recorded seconds of the units that ran, and drop those of files that are gone."""
    seconds: dict[str, float] = defaultdict(float)
    tests: dict[str, set[str]] = defaultdict(set)
    for report in reports:
        unit = str(dict(report.user_properties)["unit"])
        seconds[unit] += report.duration
        tests[unit].add(report.nodeid)
    recorded = recorded_seconds() | {unit: round(seconds[unit] / len(tests[unit]), 3) for unit in seconds}
    kept = {unit: recorded[unit] for unit in sorted(recorded) if (_ROOT / re.split("[@ ]", unit)[0]).exists()}
    RECORDED.write_text(json.dumps(kept, indent=0) + "\n")


def _expected_seconds(items: Iterable[pytest.Item], key: Callable[[pytest.Item], str]) -> dict[str, float]:
    recorded = recorded_seconds()
    seconds: dict[str, float] = defaultdict(float)
    for item in items:
        seconds[key(item)] += recorded.get(unit_of(item), UNKNOWN_SECONDS)
    return seconds


def scope_of(item: pytest.Item) -> str:
    """Return what runs in one worker: the tests of a server, or a file without those."""
    return _server(item) or _file(item)


def order_for_workers(items: list[pytest.Item], scopes: Path) -> None:
    """Put the scope that takes longest first, so that no worker waits at the end, and write down the scopes.

    :param scopes: where the process that gives the tests to workers, and that has only their node ids, reads their scopes.
    """
    seconds = _expected_seconds(items, scope_of)
    items.sort(key=lambda item: (-seconds[scope_of(item)], scope_of(item)))
    written = scopes.with_name(f"{scopes.name}-{os.getpid()}")
    written.write_text(json.dumps({item.nodeid: scope_of(item) for item in items}))
    written.replace(scopes)  # every worker writes the same


def select_part(items: Sequence[pytest.Item], part: str) -> list[pytest.Item]:
    """Return the tests of a part.

    :param part: ``base`` are the tests that are not large; ``quick`` are those of them that are fast and need no server;
        a number, from 1 to LARGE_PARTS, is a part of the large ones; ``commit`` is the base and the part in turn.
    :raises pytest.UsageError: there is no such part.
    """
    numbers = {str(number): number for number in range(1, LARGE_PARTS + 1)}
    if part not in ("base", "quick", "commit", *numbers):
        raise pytest.UsageError(f"--part {part}: one of base, quick, commit, {', '.join(numbers)}")
    if part == "quick":
        recorded = recorded_seconds()
        return [item for item in items if _is_quick(item, recorded)]
    large = _parts(items)
    number = part_of_commit() if part == "commit" else numbers.get(part, 0)
    with_base = part in ("base", "commit")
    return [item for item in items if (large[item.nodeid] == number if _is_large(item) else with_base)]


def may_be_quick(path: Path) -> bool:
    """Return whether a file may have quick tests: importing the other files takes longer than many of the quick tests."""
    name = path.relative_to(_ROOT).as_posix()
    if path.suffix != ".py" or not path.is_file():
        return name != "tests/faults"
    seconds = _seconds_by_file().get(name)
    return not seconds or any(" large" not in unit and "@" not in unit and each <= QUICK_SECONDS for unit, each in seconds)


@functools.cache
def _seconds_by_file() -> dict[str, list[tuple[str, float]]]:
    by_file: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for unit, each in recorded_seconds().items():
        by_file[re.split("[@ ]", unit)[0]].append((unit, each))
    return by_file


def _is_quick(item: pytest.Item, recorded: dict[str, float]) -> bool:
    if _is_large(item):
        return False
    if any(item.get_closest_marker(mark) for mark in ("spark", "metastore", "postgres", "system", "long")):
        return False
    return recorded.get(unit_of(item), UNKNOWN_SECONDS) <= QUICK_SECONDS


def _parts(items: Iterable[pytest.Item]) -> dict[str, int]:
    """Divide the large tests into parts that take equally long, by node id.

    The tests of a unit stay together, because they share fixtures, unless they take longer than a part.
    """
    large = sorted(filter(_is_large, items), key=unit_of)
    share = sum(_expected_seconds(large, unit_of).values()) / LARGE_PARTS
    recorded = recorded_seconds()
    pieces: list[tuple[float, list[pytest.Item]]] = []
    for unit, tests in itertools.groupby(large, unit_of):
        of_unit, each = list(tests), recorded.get(unit, UNKNOWN_SECONDS)
        size = max(1, int(share / each))
        pieces += [(each * len(piece), piece) for piece in (of_unit[i : i + size] for i in range(0, len(of_unit), size))]
    parts: dict[str, int] = {}
    taken = [0.0] * LARGE_PARTS
    for seconds, piece in sorted(pieces, key=lambda piece: -piece[0]):
        lightest = taken.index(min(taken))
        parts |= {test.nodeid: lightest + 1 for test in piece}
        taken[lightest] += seconds
    return parts


def part_of_commit() -> int:
    """Return the part of the large tests that a build of this commit runs."""
    git = ["git", "rev-parse", "HEAD"]
    commit = subprocess.run(git, cwd=RECORDED.parent, capture_output=True, text=True, check=True).stdout
    return int(commit, 16) % LARGE_PARTS + 1


def seconds_by_folder(reports: Iterable[pytest.TestReport]) -> list[str]:
    """Lines that say how many seconds the tests of each folder took, with set-up and clean-up, the slowest first."""
    seconds: dict[str, float] = defaultdict(float)
    tests: dict[str, set[str]] = defaultdict(set)
    for report in reports:
        folder = str(PurePosixPath(report.nodeid.partition("::")[0]).parent)
        seconds[folder] += report.duration
        tests[folder].add(report.nodeid)
    slowest = sorted(seconds, key=lambda folder: -seconds[folder])
    return [f"{seconds[folder]:7.1f} s  {len(tests[folder]):5,} tests  {folder}" for folder in slowest]


def missing_service(message: str) -> NoReturn:
    give_up = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
    give_up(message)
