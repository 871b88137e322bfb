"""The log of feeds, as Spark's file sink would have written it."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.core.streaming.stream_plans import LoggedFile, entry_name, newest, number_of, read_entry, write_entry

FILE = LoggedFile("file:/lake/my%20table/feeds/v/7-ab12/rows/part-0.parquet", 12, 7)


def test_an_entry_is_what_it_was_made_of() -> None:
    assert read_entry(write_entry([FILE])) == (FILE,)
    assert FILE.folder == "7-ab12"
    assert write_entry([FILE]).startswith('v1\n{"path": "file:/lake/my%20table/')


@pytest.mark.parametrize("text", ["", "v1", "v2\n{}", "v1\n{}", 'v1\n{"path": "a", "si', "garbage"])
def test_what_is_no_entry_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_entry(text)


def test_the_newest_entry_counts_and_nothing_else_that_lies_there() -> None:
    assert newest([]) is None
    assert newest([".10.compact.crc", ".11.compact.4f", "9.compact", "_x.compact", "10.compact", "12.compact.tmp"]) == 10
    assert entry_name(10) == "10.compact"
    assert [number_of(name) for name in ("10-ab", "_spark_metadata", "x-1", "10")] == [10, None, None, None]
