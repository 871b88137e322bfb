"""A StatsD server, and Airflow's client of it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory

Received = Callable[[], list[str]]
"""Returns the metrics that the server received since the last call."""


@contextmanager
def statsd_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Received]:
    """Configure Airflow to send to a StatsD server, as it configures itself where a task runs."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(5)
        options = {"STATSD_ON": "True", "STATSD_HOST": "127.0.0.1", "STATSD_PORT": str(server.getsockname()[1])}
        for option, value in options.items():
            monkeypatch.setenv(f"AIRFLOW__METRICS__{option}", value)
        client = get_stats_factory()()
        stats.initialize(factory=lambda: client, export_legacy_names=False)

        def received() -> list[str]:
            stats.incr("end")
            lines: list[str] = []
            while (line := server.recv(65_536).decode()) != "airflow.end:1|c":
                lines.append(line)
            return lines

        try:
            yield received
        finally:
            client.statsd.close()
            stats.initialize(factory=NoStatsLogger, export_legacy_names=False)
