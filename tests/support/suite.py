"""The suite itself: what a test needs to run, which tests share a worker's servers, and where the time went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import PurePosixPath

import pytest

NEEDS = {
    "embedded_airflow": ("system",),
    "hive_metastore": ("metastore",),
    "hive_metastore_on_postgres": ("metastore", "postgres"),
    "plain_spark": ("metastore", "spark"),
    "postgres": ("postgres",),
    "spark": ("spark",),
    "stack": ("system", "postgres"),
}
"""Marks of the tests that use a fixture, directly or by its name as a parameter. Other parameters are marked where they stand."""

GROUPS = {"stack": "airflow", "metastore": "jvm", "spark": "jvm"}
"""Tests of one group share a worker, because what they share takes long to start and much memory; by fixture or mark."""


def mark_needs(item: pytest.Item) -> None:
    """Mark a test with what it needs, and with the group of those that share it."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    uses = {*getattr(item, "fixturenames", ()), *(value for value in parameters if isinstance(value, str))}
    for fixture in uses & NEEDS.keys():
        for mark in NEEDS[fixture]:
            item.add_marker(mark)
    marks = {"metastore"} & {mark.name for mark in item.iter_markers()}  # a job of its own, which marks spark, shares nothing
    for group in {GROUPS[name] for name in (uses | marks) & GROUPS.keys()}:
        item.add_marker(pytest.mark.xdist_group(group))


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
