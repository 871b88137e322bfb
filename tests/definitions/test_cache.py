"""The folder of earlier results: what is in it, and for how long; what it answers is in the tests of the loader."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_definitions

DAY = 86_400
TABLE = "dynamic_tables: [{{name: lake.sales.t{0}, freshness: 1 day, query: SELECT {0} AS a}}]"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a cache, not there yet."""
    return tmp_path / "cache"


def store(folder: Path, number: int) -> None:
    """Read a file that nobody has read before."""
    file = folder.parent / f"{number}.yaml"
    file.write_text(TABLE.format(number))
    assert load_definitions(file, cache=Cache(folder, settled=timedelta())).tables


def age(path: Path, days: float) -> None:
    """Make a file so many days old; less than none is ahead of the clock."""
    then = time.time() - days * DAY
    os.utime(path, (then, then))


def trees(folder: Path) -> set[Path]:
    return set((folder / "trees").iterdir())


def test_what_was_not_written_for_a_month_goes_at_the_first_store_of_a_day(folder: Path) -> None:
    store(folder, 1)
    (old,) = trees(folder)
    store(folder, 2)
    age(old, 31)
    store(folder, 3)
    assert old in trees(folder), "it was looked at within the day, and a look costs more the more there is"
    age(folder / "looked", 1.1)
    store(folder, 4)
    assert len(trees(folder)) == 3
    assert old not in trees(folder)


def test_a_clock_that_was_ahead_does_not_keep_it_for_ever(folder: Path) -> None:
    store(folder, 1)
    (old,) = trees(folder)
    age(old, 31)
    age(folder / "looked", -365)
    store(folder, 2)
    assert old not in trees(folder)


def test_what_cannot_be_removed_is_in_nobodys_way(folder: Path) -> None:
    for number in range(1, 4):
        store(folder, number)
    for number, old in enumerate(sorted(trees(folder))):
        if number != 1:
            age(old, 31)
            continue
        old.unlink()
        (old / "of somebody else").mkdir(parents=True)
        age(old, 31)
    age(folder / "looked", 2)
    store(folder, 4)
    assert len(trees(folder)) == 2, "the folder in the middle, and the new one"
