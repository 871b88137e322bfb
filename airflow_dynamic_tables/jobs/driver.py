"""Access of a job to Spark beyond SQL: through the JVM of its own process, or a Spark Connect server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection

from pyspark.sql import DataFrame

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.jobs.query import SessionSettings


class Driver(ABC):
    """Operations of a job beyond SQL: small files, query checks, passwords, code of functions."""

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
        """Write a small file atomically."""

    @abstractmethod
    def list_files(self, uri: str) -> list[tuple[str, int]]:
        """Data files below a folder: URI in the spelling of ``uri``, and size in bytes. Empty when the folder does not exist."""

    @abstractmethod
    def check_query(self, query: str, views: Collection[str]) -> None:
        """Check a query as parsed by Spark, which may differ from the parser of the definitions.

        :raises ValueError: when it is not a query, or names what else it reads.
        """

    @abstractmethod
    def check_allowed(self, plan: RefreshPlan) -> None:
        """Reject a plan whose query, predicates or functions need abilities that this deployment denies.

        :raises ValueError: names the ability.
        """

    @abstractmethod
    def count_files(self, frame: DataFrame) -> int:
        """The number of files that Spark reads for a frame that consists only of files."""

    @property
    @abstractmethod
    def how_to_add_jars(self) -> str:
        """How to make a missing class available to Spark, as the end of a sentence."""

    @abstractmethod
    def add_python_file(self, uri: str) -> None:
        """Make the modules of a file importable, here and where Spark runs Python functions."""

    @abstractmethod
    def add_jar(self, uri: str) -> None:
        """Make the classes of a jar available to this job, independent of other jobs' classes with the same names."""

    @abstractmethod
    def password(self, variable: str) -> str | None:
        """The password in an environment variable named by the plan; ``None`` when it is not set."""

    @abstractmethod
    def tell(self, line: str) -> None:
        """Report a line of progress."""
