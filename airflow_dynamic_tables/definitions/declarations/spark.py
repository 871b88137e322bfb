"""The declaration of how a Spark job is submitted."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from airflow_dynamic_tables.core.refresh.spark_settings import FIXED, TIME_ZONE
from airflow_dynamic_tables.definitions.declarations.base import Declaration, Name, Options


class SparkDeclaration(Declaration):
    """How the Spark job is submitted; what is left out comes from the Airflow connection."""

    conn_id: Name | None = None
    """Airflow connection of type Spark; default `spark_default`."""
    conf: Options = Field(default_factory=dict)
    """Spark configuration, e.g. `spark.executor.memory: 4g`."""
    deploy_mode: Literal["client", "cluster"] | None = None
    """Where the driver runs."""
    yarn_queue: Name | None = None
    """YARN queue."""
    num_executors: int | None = Field(default=None, ge=1)
    """Number of executors."""
    executor_cores: int | None = Field(default=None, ge=1)
    """Cores of an executor."""
    executor_memory: Name | None = None
    """Memory of an executor, e.g. `4g`."""
    total_executor_cores: int | None = Field(default=None, ge=1)
    """Cores of all executors together (standalone)."""
    driver_memory: Name | None = None
    """Memory of the driver, e.g. `2g`."""
    packages: Name | None = None
    """Maven coordinates of jars, separated by commas."""
    exclude_packages: Name | None = None
    """Maven coordinates to leave out, separated by commas."""
    repositories: Name | None = None
    """Maven repositories, separated by commas."""
    jars: Name | None = None
    """Jars, separated by commas."""
    files: Name | None = None
    """Files for every executor, separated by commas."""
    py_files: Name | None = None
    """Python files or zips besides this package, separated by commas."""
    archives: Name | None = None
    """Archives that every executor unpacks, separated by commas."""
    driver_class_path: Name | None = None
    """Class path of the driver."""
    properties_file: Name | None = None
    """File of Spark properties."""
    proxy_user: Name | None = None
    """User to impersonate."""
    principal: Name | None = None
    """Kerberos principal."""
    keytab: Name | None = None
    """Kerberos keytab."""
    env_vars: Options = Field(default_factory=dict)
    """Environment variables of spark-submit."""

    @field_validator("conf")
    @classmethod
    def _check_conf(cls, value: dict[str, str]) -> dict[str, str]:
        if TIME_ZONE in value:
            raise ValueError(f"'{TIME_ZONE}' is the 'timezone' of the table; say it there")
        for name, fixed in FIXED.items():
            if value.get(name, fixed).lower() != fixed.lower():
                raise ValueError(f"'{name}' is {fixed} in every refresh; leave it out")
        return value
