"""What a runner is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan


class Runner(ABC):
    """Runs the jobs of plans on Spark, one at a time."""

    @abstractmethod
    def run(self, plan: RefreshPlan, environment: Mapping[str, str]) -> None:
        """Run the job of a plan to its end. An exception that reaches the caller leaves no process behind.

        :param environment: variables for the job's driver, above all passwords, which must stand nowhere else.
        :raises ConfigurationError: when this machine lacks what it takes.
        :raises JobFailedError: when the job failed or was stopped, in Spark's own words.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop the job that runs, if one does; :meth:`run` then raises. May be called from another thread; idempotent."""
