"""The parts of the suite: together everything, and each of about the same length."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.support.suite import LARGE_PARTS, SERVERS, mark_needs, mark_repetitions, order_for_workers, select_part

MAKEFILE = Path(__file__).parents[1] / "Makefile"
TWINS = """
import pytest

@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.large)])
@pytest.mark.parametrize("number", range(3))
def test_twins(kind, number):
    assert kind
"""


@pytest.fixture
def items(request: pytest.FixtureRequest, tmp_path: Path) -> list[pytest.Function]:
    """Tests of as many files as there are parts. Half of the tests of each file are large."""
    found: list[pytest.Function] = []
    for number in range(LARGE_PARTS):
        path = tmp_path / f"test_twins_{number}.py"
        path.write_text(TWINS)
        module = pytest.Module.from_parent(request.session, path=path, nodeid=f"tests/{path.name}")
        found += [item for item in module.collect() if isinstance(item, pytest.Function)]
    return found


def test_base_and_parts_are_everything_once(items: list[pytest.Function]) -> None:
    parts = [select_part(items, part) for part in ("base", *map(str, range(1, LARGE_PARTS + 1)))]
    assert Counter(item for part in parts for item in part) == Counter(items)
    assert all(parts)
    assert select_part(items, "commit") in [[item for item in items if item in {*parts[0], *part}] for part in parts[1:]]


def test_the_base_has_the_first_case_of_a_sampled_test(items: list[pytest.Function]) -> None:
    for item in items:
        item.add_marker("sampled")
    mark_repetitions(items)
    assert [item.nodeid for item in select_part(items, "base")] == [
        f"tests/test_twins_{number}.py::test_twins[0-sqlite]" for number in range(LARGE_PARTS)
    ]


def test_an_unknown_part_is_refused(items: list[pytest.Function]) -> None:
    with pytest.raises(pytest.UsageError, match="one of base, quick, commit, 1, 2"):
        select_part(items, str(LARGE_PARTS + 1))


def test_make_test_all_runs_every_part() -> None:
    printed = subprocess.run(["make", "-n", "test-all"], cwd=MAKEFILE.parent, capture_output=True, text=True, check=True).stdout
    (parts,) = re.findall(r"for part in (.*?);", printed)
    assert parts.split() == ["base", *map(str, range(1, LARGE_PARTS + 1))]


def test_tests_of_a_server_run_in_one_worker(items: list[pytest.Function], tmp_path: Path) -> None:
    expected = {item.nodeid: item.nodeid.partition("::")[0] for item in items}
    for item, (fixture, server) in zip(items[::6], SERVERS.items(), strict=False):
        item.fixturenames.append(fixture)
        mark_needs(item)
        expected[item.nodeid] = server
    order_for_workers(list[pytest.Item](items), tmp_path / "scopes.json")
    assert json.loads((tmp_path / "scopes.json").read_text()) == expected
