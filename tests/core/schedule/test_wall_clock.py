"""The clock on the wall around a change to and from summer time."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from airflow_dynamic_tables.core.schedule import elapsed, is_shown, on_the_wall

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("wall", "shown"),
    [
        ("2024-03-31T01:59", True),
        ("2024-03-31T02:30", False),  # spring skips it
        ("2024-03-31T03:00", True),
        ("2024-10-27T02:30", True),  # autumn shows it twice
    ],
)
def test_spring_skips_an_hour(wall: str, *, shown: bool) -> None:
    assert is_shown(datetime.fromisoformat(wall), BERLIN) is shown


def test_time_elapses_over_a_change_of_the_clock() -> None:
    before = datetime(2024, 3, 31, 1, 30, tzinfo=BERLIN)
    after = elapsed(before, timedelta(hours=1))
    assert on_the_wall(after) == datetime.fromisoformat("2024-03-31T03:30")
    assert elapsed(after, timedelta(hours=-1)) == before
    autumn = datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN)
    again = elapsed(autumn, timedelta(hours=1))
    assert (on_the_wall(again), again.fold) == (on_the_wall(autumn), 1)
