"""A StatsD server to which Airflow's client sends."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from airflow.sdk._shared.observability.metrics import stats
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk._shared.observability.metrics.statsd_logger import SafeStatsdLogger
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory

from airflow_dynamic_tables.hooks.metrics import initialize_client

Received = Callable[[], list[str]]
"""Returns the metrics that the server received since the last call."""


@contextmanager
def statsd_server(monkeypatch: pytest.MonkeyPatch, *, is_initialized: bool = True) -> Iterator[Received]:
    """Configure Airflow to send to a StatsD server.

    :param is_initialized: whether Airflow has initialized its client, as it does where a task runs.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(5)
        options = {"STATSD_ON": "True", "STATSD_HOST": "127.0.0.1", "STATSD_PORT": str(server.getsockname()[1])}
        for option, value in options.items():
            monkeypatch.setenv(f"AIRFLOW__METRICS__{option}", value)
        initialize_client.cache_clear()
        stats.initialize(factory=get_stats_factory() if is_initialized else NoStatsLogger, export_legacy_names=False)

        def received() -> list[str]:
            server.sendto(b"end", server.getsockname())
            return [line.decode() for line in iter(lambda: server.recv(65_536), b"end")]

        try:
            yield received
        finally:
            if isinstance(client := stats._get_backend(), SafeStatsdLogger):
                client.statsd.close()
            stats.initialize(factory=NoStatsLogger, export_legacy_names=False)
