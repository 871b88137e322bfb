"""How a Spark job is submitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How the Spark job is submitted; the names are those of ``SparkSubmitOperator``, ``None`` leaves it to the connection."""

    conn_id: str = "spark_default"
    conf: Mapping[str, str] = field(default_factory=dict)
    deploy_mode: str | None = None
    yarn_queue: str | None = None
    num_executors: int | None = None
    executor_cores: int | None = None
    executor_memory: str | None = None
    total_executor_cores: int | None = None
    driver_memory: str | None = None
    packages: str | None = None
    exclude_packages: str | None = None
    repositories: str | None = None
    jars: str | None = None
    files: str | None = None
    py_files: str | None = None
    archives: str | None = None
    driver_class_path: str | None = None
    properties_file: str | None = None
    proxy_user: str | None = None
    principal: str | None = None
    keytab: str | None = None
    env_vars: Mapping[str, str] = field(default_factory=dict)
