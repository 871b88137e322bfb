"""Driver for a Spark Connect server: without a JVM, files are accessed by this process and queries are parsed by SQL."""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from inspect import unwrap
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.jobs.drivers.base import Driver
from airflow_dynamic_tables.jobs.query.explained import ExplainedQueries
from airflow_dynamic_tables.jobs.query.settings import ConnectSettings, SessionSettings

_ADDING = threading.Lock()
"""PySpark removes missing folders from Python's import caches, which is not thread-safe."""


class Surroundings(ABC):
    """Services of the process that runs the job; the job itself only has access to Spark's file systems."""

    @abstractmethod
    def write_text(self, uri: str, text: str) -> None:
        """Write a small file."""

    @abstractmethod
    def list_files(self, uri: str) -> list[tuple[str, int]]:
        """Data files below a folder, see :meth:`Driver.list_files`."""

    @abstractmethod
    def local_copy(self, uri: str) -> Path:
        """A local copy of a file with the same name. It is deleted when the job ends, and its modules are unloaded."""


class ConnectDriver(Driver):
    """Spark behind a Spark Connect session.

    :param passwords: by the names of environment variables in the plan.
    :param tell: receives every line of the job's output.
    """

    def __init__(
        self, spark: SparkSession, surroundings: Surroundings, passwords: Mapping[str, str], tell: Callable[[str], None]
    ) -> None:
        self._spark = spark
        self._surroundings = surroundings
        self._passwords = passwords
        self._tell = tell
        self._queries = ExplainedQueries(spark)

    @cached_property
    def application_id(self) -> str:
        """The server's application id, shared by all its sessions."""
        return self._spark.conf.get("spark.app.id", "") or ""

    @property
    def settings(self) -> SessionSettings:
        """See :attr:`Driver.settings`."""
        return ConnectSettings(self._spark)

    def write_text(self, uri: str, text: str) -> None:
        """See :meth:`Driver.write_text`."""
        self._surroundings.write_text(uri, text)

    def list_files(self, uri: str) -> list[tuple[str, int]]:
        """See :meth:`Driver.list_files`."""
        return self._surroundings.list_files(uri)

    def check_query(self, query: str, views: Collection[str]) -> None:
        """See :meth:`Driver.check_query`."""
        self._queries.check_query(query, views)

    def check_allowed(self, plan: RefreshPlan) -> None:
        """See :meth:`Driver.check_allowed`."""
        self._queries.check_allowed(plan)

    def count_files(self, frame: DataFrame) -> int:
        """Count distinct files; a server does not report more.

        That is sufficient: a plan names every file once, and a pattern of :func:`~airflow_dynamic_tables.jobs.files.exactly`
        matches no other file, so for a file that is read twice another one would be missing.
        """
        # Bypasses PySpark's unbounded cache, which would keep the frame and its session alive forever.
        return len(unwrap(type(frame).inputFiles)(frame))

    def late_rows(self, query: str) -> int:
        """Not supported: a server reports it only after the batch, and streams do not run over Spark Connect."""
        raise NotImplementedError(f"nobody counts the late rows of {query} over Connect")

    @property
    def how_to_add_jars(self) -> str:
        """See :attr:`Driver.how_to_add_jars`."""
        return "name its jar in the definition, for example spark: {jars: /usr/share/java/postgresql.jar}"

    def add_python_file(self, uri: str) -> None:
        """See :meth:`Driver.add_python_file`."""
        copy = self._surroundings.local_copy(uri)
        sys.path.insert(0, str(copy.parent if copy.suffix == ".py" else copy))
        with _ADDING:
            self._spark.addArtifacts(str(copy), pyfile=True)

    def add_jar(self, uri: str) -> None:
        """See :meth:`Driver.add_jar`. ADD JAR would apply to the entire server, which keeps the first class of a name."""
        self._spark.addArtifacts(str(self._surroundings.local_copy(uri)))

    def password(self, variable: str) -> str | None:
        """See :meth:`Driver.password`."""
        return self._passwords.get(variable)

    def tell(self, line: str) -> None:
        """See :meth:`Driver.tell`."""
        self._tell(line)
