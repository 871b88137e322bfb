"""Watermarks of sources and partition commit of tables: what may be written, what it means, what is a mistake and where."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.streaming.source_watermarks import (
    CompleteWhen,
    PartitionOrder,
    PartitionWatermark,
    TimeExtractor,
    WholeBy,
)
from airflow_dynamic_tables.core.streaming.stream_plans import EventTime
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import DefinitionError

TABLES = """\
defaults: {catalog: lake, database: sales}
sources:
- name: raw.events
  format: parquet
  path: /data/events
  partitioned_by: [pt_day, pt_hour]
  watermark: source
  options:
    mergeSchema: true
    partition.time-extractor.timestamp-pattern: $pt_day $pt_hour:00:00
    partition.time-interval: 1h
dynamic_tables:
- name: per_hour
  freshness: 1 minute
  format: parquet
  partitioned_by: [ds]
  options:
    partition.fields.ds.date-formatter: yyyy-MM-dd
  query: SELECT pt_day AS ds, count(*) AS n FROM raw.events GROUP BY pt_day
"""


def source(tmp_path: Path, *changes: tuple[str, str], cache: Cache | None = None) -> Source:
    text = TABLES
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "tables.yaml").write_text(text)
    definitions = load_definitions(tmp_path / "tables.yaml", cache=cache or Cache(None))
    return definitions.sources[TableIdentifier("lake", "raw", "events")]


def mistake(tmp_path: Path, *changes: tuple[str, str]) -> str:
    with pytest.raises(DefinitionError) as error:
        source(tmp_path, *changes)
    return "\n".join(str(one).partition("tables.yaml:")[2] for one in error.value.mistakes)


def test_what_is_ours_does_not_reach_sparks_reader(tmp_path: Path) -> None:
    read = source(tmp_path)
    assert read.options == {"mergeSchema": "true"}
    assert read.watermark == PartitionWatermark(timedelta(hours=1), TimeExtractor("$pt_day $pt_hour:00:00"))
    assert read.watermark.complete == CompleteWhen(WholeBy.FILE, "_SUCCESS")


def test_a_cached_definition_is_the_same(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", settled=timedelta())
    change = ("watermark: source", "watermark: source\n  complete_when: {quiet: 10 minutes}")
    assert source(tmp_path, change, cache=cache) == source(tmp_path, change, cache=cache)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("{file: _DONE}", CompleteWhen(WholeBy.FILE, "_DONE")),
        ("{quiet: 10 minutes}", CompleteWhen(WholeBy.QUIET, "", timedelta(minutes=10))),
        ("{class: 'company.lake:Whole'}", CompleteWhen(WholeBy.CLASS, "company.lake:Whole")),
    ],
)
def test_what_says_that_a_partition_is_whole(tmp_path: Path, written: str, meant: CompleteWhen) -> None:
    watermark = source(tmp_path, ("watermark: source", f"watermark: source\n  complete_when: {written}")).watermark
    assert watermark is not None
    assert watermark.complete == meant


def test_a_table_of_a_metastore_is_whole_by_it(tmp_path: Path) -> None:
    there = ("  format: parquet\n  path: /data/events\n  partitioned_by: [pt_day, pt_hour]\n", "  format: hive\n")
    watermark = source(tmp_path, there).watermark
    assert watermark is not None
    assert watermark.complete.by is WholeBy.METASTORE


def test_all_options(tmp_path: Path) -> None:
    more = """partition.time-interval: INTERVAL '1' HOUR
    partition.time-extractor.kind: Custom
    partition.time-extractor.class: company.lake:Extractor
    streaming-source.partition-order: create-time
    streaming-source.consume-start-offset: 2021-03-19 10:00:00
    streaming-source.monitor-interval: 30 s"""
    pattern = "    partition.time-extractor.timestamp-pattern: $pt_day $pt_hour:00:00\n"
    assert source(tmp_path, ("partition.time-interval: 1h", more), (pattern, "")).watermark == PartitionWatermark(
        timedelta(hours=1),
        TimeExtractor(class_path="company.lake:Extractor"),
        order=PartitionOrder.CREATED,
        start="2021-03-19 10:00:00",
        monitor_interval=timedelta(seconds=30),
    )


INTERVAL = "partition.time-interval: 1h"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("watermark: source", "watermark: sauce", "7:14: "),
        ("    partition.time-interval: 1h\n", "", "7:14: a watermark needs option 'partition.time-interval'"),
        ("time-interval", "time-intervall", "11:5: a source has no option 'partition.time-intervall'; did you mean"),
        ("1h", "soon", "11:30: 'soon' is no length of time"),
        ("1h", "0 months", "11:30: '0 months' is no length of time; write for example '1 hour' or '1 month'"),
        ("1h", "101 years", "11:30: '101 years' is no length of time"),
        ("1h", "P", "11:30: 'P' is no length of time"),
        ("$pt_day $", "$pt_dya $", "10:49: $pt_dya is no partition key of this source; did you mean 'pt_day'?"),
        ("  watermark: source\n", "", "10:5: 'partition.time-interval' takes effect only with 'watermark: source'"),
        ("  partitioned_by: [pt_day, pt_hour]\n", "", "6:14: a watermark needs partitions"),
        ("watermark: source", "watermark: source\n  complete_when: metastore", "8:18: no metastore knows"),
        ("watermark: source", "watermark: source\n  complete_when: {fiel: x}", "8:18: 'fiel' tells nothing"),
        ("watermark: source", "watermark: source\n  complete_when: {class: nothing}", "'nothing' is no class"),
        (INTERVAL, INTERVAL + "\n    streaming-source.partition-order: by-name", "12:39: 'by-name' is no order of partitions"),
        (INTERVAL, INTERVAL + "\n    partition.time-extractor.kind: custom", "12:36: kind 'custom' needs option"),
        (
            INTERVAL,
            INTERVAL + "\n    partition.time-extractor.class: a:B",
            "it is used with 'partition.time-ext",
        ),
        (INTERVAL, INTERVAL + "\n    partition.time-extractor.timestamp-formatter: yyyy hh", "write 'HH'"),
        (INTERVAL, INTERVAL + "\n    streaming-source.consume-start-offset: yesterday", "'yesterday' is no partition"),
        ("format: parquet\n  path: /data/events", "format: iceberg", "a source of format iceberg has no partitions to look for"),
    ],
)
def test_mistakes_of_a_source_have_a_place(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert told in mistake(tmp_path, (old, new))


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("policy.kind: metastore, success-file", "19:40: policy 'metastore' has nothing to do: a commit adds its partitions"),
        ("trigger: watermark", "19:36: 'watermark' is no trigger; use process-time | partition-time"),
        ("tirgger: process-time", "19:5: a table has no option 'sink.partition-commit.tirgger'; did you mean"),
        ("delay: later", "19:34: 'later' is no length of time"),
        ("policy.kind: succes-file", "'succes-file' is no policy; use success-file | custom; did you mean"),
        ("policy.kind: custom", "policy 'custom' needs option"),
        ("policy.class: company:Policy", "it is used by policy 'custom' only"),
        ("success-file.name: done", "'done' is no name of a marker"),
        ("watermark-time-zone: Berlin", "there is no time zone 'Berlin'"),
    ],
)
def test_mistakes_of_a_table_have_a_place(tmp_path: Path, option: str, told: str) -> None:
    formatter = "partition.fields.ds.date-formatter: yyyy-MM-dd"
    assert told in mistake(tmp_path, (formatter, f"{formatter}\n    sink.partition-commit.{option}"))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("partition.fields.ds.date-formatter: yyyy-MM-dd\n    ", "", "it needs time partitions"),
        ("freshness: 1 minute", "freshness: 1 hour", "it is for tables that are refreshed all the time"),
        (
            "format: parquet\n  partitioned_by: [ds]",
            "format: iceberg\n  partitioned_by: [ds]",
            "have no folder for each partition",
        ),
    ],
)
def test_where_partition_commit_has_nothing_to_do(tmp_path: Path, old: str, new: str, told: str) -> None:
    formatter = "partition.fields.ds.date-formatter: yyyy-MM-dd"
    commit = (formatter, f"{formatter}\n    sink.partition-commit.policy.kind: success-file")
    source(tmp_path, commit)
    assert told in mistake(tmp_path, commit, (old, new))


OURS = "    partition.time-extractor.timestamp-pattern: $pt_day $pt_hour:00:00\n    partition.time-interval: 1h\n"
BY_TIME = ("yyyy-MM-dd\n", "yyyy-MM-dd\n    sink.partition-commit.trigger: partition-time\n")


def test_partition_time_needs_a_watermark(tmp_path: Path) -> None:
    source(tmp_path, BY_TIME)
    told = mistake(tmp_path, BY_TIME, ("  watermark: source\n", ""), (OURS, ""))
    assert told.startswith("16:36: nothing that this table reads has a watermark, so no partition would ever be complete; write")
    of_rows = ("watermark: source", "watermark: {column: ts, delay: 1 minute}")
    assert "nothing that this table reads has a watermark" in mistake(tmp_path, BY_TIME, of_rows, (OURS, ""))


def test_what_a_view_of_a_catalog_reads_nobody_knows_yet(tmp_path: Path) -> None:
    view = "  format: parquet\n  path: /data/events\n  partitioned_by: [pt_day, pt_hour]\n  watermark: source\n  options:\n"
    source(tmp_path, BY_TIME, (view + "    mergeSchema: true\n" + OURS, "  format: view\n"))


@pytest.mark.parametrize(
    ("written", "months"),
    [("1 month", 1), ("3 months", 3), ("2 years", 24), ("INTERVAL '1' YEAR", 12), ("P1Y6M", 18), ("p1m", 1)],
)
def test_a_partition_may_hold_months(tmp_path: Path, written: str, months: int) -> None:
    watermark = source(tmp_path, ("time-interval: 1h", f"time-interval: {written}")).watermark
    assert watermark is not None
    assert (watermark.months, watermark.interval) == (months, timedelta())


@pytest.mark.parametrize(("delay", "seconds"), [("1 minute", 60), ("PT30S", 30)])
def test_a_stream_waits_for_late_rows(tmp_path: Path, delay: str, seconds: int) -> None:
    ours = "    partition.time-extractor.timestamp-pattern: $pt_day $pt_hour:00:00\n    partition.time-interval: 1h\n"
    read = source(tmp_path, ("watermark: source", f"watermark: {{column: ts, delay: {delay}}}"), (ours, ""))
    assert (read.event_time, read.watermark) == (EventTime("ts", f"{seconds} seconds"), None)


def test_a_stream_tells_rows_apart(tmp_path: Path) -> None:
    ours = "    partition.time-extractor.timestamp-pattern: $pt_day $pt_hour:00:00\n    partition.time-interval: 1h\n"
    apart = "watermark: {column: ts, delay: 1 minute, deduplicate: [id, part]}"
    read = source(tmp_path, ("watermark: source", apart), (ours, ""), cache=Cache(tmp_path / "cache", settled=timedelta()))
    assert read.event_time == EventTime("ts", "60 seconds", ("id", "part"))
    told = mistake(tmp_path, ("watermark: source", apart.replace("[id, part]", "id")), (ours, ""))
    assert told.startswith("7:14: 'deduplicate' must be a list, not 'id'")


def test_mistakes_of_a_delay_have_their_place(tmp_path: Path) -> None:
    assert "'soon' is no length of time" in mistake(tmp_path, ("watermark: source", "watermark: {column: ts, delay: soon}"))
    assert mistake(tmp_path, ("watermark: source", "watermark: sauce")).startswith("7:14: 'sauce' is no watermark; write source")


def test_tables_may_have_late_rows_where_a_stream_hears_what_is_new(tmp_path: Path) -> None:
    file = tmp_path / "tables.yaml"
    text = "sources: [{name: a.b.c, format: FORMAT, watermark: {column: ts, delay: 1 minute}}]"
    for readable in ("hive", "iceberg"):
        file.write_text(text.replace("FORMAT", readable))
        (read,) = load_definitions(file, cache=Cache(None)).sources.values()
        assert read.event_time == EventTime("ts", "60 seconds")
    file.write_text(text.replace("FORMAT", "jdbc"))
    with pytest.raises(DefinitionError, match="1:50: a source of format jdbc tells no stream what is new in it"):
        load_definitions(file, cache=Cache(None))
