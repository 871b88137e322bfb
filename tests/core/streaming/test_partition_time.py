"""Partition time: what Flink's extractor reads, it reads; what is no time is told."""
# ruff: noqa: DTZ001 - times on the wall have no zone

from datetime import datetime

import pytest

from airflow_dynamic_tables.core.streaming.source_watermarks import PartitionTimeError, TimeExtractor


@pytest.mark.parametrize(
    ("pattern", "formatter", "spec", "time"),
    [
        ("$pt_day $pt_hour:00:00", None, {"pt_day": "2021-03-19", "pt_hour": "10"}, datetime(2021, 3, 19, 10)),
        ("$pt_day $pt_hour:00:00", None, {"pt_day": "2021-3-9", "pt_hour": "7"}, datetime(2021, 3, 9, 7)),
        (None, None, {"ds": "2021-03-19", "country": "de"}, datetime(2021, 3, 19)),
        (None, None, {"ts": "2021-03-19 10:05:06.25"}, datetime(2021, 3, 19, 10, 5, 6, 250_000)),
        (None, None, {"ts": "2021-03-19 10:05:06.123456789"}, datetime(2021, 3, 19, 10, 5, 6, 123_456)),
        ("$year-$month-$day", None, {"year": "2021", "month": "3", "day": "19"}, datetime(2021, 3, 19)),
        ("$dt $dt1:00:00", None, {"dt": "2021-03-19", "dt1": "10"}, datetime(2021, 3, 19, 10)),
        ("$dt1-$dt", None, {"dt": "19", "dt1": "2021-03"}, datetime(2021, 3, 19)),
        ("$a $b:00:00", None, {"a": "2021-03-19", "b": "10"}, datetime(2021, 3, 19, 10)),
        (None, "yyyyMMdd", {"ds": "20210319"}, datetime(2021, 3, 19)),
        (None, "yyyyMM", {"ds": "202103"}, datetime(2021, 3, 1)),
        ("$ds$hh", "yyyyMMddHH", {"ds": "20210319", "hh": "10"}, datetime(2021, 3, 19, 10)),
        (None, "yyyy-MM-dd'T'HH:mm:ss", {"ts": "2021-03-19T10:05:06"}, datetime(2021, 3, 19, 10, 5, 6)),
        # The hour that spring skips in Berlin: a wall shows it nowhere, but a folder may be called so.
        ("$ds $hh:00:00", None, {"ds": "2024-03-31", "hh": "02"}, datetime(2024, 3, 31, 2)),
    ],
)
def test_the_values_of_a_partition_are_a_time(
    pattern: str | None, formatter: str | None, spec: dict[str, str], time: datetime
) -> None:
    extractor = TimeExtractor(pattern, formatter)
    extractor.check(tuple(spec))
    assert extractor.time_of(spec, tuple(spec)) == time


@pytest.mark.parametrize(
    ("formatter", "value"),
    [
        (None, "latest"),
        (None, "2021-02-30"),
        (None, "2021-13-01"),
        (None, "2021-03-19 24:00:00"),
        (None, "2021-03-19 10"),
        (None, "20210319"),
        (None, "٢٠٢١-٠٣-١٩"),
        (None, "0000-01-01"),
        (None, ""),
        (None, "__HIVE_DEFAULT_PARTITION__"),
        ("yyyyMMdd", "2021-03-19"),
        ("yyyyMMdd", "20210231"),
        ("yyyyMMdd", "20210319 "),
    ],
)
def test_what_is_no_time_is_told(formatter: str | None, value: str) -> None:
    with pytest.raises(PartitionTimeError, match="ds="):
        TimeExtractor(None, formatter).time_of({"ds": value}, ("ds",))


def test_a_folder_without_all_keys_is_told() -> None:
    with pytest.raises(PartitionTimeError, match="no value of hh"):
        TimeExtractor("$ds $hh:00:00").time_of({"ds": "2021-03-19"}, ("ds", "hh"))


def test_a_value_is_taken_for_no_key() -> None:
    """The replaced text is not looked at again."""
    with pytest.raises(PartitionTimeError):
        TimeExtractor("$a").time_of({"a": "$b", "b": "2021-03-19"}, ("a", "b"))


@pytest.mark.parametrize(
    ("pattern", "formatter", "message"),
    [
        ("$pt_dya $pt_hour:00:00", None, "did you mean 'pt_day'"),
        ("2021-03-19", None, "names no partition key"),
        (None, "yyyy-MM-dd hh", "write 'HH'"),
        (None, "HH", "without its year, month and day"),
        (None, "YYYY", "write 'yyyy'"),
    ],
)
def test_what_could_never_be_a_time_is_a_mistake(pattern: str | None, formatter: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("$", r"\$")):
        TimeExtractor(pattern, formatter).check(("pt_day", "pt_hour"))
