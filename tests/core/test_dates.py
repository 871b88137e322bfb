"""Dates as formatters write them: which values of partitions are such."""

from __future__ import annotations

import re
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_dynamic_tables.core.partition_dates import check_dates, formatted

DAYS = {"ds": "yyyy-MM-dd"}
PARTS = {"y": "yyyy", "m": "MM", "d": "dd"}


@pytest.mark.parametrize(
    ("spec", "formatters"),
    [
        ({"ds": "1995-12-31"}, DAYS),
        ({"ds": "0999-01-01"}, DAYS),
        ({"ds": None, "country": "nowhere"}, DAYS),
        ({"country": "nowhere"}, DAYS),
        ({"y": "2024", "m": "02", "d": "29"}, PARTS),
        ({"m": "02", "d": "29"}, PARTS),
        ({"ds": "24-2"}, {"ds": "yy-M"}),
        ({"ds": "20240131T06"}, {"ds": "yyyyMMdd'T'HH"}),
        ({"ds": "2024-05-01"}, {"ds": "yyyy-MM-'01'"}),
        ({"ds": "2024-05-01", "loaded": "2023-02"}, {"ds": "yyyy-MM-dd", "loaded": "yyyy-MM"}),
    ],
)
def test_dates_that_a_formatter_gives(spec: dict[str, str | None], formatters: dict[str, str]) -> None:
    check_dates(spec, formatters)


@pytest.mark.parametrize(
    ("spec", "formatters", "message"),
    [
        ({"ds": "1995-13-45"}, DAYS, "ds=1995-13-45 is no date as 'yyyy-MM-dd' writes it; write for example ds=2024-01-31"),
        ({"ds": "2023-02-29"}, DAYS, "ds=2023-02-29 is no date"),
        ({"ds": "1995-1-1"}, DAYS, "ds=1995-1-1 is no date"),
        ({"ds": "0000-01-01"}, DAYS, "ds=0000-01-01 is no date"),
        ({"ds": "yesterday"}, DAYS, "ds=yesterday is no date"),
        ({"ds": "2024-01-31 "}, DAYS, "ds=2024-01-31  is no date"),
        ({"ds": "٢٠٢٤-01-31"}, DAYS, "is no date"),
        ({"y": "2023", "m": "02", "d": "29"}, PARTS, "d=29 is no date as 'dd' writes it; write for example d=31"),
        ({"y": "2023", "m": "13", "d": "01"}, PARTS, "m=13 is no date"),
        ({"ds": "2024-05-02"}, {"ds": "yyyy-MM-'01'"}, "write for example ds=2024-01-01"),
        ({"ds": "20240131T24"}, {"ds": "yyyyMMdd'T'HH"}, "write for example ds=20240131T06"),
    ],
)
def test_dates_that_it_never_gives(spec: dict[str, str | None], formatters: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        check_dates(spec, formatters)


@given(st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 31)), st.sampled_from(["yyyyMMdd", "y-M-d H:m:s", "yyy/MM", "yyyy"]))  # noqa: DTZ001
def test_whatever_a_formatter_gives_is_one(time: datetime, pattern: str) -> None:
    check_dates({"ds": formatted(time, pattern)}, {"ds": pattern})
