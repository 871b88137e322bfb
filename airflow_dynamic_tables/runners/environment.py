"""The environment of spark-submit on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from airflow_dynamic_tables.runners.class_data import class_data_options
from airflow_dynamic_tables.runners.finding import search_path

_OF_CONNECT = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""Variables by which PySpark makes every session one of Spark Connect."""


@contextmanager
def variables_set(variables: Mapping[str, str]) -> Iterator[None]:
    """Environment variables of this process while the body runs; afterwards they are again what they were."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def spark_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of spark-submit.

    Nothing in it leads the job to a Spark Connect server: its session would be one there.
    """
    others = {name: value for name, value in environ.items() if name not in _OF_CONNECT}
    return others | spark_variables(environ)


def spark_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """What differs there: this Python comes first, and Java starts from its archive of classes."""
    return {"PATH": search_path(environ), **class_data_options(environ)}
