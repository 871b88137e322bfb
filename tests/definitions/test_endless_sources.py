"""Sources whose rows come and come: what may be written of them, and what is a mistake and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schedule import StrategyName
from airflow_dynamic_tables.core.streaming.stream_plans import EventTime
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import DefinitionError
from airflow_dynamic_tables.services.refresh.preview import choose

TABLES = """\
defaults: {catalog: lake, database: web}
sources:
- name: raw.clicks
  format: kafka
  conn_id: events
  options: {subscribe: clicks}
  watermark: {column: timestamp, delay: 1 minute}
- name: raw.ticks
  format: rate
  options: {rowsPerSecond: 5}
dynamic_tables:
- name: seen
  freshness: 1 minute
  query: SELECT value FROM raw.ticks
"""


def sources(tmp_path: Path, old: str = "", new: str = "") -> dict[TableIdentifier, Source]:
    assert old in TABLES
    (tmp_path / "tables.yaml").write_text(TABLES.replace(old, new))
    definitions = load_definitions(tmp_path / "tables.yaml", cache=Cache(None))
    (table,) = definitions.tables.values()
    choice = choose(table, definitions.sources)
    assert (choice.strategy, choice.reason) == (StrategyName.STREAM, "lake.raw.ticks never ends, so only a stream reads it")
    return dict(definitions.sources)


def test_what_they_are(tmp_path: Path) -> None:
    read = sources(tmp_path)
    clicks = read[TableIdentifier("lake", "raw", "clicks")]
    assert (clicks.format, clicks.conn_id, clicks.options) == ("kafka", "events", {"subscribe": "clicks"})
    assert clicks.event_time == EventTime("timestamp", "60 seconds")
    assert read[TableIdentifier("lake", "raw", "ticks")].options == {"rowsPerSecond": "5"}
    declared = sources(tmp_path, "conn_id: events\n  options: {", "options: {kafka.bootstrap.servers: 'a:9092', ")
    assert declared[TableIdentifier("lake", "raw", "clicks")].conn_id is None


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("  conn_id: events\n", "", "needs either option 'kafka.bootstrap.servers' or 'conn_id', an Airflow connection"),
        (
            "subscribe: clicks",
            "kafka.bootstrap.servers: a, subscribe: a",
            "needs either option 'kafka.bootstrap.servers' or 'conn_id'",
        ),
        ("subscribe: clicks", "minPartitions: 3", "a kafka source needs option 'subscribe'"),
        ("subscribe: clicks", "subscribe: clicks, failOnDataLoss: false", "no option 'failOnDataLoss': it may have kafka.boot"),
        (
            "subscribe: clicks",
            "subscribe: clicks, kafka.sasl.jaas.config: x",
            "a login belongs in the Airflow connection of 'conn",
        ),
        ("subscribe: clicks", "subscribe: clicks, startingoffsets: latest", "did you mean 'startingOffsets'?"),
        ("rowsPerSecond", "rowsPerMinute", "no option 'rowsPerMinute': it may have rowsPerSecond, numPartitions, rampUpTime"),
        ("format: rate", "format: rate\n  path: /data", "has the columns timestamp, value, and no 'path'; name neither"),
        ("format: rate", "format: rate\n  schema: value bigint", "has the columns timestamp, value, and no 'path'; name neither"),
        ("format: rate", "format: rate\n  conn_id: events", "a source of format rate has no 'conn_id'; remove it"),
        ("{column: timestamp, delay: 1 minute}", "source", "a source of format kafka has no partitions to look for"),
    ],
)
def test_mistakes(tmp_path: Path, old: str, new: str, told: str) -> None:
    with pytest.raises(DefinitionError) as error:
        sources(tmp_path, old, new)
    assert any(told in str(mistake) for mistake in error.value.mistakes), error.value.mistakes
