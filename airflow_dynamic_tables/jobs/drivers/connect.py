"""A Spark Connect server: no JVM of this process, so files are this machine's business and the parser is asked by SQL."""

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
from airflow_dynamic_tables.jobs.query.connect_settings import ConnectSettings
from airflow_dynamic_tables.jobs.query.explained import ExplainedQueries
from airflow_dynamic_tables.jobs.query.settings import SessionSettings

_ADDING = threading.Lock()
"""PySpark has Python forget folders that are not there, which fails in two threads at once."""


class Surroundings(ABC):
    """What whoever runs the job in its own process gives it: the job itself knows no file system but Spark's."""

    @abstractmethod
    def write_text(self, uri: str, text: str) -> None:
        """Write a small file."""

    @abstractmethod
    def list_files(self, uri: str) -> list[tuple[str, int]]:
        """Data files below a folder, see :meth:`Driver.list_files`."""

    @abstractmethod
    def local_copy(self, uri: str) -> Path:
        """A file of this machine with the same name and content. When the job ends, it is gone, and so are modules in it."""


class ConnectDriver(Driver):
    """Spark behind a session of Spark Connect.

    :param passwords: by the name that the plan calls them by.
    :param tell: takes every line that the job says.
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
        """That of the server, which all its sessions share."""
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
        """Count different files, which is all that a server tells.

        That is enough: a plan names every file once, and no pattern of :func:`~airflow_dynamic_tables.jobs.files.exactly` fits
        another file than its own, so a file that is read twice would have to be missing elsewhere.
        """
        # PySpark would keep the frame for ever, and its session with it: it remembers the answer in a cache without end.
        return len(unwrap(type(frame).inputFiles)(frame))

    def late_rows(self, query: str) -> int:
        """Refuse: a server tells this only when a batch is over, and no stream runs over Connect."""
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
        """See :meth:`Driver.add_jar`. By SQL it would be a jar of the whole server, which keeps the first class of a name."""
        self._spark.addArtifacts(str(self._surroundings.local_copy(uri)))

    def password(self, variable: str) -> str | None:
        """See :meth:`Driver.password`."""
        return self._passwords.get(variable)

    def tell(self, line: str) -> None:
        """See :meth:`Driver.tell`."""
        self._tell(line)
