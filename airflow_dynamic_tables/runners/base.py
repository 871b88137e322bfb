"""The interface of runners."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType

from airflow_dynamic_tables.core.query_test_plans import QueryTestOutcomes, QueryTestPlans
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.spark_settings import RENDERED, SparkSettings, asks_airflow
from airflow_dynamic_tables.exceptions import ConfigurationError

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
"""The environment of a job without passwords."""


class Runner(ABC):
    """Runs the jobs of plans on Spark, one at a time."""

    @abstractmethod
    def run(self, plan: RefreshPlan, environment: Mapping[str, str]) -> None:
        """Run the job of a plan to its end. When an exception is raised, no process is left behind.

        :param environment: variables for the job's driver, in particular passwords, which must not be stored anywhere else.
        :raises ConfigurationError: when this machine lacks a prerequisite.
        :raises JobFailedError: when the job failed or was stopped, with Spark's message.
        """

    @abstractmethod
    def run_query_tests(self, tests: QueryTestPlans, environment: Mapping[str, str] = NO_VARIABLES) -> QueryTestOutcomes:
        """Run unit tests in one session; the outcomes are in their order.

        :param environment: as of :meth:`run`, for plans that read tables.
        :raises ConfigurationError: as of :meth:`run`.
        :raises JobFailedError: when Spark did not run them; a failing test is an outcome.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop the running job, if any; :meth:`run` then raises. Callable from another thread; idempotent."""


def tasks_done(finished: int, planned: int) -> str:
    """The line with which a runner reports Spark's progress."""
    return f"Spark: {finished} of {planned} tasks are done"


def refuse_templates(settings: SparkSettings) -> None:
    """Reject settings that only an Airflow task can render: Spark would use the template itself, for example as a password.

    :raises ConfigurationError: names the setting.
    """
    for name in RENDERED:
        value = getattr(settings, name)
        texts = value if isinstance(value, Mapping) else {"": value or ""}
        for key, text in texts.items():
            if asks_airflow(text):
                setting = ".".join(filter(None, ("spark", name, key)))
                raise ConfigurationError(
                    f"{setting!r} asks Airflow for a variable, connection or param, which only its tasks can look up; "
                    "refresh this table with 'airflow dags trigger' or 'airflow dags test'."
                )
