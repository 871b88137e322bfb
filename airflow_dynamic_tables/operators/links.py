"""Links on task pages: to Spark, and to the versions of the table."""

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
"""Log line of the job once it has a session; not visible for a driver on the cluster."""

_TRACKED = re.compile(r"\btracking URL: (https?://\S+)$")
"""Log line of YARN about an application; its URL redirects to the history server after the application ended."""

log = logging.getLogger(__name__)


class SparkPages:
    """URLs of Spark pages of an application, parsed from the output of spark-submit."""

    def __init__(self) -> None:
        self._application: str | None = None
        self._live = ""
        self._tracked = ""

    def notice(self, line: str) -> bool:
        """Process an output line.

        :return: whether the URL for the running application changed.
        """
        before = self.while_running()
        if application := _APPLICATION.search(line):
            self._application, self._live = application[1], application[2] or ""
        elif tracked := _TRACKED.search(line):
            self._tracked = tracked[1]
        return self.while_running() != before

    def while_running(self) -> str:
        """Return the URL while Spark runs; empty if unknown."""
        return self._tracked or self._live

    def afterwards(self) -> str:
        """Return the URL after Spark ended and its own page is gone; empty if unknown."""
        server = conf.get("dynamic_tables", "spark_history_server", fallback="")
        if server and self._application:
            return f"{server.rstrip('/')}/history/{quote(self._application)}/"
        return self._tracked


class SparkLink(BaseOperatorLink):
    """Spark's page of the application: its own while it runs, then that of the history server."""

    name = "Spark"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002 - Airflow passes it
        """Return the URL after Spark ended, because Airflow calls this when the task ends."""
        pages: SparkPages | None = operator.spark_pages
        return pages.afterwards() if pages is not None else ""


class TableLink(BaseOperatorLink):
    """The asset of the table, which has an event for every version."""

    name = "Versions of the table"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002 - Airflow passes it
        """Return the asset list filtered to this asset, because tasks do not know Airflow's asset ids."""
        name = quote(dynamic_table_asset(operator.table.identifier).name, safe="")
        base: str = conf.get("api", "base_url", fallback="/")
        return urljoin(f"{base.rstrip('/')}/", f"assets?name_pattern={name}")


class ShowsSpark(SparkSubmitOperator):
    """spark-submit with a link to Spark's page as soon as it is available."""

    spark_pages: SparkPages | None = None

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        handle = hook._process_spark_submit_log
        hook._process_spark_submit_log = lambda lines: handle(map(self._noticed, lines))  # type: ignore[method-assign, assignment]
        self.spark_pages = SparkPages()
        return hook

    def hear(self, line: str) -> None:
        """Log a line of a job in this process, and look for the URL of Spark's page in it."""
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
