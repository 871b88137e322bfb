"""Links on the page of a task: to Spark, and to the versions of its table."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import BaseOperatorLink, conf, get_current_context

from airflow_dynamic_tables.assets import dynamic_table_asset

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey

_APPLICATION = re.compile(r"^Spark application (\S+) of \S+?(?:, shown at (https?://\S+))?$")
"""What the job says once it has a session; of a driver on the cluster nobody here sees it."""

_TRACKED = re.compile(r"\btracking URL: (https?://\S+)$")
"""What YARN says of an application; the address leads to the history server when the application ended."""

log = logging.getLogger(__name__)


class SparkPages:
    """Where Spark shows an application, as the output of spark-submit tells."""

    def __init__(self) -> None:
        self._application: str | None = None
        self._live = ""
        self._tracked = ""

    def notice(self, line: str) -> bool:
        """Take a line of that output.

        :return: whether the address while Spark runs is now another one.
        """
        before = self.while_running()
        if application := _APPLICATION.search(line):
            self._application, self._live = application[1], application[2] or ""
        elif tracked := _TRACKED.search(line):
            self._tracked = tracked[1]
        return self.while_running() != before

    def while_running(self) -> str:
        """The address while Spark runs; empty when nobody knows."""
        return self._tracked or self._live

    def afterwards(self) -> str:
        """The address once Spark ended and its own page is gone; empty when nobody knows."""
        server = conf.get("dynamic_tables", "spark_history_server", fallback="")
        if server and self._application:
            return f"{server.rstrip('/')}/history/{quote(self._application)}/"
        return self._tracked


class SparkLink(BaseOperatorLink):
    """Spark's page of the application: its own while it runs, later that of the history server."""

    name = "Spark"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002 - Airflow passes it
        """What is left when Spark ended: Airflow asks when the task does."""
        pages: SparkPages | None = operator.spark_pages
        return pages.afterwards() if pages is not None else ""


class TableLink(BaseOperatorLink):
    """The asset of the table, which has an event for every version."""

    name = "Versions of the table"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002 - Airflow passes it
        """The list of assets with this one alone: tasks do not know the numbers that Airflow gives to assets."""
        name = quote(dynamic_table_asset(operator.table.identifier).name, safe="")
        base: str = conf.get("api", "base_url", fallback="/")
        return urljoin(f"{base.rstrip('/')}/", f"assets?name_pattern={name}")


class ShowsSpark(SparkSubmitOperator):
    """spark-submit, whose task has a link to Spark's page as soon as that is there."""

    spark_pages: SparkPages | None = None

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        handle = hook._process_spark_submit_log
        hook._process_spark_submit_log = lambda lines: handle(map(self._noticed, lines))  # type: ignore[method-assign, assignment]
        self.spark_pages = SparkPages()
        return hook

    def hear(self, line: str) -> None:
        """Log what a job says that runs in this process, and see where Spark shows it."""
        if self.spark_pages is None:
            self.spark_pages = SparkPages()
        log.info("%s", self._noticed(line))

    def _noticed(self, line: str) -> str:
        pages = self.spark_pages
        if pages is not None and pages.notice(line.rstrip()):
            try:
                get_current_context()["ti"].xcom_push(SparkLink().xcom_key, pages.while_running())
            except Exception:
                log.warning("This task has no link to Spark while it runs.", exc_info=True)
        return line
