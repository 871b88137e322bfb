"""The declaration of how a Spark job is submitted."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from airflow_dynamic_tables.core.refresh.spark_settings import conf_problem
from airflow_dynamic_tables.definitions.declarations.base import Declaration, Name, Scalar


def _check_argument(value: str) -> str:
    """What stands on a command line or in an environment, where the system takes no NUL."""
    if "\0" in value:
        raise ValueError("the character NUL cannot be passed to spark-submit; remove it")
    return value


def _check_variable(name: str) -> str:
    if "=" in name:
        raise ValueError(f"{name!r} cannot be the name of an environment variable: it has a '='")
    return name


def _check_conf(value: dict[str, str]) -> dict[str, str]:
    if problem := conf_problem(value):
        raise ValueError(problem)
    return value


Argument = Annotated[Name, AfterValidator(_check_argument)]


Value = Annotated[Scalar, AfterValidator(_check_argument)]


Variable = Annotated[Argument, AfterValidator(_check_variable)]


class SparkDeclaration(Declaration):
    """How the Spark job is submitted; what is left out comes from the Airflow connection."""

    conn_id: Argument | None = None
    """Airflow connection of type Spark; default `spark_default`."""
    conf: Annotated[dict[Argument, Value], AfterValidator(_check_conf)] = Field(default_factory=dict)
    """Spark configuration, e.g. `spark.executor.memory: 4g`."""
    deploy_mode: Literal["client", "cluster"] | None = None
    """Where the driver runs."""
    yarn_queue: Argument | None = None
    """YARN queue."""
    num_executors: int | None = Field(default=None, ge=1)
    """Number of executors."""
    executor_cores: int | None = Field(default=None, ge=1)
    """Cores of an executor."""
    executor_memory: Argument | None = None
    """Memory of an executor, e.g. `4g`."""
    total_executor_cores: int | None = Field(default=None, ge=1)
    """Cores of all executors together (standalone)."""
    driver_memory: Argument | None = None
    """Memory of the driver, e.g. `2g`."""
    packages: Argument | None = None
    """Maven coordinates of jars, separated by commas."""
    exclude_packages: Argument | None = None
    """Maven coordinates to leave out, separated by commas."""
    repositories: Argument | None = None
    """Maven repositories, separated by commas."""
    jars: Argument | None = None
    """Jars, separated by commas."""
    files: Argument | None = None
    """Files for every executor, separated by commas."""
    py_files: Argument | None = None
    """Python files or zips besides this package, separated by commas."""
    archives: Argument | None = None
    """Archives that every executor unpacks, separated by commas."""
    driver_class_path: Argument | None = None
    """Class path of the driver."""
    properties_file: Argument | None = None
    """File of Spark properties."""
    proxy_user: Argument | None = None
    """User to impersonate."""
    principal: Argument | None = None
    """Kerberos principal."""
    keytab: Argument | None = None
    """Kerberos keytab."""
    env_vars: dict[Variable, Value] = Field(default_factory=dict)
    """Environment variables of spark-submit."""
