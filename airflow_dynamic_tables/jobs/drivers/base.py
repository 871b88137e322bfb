"""What a driver is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection

from pyspark.sql import DataFrame

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.jobs.query.settings import SessionSettings


class Driver(ABC):
    """What a job needs and SQL does not give: small files, the check of a query, passwords, code of functions."""

    @property
    @abstractmethod
    def application_id(self) -> str:
        """Spark's id of the application that runs the job."""

    @property
    @abstractmethod
    def settings(self) -> SessionSettings:
        """The settings of the session."""

    @abstractmethod
    def write_text(self, uri: str, text: str) -> None:
        """Write a small file so that it is there whole or not at all."""

    @abstractmethod
    def list_files(self, uri: str) -> list[tuple[str, int]]:
        """Data files below a folder: URI as ``uri`` spells it, and size in bytes. Empty when there is no such folder."""

    @abstractmethod
    def check_query(self, query: str, views: Collection[str]) -> None:
        """Check a query as Spark reads it, which may be otherwise than the definitions did.

        :param views: names of the temporary views that it may read.
        :raises ValueError: when it is no query, or reads something else; names that.
        """

    @abstractmethod
    def check_allowed(self, plan: RefreshPlan) -> None:
        """Refuse a plan whose query, predicates or functions do what this deployment does not allow.

        :raises ValueError: says what.
        """

    @abstractmethod
    def count_files(self, frame: DataFrame) -> int:
        """How many files Spark reads for a frame that is nothing but files."""

    @property
    @abstractmethod
    def how_to_add_jars(self) -> str:
        """What to do so that Spark finds a class that it does not find, as the end of a sentence."""

    @abstractmethod
    def late_rows(self, query: str) -> int:
        """Rows that the batch at which a streaming query is left out so far, because the watermark was beyond them.

        :param query: its name.
        """

    @abstractmethod
    def add_python_file(self, uri: str) -> None:
        """Make the modules of a file importable, here and where Spark runs Python functions."""

    @abstractmethod
    def add_jar(self, uri: str) -> None:
        """Make the classes of a jar known to this job, whatever another one knows by their names."""

    @abstractmethod
    def password(self, variable: str) -> str | None:
        """The password that the plan calls by the name of an environment variable; ``None`` when nobody gave it."""

    @abstractmethod
    def tell(self, line: str) -> None:
        """Say something to whoever watches the job."""
