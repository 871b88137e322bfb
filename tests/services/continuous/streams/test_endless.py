"""A topic of Kafka as the source of a stream: what its job is told, and when no new stream may begin. Without Kafka."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace

import pytest

from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.services.continuous.streams.jobs import recipe_of, stream_plan
from airflow_dynamic_tables.services.refresh.planning import job_environment
from tests.support.faults.stream_job import run_stream
from tests.support.streams import KAFKA_LOGIN, StreamSite, ids, turn_until

TOPIC = "\n- {name: raw.events, format: kafka, conn_id: events-1, options: {subscribe: clicks}}"


def test_what_the_job_is_told(site: StreamSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the topic, from the first record on; the login in its environment alone."""
    monkeypatch.setenv("AIRFLOW_CONN_EVENTS-1", json.dumps({"conn_type": "kafka", "extra": KAFKA_LOGIN}))
    topic = replace(site, source=TOPIC, query="SELECT offset AS id FROM raw.events")
    tuned = replace(topic, source=TOPIC.replace("clicks}", "clicks, minPartitions: 3}"))
    with site.open() as workspace:
        plan, other = (
            stream_plan(workspace, work.table, work.sources)
            for work in (one.work(workspace, lambda _: None, lambda: None) for one in (topic, tuned))
        )
        (source,) = plan.sources
        assert dict(source.options) == {"startingOffsets": "earliest", "failOnDataLoss": "true", "subscribe": "clicks"}
        assert "hunter2" not in plan.to_json()
        ((variable, told),) = job_environment(workspace, plan).items()
    assert (variable, source.password_variable) == ("DYNAMIC_TABLES_CONNECTION_events_2d_1",) * 2
    assert json.loads(told)["kafka.bootstrap.servers"] == "127.0.0.1:1"
    assert json.loads(told)["kafka.sasl.jaas.config"].endswith('required username="me" password="hunter2";')
    assert recipe_of(plan) == recipe_of(other), "how fast it is read makes it no other stream"


def test_what_a_topic_forgot_stays_in_the_table(site: StreamSite) -> None:
    site.arrive("1", (1, "00:00:01"))
    with site.open() as workspace:
        with closing(site.streaming(workspace, run_stream, lambda: None)) as stream:
            turn_until(stream, lambda: ids(workspace) == [1])
        other = replace(site, source=TOPIC, query="SELECT offset AS id FROM raw.events")
        with pytest.raises(
            UnsupportedError, match=r"cannot go on: the definition changed.* by what lake\.raw\.events still has; to"
        ):
            other.streaming(workspace, lambda _: None, lambda: None).turn(1)
        assert ids(workspace) == [1]
