"""What a person reads in a table."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_dynamic_tables.cli import output


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (timedelta(days=1054, hours=20, minutes=7), "1054 d 20 h"),
        (timedelta(days=3, minutes=5), "3 d"),
        (timedelta(minutes=15), "15 min"),
        (timedelta(seconds=61), "1 min 1 s"),
        (timedelta(milliseconds=3), "0 s"),
        (timedelta(hours=-2), "-2 h"),
        (True, "yes"),
        (False, "no"),
        (None, ""),
    ],
)
def test_values_are_put_for_people(value: object, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.lines({"value": value})
    assert capsys.readouterr().out.removeprefix("value").strip() == shown
