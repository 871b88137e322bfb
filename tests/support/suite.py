"""The suite itself: what a test needs to run, which tests share a worker's servers, and where the time went."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import NoReturn

import pytest

NEEDS = {
    "connect_server": ("spark",),
    "embedded_airflow": ("system",),
    "hive_metastore": ("metastore",),
    "hive_metastore_on_postgres": ("metastore", "postgres"),
    "plain_spark": ("metastore", "spark"),
    "postgres": ("postgres",),
    "spark": ("spark",),
    "stack": ("system", "postgres"),
}
"""Marks of the tests that use a fixture, directly or by its name as a parameter. Other parameters are marked where they stand."""

GROUPS = {
    "airflow": tuple(
        f"tests/system/test_airflow_{name}.py"
        for name in (
            "alerts",
            "assets",
            "backfills",
            "catch_up",
            "continuous",
            "deployments",
            "events",
            "faults",
            "formats",
            "gateway",
            "layouts",
            "quarantine",
            "schedulers",
            "secrets",
            "stack",
            "updates",
        )
    ),
    "jvm": (
        "tests/catalog/hive/",
        "tests/catalog/iceberg/test_metastores.py",
        "tests/cli/test_query_tests.py",
        "tests/clients/metastore/",
        "tests/clients/test_spark_parser.py",
        "tests/contracts/catalogs/",
        "tests/contracts/creating/",
        "tests/contracts/formats/",
        "tests/contracts/refreshing/",
        "tests/contracts/runners/",
        "tests/definitions/queries/test_traps.py",
        "tests/docs/",
        "tests/faults/test_hive_compactions.py",
        "tests/faults/test_hive_model.py",
        "tests/faults/test_rivals.py",
        "tests/formats/delta/",
        "tests/formats/hive/",
        "tests/formats/test_merging.py",
        "tests/jobs/",
        "tests/operators/test_spark_server.py",
        "tests/runners/local/",
        "tests/runners/test_connect_channel.py",
        "tests/runners/test_spark_connect.py",
        "tests/scripts/",
        "tests/services/changing/test_hive_",
        "tests/services/continuous/streams/test_strategy.py",
        "tests/services/continuous/streams/test_tables.py",
        "tests/services/continuous/test_hive_",
        "tests/services/creating/test_hive.py",
        "tests/services/deployments/test_hive_",
        "tests/services/refresh/test_delta_refreshes.py",
        "tests/services/refresh/test_hive_",
        "tests/services/refresh/test_server_tables.py",
        "tests/services/stages/test_hive_",
        "tests/services/stages/test_marks.py",
        "tests/services/tables/test_adopting.py",
        "tests/services/watermarks/test_hive_",
        "tests/sql/test_querying.py",
        "tests/test_pytest_plugin.py",
    ),
}
"""Files and folders that share a worker, because the servers they share take long to start and much memory."""

LONG_FILES = ("tests/cli/test_refresh.py", "tests/faults/", "tests/system/")
"""What is begun before all that is short, so that no worker waits for it at the end."""

SHARED = {
    "stack": "airflow",
    "connect_server": "jvm",
    "hive_metastore": "jvm",
    "hive_metastore_on_postgres": "jvm",
    "plain_spark": "jvm",
    "spark": "jvm",
}
"""Fixtures of which there shall be one in a run, and the group of all tests that use them."""


def mark_needs(item: pytest.Item) -> None:
    """Mark a test with what it needs.

    :raises pytest.UsageError: the test uses what another worker has.
    """
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    uses = {*getattr(item, "fixturenames", ()), *(value for value in parameters if isinstance(value, str))}
    for fixture in uses & NEEDS.keys():
        for mark in NEEDS[fixture]:
            item.add_marker(mark)
    for fixture in uses & SHARED.keys():
        if scope_of(item.nodeid) != SHARED[fixture]:
            raise pytest.UsageError(f"{item.nodeid} uses {fixture}: add its file to the group {SHARED[fixture]} in {__file__}")


def lacking(item: pytest.Item) -> set[str]:
    """What the implementation does not have that a test of a contract is about: mark ``lacks`` of its parameter."""
    return {what for mark in item.iter_markers("lacks") for what in mark.args}


def is_of_its_contract(item: pytest.Item) -> bool:
    """Whether the implementation that a test is about has all that the test ``needs``; else it is no test of that contract."""
    return lacking(item).isdisjoint(what for mark in item.iter_markers("needs") for what in mark.args)


def scope_of(nodeid: str) -> str:
    """What runs in one worker: a group of tests that share servers, or a file."""
    file = nodeid.partition("::")[0]
    return next((group for group, paths in GROUPS.items() if file.startswith(paths)), file)


def rank(item: pytest.Item) -> int:
    """What is begun first: the groups, the longest one before the others, then long files."""
    scope = scope_of(item.nodeid)
    return list(GROUPS).index(scope) if scope in GROUPS else len(GROUPS) + (not scope.startswith(LONG_FILES))


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
    """Skip at home, fail in CI."""
    give_up = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
    give_up(message)
