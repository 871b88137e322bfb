"""Driver for the JVM of this process, started by spark-submit, through py4j."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.jobs.drivers.base import Driver
from airflow_dynamic_tables.jobs.files import list_files, write_text
from airflow_dynamic_tables.jobs.query.checking import check_allowed, check_query
from airflow_dynamic_tables.jobs.query.settings import JvmSettings, SessionSettings

_DROPPED = "numRowsDroppedByWatermark"
"""Spark's metric for the number of late rows."""


class JvmDriver(Driver):
    """Spark in the JVM of this process.

    :param spark: its session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def application_id(self) -> str:
        """See :attr:`Driver.application_id`."""
        return str(self._spark.sparkContext.applicationId)

    @property
    def settings(self) -> SessionSettings:
        """See :attr:`Driver.settings`."""
        return JvmSettings(self._spark)

    def write_text(self, uri: str, text: str) -> None:
        """See :meth:`Driver.write_text`."""
        write_text(self._spark, uri, text)

    def list_files(self, uri: str) -> list[tuple[str, int]]:
        """See :meth:`Driver.list_files`."""
        return list_files(self._spark, uri)

    def check_query(self, query: str, views: Collection[str]) -> None:
        """See :meth:`Driver.check_query`."""
        check_query(self._spark, query, views)

    def check_allowed(self, plan: RefreshPlan) -> None:
        """See :meth:`Driver.check_allowed`."""
        check_allowed(self._spark, plan)

    def count_files(self, frame: DataFrame) -> int:
        """Count every read of a file; a frame's ``inputFiles`` would only return distinct files."""
        relation: Any = frame._jdf.queryExecution().analyzed().relation()
        return len(relation.location().inputFiles())

    def late_rows(self, query: str) -> int:
        """Sum the metrics of all stateful operators; Spark itself reports them only after the batch."""
        running = next(active for active in self._spark.streams.active if active.name == query)
        batch: Any = running._jsq.streamingQuery().lastExecution().executedPlan()
        return _late_rows(batch)

    @property
    def how_to_add_jars(self) -> str:
        """See :attr:`Driver.how_to_add_jars`."""
        return "name its jar in the definition, for example spark: {packages: 'org.postgresql:postgresql:42.7.7'}"

    def add_python_file(self, uri: str) -> None:
        """See :meth:`Driver.add_python_file`."""
        self._spark.sparkContext.addPyFile(uri)

    def add_jar(self, uri: str) -> None:
        """See :meth:`Driver.add_jar`."""
        self._spark.sql(f"ADD JAR {uri}")

    def password(self, variable: str) -> str | None:
        """See :meth:`Driver.password`."""
        return os.environ.get(variable)

    def tell(self, line: str) -> None:
        """See :meth:`Driver.tell`."""
        print(line, flush=True)


def _late_rows(operator: Any) -> int:
    """The late rows of an operator and all its inputs."""
    counted = operator.metrics().get(_DROPPED)
    inputs = operator.children()
    own = int(counted.get().value()) if counted.isDefined() else 0
    return own + sum(_late_rows(inputs.apply(number)) for number in range(inputs.size()))
