"""Freshness: what may be written, what it is called afterwards."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_dynamic_tables.core.schedule import Freshness

LEGAL = {
    "1 day": "1 day",
    "1 DAY": "1 day",
    " 2 hours ": "2 hours",
    "90 min": "90 minutes",
    "90minutes": "90 minutes",
    "5 m": "5 minutes",
    "30 secs": "30 seconds",
    "60 seconds": "1 minute",
    "60 minutes": "1 hour",
    "24 hours": "1 day",
    "7 days": "1 week",
    "36 hours": "36 hours",
    "14 days": "2 weeks",
    "007 days": "1 week",
    "P1D": "1 day",
    "PT30M": "30 minutes",
    "pt1h": "1 hour",
    "P1W": "1 week",
    "P1DT12H": "36 hours",
    "PT90S": "90 seconds",
    "INTERVAL '1' DAY": "1 day",
    "interval '30' minute": "30 minutes",
    "Interval 2 Hours": "2 hours",
    "INTERVAL ' 1 ' WEEK": "1 week",
}


@pytest.mark.parametrize(("text", "normalised"), LEGAL.items())
def test_what_may_be_written(text: str, normalised: str) -> None:
    freshness = Freshness.parse(text)
    assert (freshness.text, str(freshness)) == (normalised, normalised)


ILLEGAL = {
    "DOWNSTREAM": "not DOWNSTREAM; to read tables that are older, use 'max_lag'",
    "downstream": "not DOWNSTREAM; to read tables that are older, use 'max_lag'",
    "0 days": "positive whole number of days, not '0'",
    "-1 day": "positive whole number of days, not '-1'",
    "1.5 hours": "positive whole number of hours, not '1.5'",
    "1,5 hours": "positive whole number of hours, not '1,5'",
    "INTERVAL '-1' DAY": "positive whole number of days, not '-1'",
    "INTERVAL '1.5' DAY": "positive whole number of days, not '1.5'",
    "PT0S": "longer than zero",
    "1 month": "'month' is no unit of freshness; use seconds, minutes, hours, days or weeks",
    "2 years": "'years' is no unit",
    "INTERVAL '1' MONTH": "'MONTH' is no unit",
    "101 years": "'years' is no unit",
    "40000 days": "at most 100 years",
    "99999999999999 weeks": "at most 100 years",
    **dict.fromkeys(
        (
            "",
            "day",
            "1",
            "one day",
            "never",
            "P",
            "PT",
            "P1DT",
            "P1M",
            "P1Y",
            "PT0.5H",
            "-P1D",
            "1 day 2 hours",
            "P1H",
            "INTERVAL '1 DAY",
        ),
        "write for example '1 day', 'PT30M'",
    ),
}


@pytest.mark.parametrize(("text", "message"), ILLEGAL.items())
def test_what_may_not_be_written(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Freshness.parse(text)


@given(st.integers(min_value=1, max_value=100 * 365 * 86_400))
def test_the_normalised_text_means_the_same(seconds: int) -> None:
    freshness = Freshness(seconds)
    assert Freshness.parse(freshness.text) == freshness
    assert freshness.period == timedelta(seconds=seconds)


@given(st.integers(min_value=1, max_value=5_000), st.sampled_from(["week", "day", "hour", "minute", "second"]))
def test_all_spellings_agree(amount: int, unit: str) -> None:
    time = "" if unit in ("week", "day") else "T"
    spellings = {f"{amount} {unit}s", f"INTERVAL '{amount}' {unit.upper()}", f"P{time}{amount}{unit[0].upper()}"}
    assert len({Freshness.parse(spelling) for spelling in spellings}) == 1


def test_shorter_is_less() -> None:
    assert Freshness.parse("59 minutes") < Freshness.parse("1 hour") < Freshness.parse("1 day")
