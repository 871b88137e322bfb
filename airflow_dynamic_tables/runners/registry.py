"""Registry of runners by address. They are imported lazily, because importing PySpark takes a second."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import cast

from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.exceptions import MissingExtraError
from airflow_dynamic_tables.runners.base import Runner
from airflow_dynamic_tables.runners.spark_submit import SparkSubmitRunner

CONNECT_SCHEME = "sc://"


def runner_for(settings: SparkSettings, address: str, on_line: Callable[[str], None], target: str | None = None) -> Runner:
    """The runner for an address: a Spark Connect server, or a master for spark-submit.

    :param address: ``sc://host:port/;token=...`` or a master, for example ``local[*]``.
    :param target: a Unix socket, in gRPC's format, by which a Spark Connect server is reached instead of its address.
    :raises ConfigurationError: when the settings are not applicable to this runner.
    :raises MissingExtraError: when PySpark is not installed.
    """
    if not address.startswith(CONNECT_SCHEME):
        return SparkSubmitRunner(settings, address, on_line)
    return cast(Runner, _spark_connect().SparkConnectRunner(settings, address, on_line, target=target))


def end_session(address: str, target: str) -> None:
    """End the session of a dead client, with its queries; best effort.

    :param address: that of its Spark Connect server, with token and ``session_id``.
    """
    _spark_connect().end_session(address, target)


def _spark_connect() -> ModuleType:
    try:
        return import_module("airflow_dynamic_tables.runners.spark_connect")
    except ModuleNotFoundError as error:
        raise MissingExtraError("pyspark") from error
