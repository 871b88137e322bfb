"""Submission of Spark jobs, and the division of Spark's settings between definition and cluster.

The rule: a setting of Spark SQL belongs to the cluster when it only affects how a query is executed: memory, number of tasks,
connections. Any other setting affects the meaning of the query, or may do so in a later release, and belongs to the definition.
When the definition does not set it, every refresh uses Spark's own default, whatever the cluster's value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

FIXED = {
    # Partition folders hold text, from which Spark would infer dates and numbers.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.sources.partitionOverwriteMode": "static",
    # Supported by Iceberg's readers.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.fieldId.write.enabled": "false",
    # Coalesces partitions into as few files as their size allows.
    "spark.sql.adaptive.enabled": "true",
    # A query is taken literally: '${env:HOME}' is text, and parquet.`/path` is not a table.
    "spark.sql.variable.substitute": "false",
    "spark.sql.runSQLOnFiles": "false",
    # The quoting rules that definitions rely on.
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
}
"""Settings of every refresh on which its guarantees depend; a definition cannot override them."""

TIME_ZONE = "spark.sql.session.timeZone"
"""The setting that corresponds to a definition's ``timezone``."""


def conf_problem(conf: Mapping[str, str]) -> str | None:
    """Return the first setting that a definition may not have, with the reason; ``None`` when all are allowed."""
    if TIME_ZONE in conf:
        return f"'{TIME_ZONE}' is the 'timezone' of the table; say it there"
    wrong = next((name for name, fixed in FIXED.items() if conf.get(name, fixed).lower() != fixed.lower()), None)
    return f"'{wrong}' is {FIXED[wrong]} in every refresh; leave it out" if wrong is not None else None


DEFAULTS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.groupByAliases": "true",
    "spark.sql.groupByOrdinal": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.orderByOrdinal": "true",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""Spark 4's defaults, set explicitly because a cluster's environment variable or another Spark version may differ."""

UNLESS_TUNED = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "200"}
"""Settings of the cluster that a refresh changes unless they are set: Spark would list each folder in a task of its own."""

_OF_THE_CLUSTER = (
    "spark.sql.adaptive.",
    "spark.sql.artifact.",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.broadcast",
    "spark.sql.bucketing.",
    "spark.sql.cartesianProductExec.",
    "spark.sql.catalog.",
    "spark.sql.cbo.",
    "spark.sql.codegen.",
    "spark.sql.columnVector.",
    "spark.sql.debug.",
    "spark.sql.defaultCacheStorageLevel",
    "spark.sql.defaultSizeInBytes",
    "spark.sql.exchange.",
    "spark.sql.execution.arrow.max",
    "spark.sql.execution.pyspark.python",
    "spark.sql.execution.pyspark.udf.",
    "spark.sql.execution.python.udf.",
    "spark.sql.files.max",
    "spark.sql.files.minPartitionNum",
    "spark.sql.files.openCostInBytes",
    "spark.sql.inMemoryColumnarStorage.",
    "spark.sql.join.preferSortMergeJoin",
    "spark.sql.leafNodeDefaultParallelism",
    "spark.sql.legacy.sessionInitWithConfigDefaults",
    "spark.sql.limit.",
    "spark.sql.max",
    "spark.sql.objectHashAggregate.",
    "spark.sql.optimizer.dynamicPartitionPruning.",
    "spark.sql.optimizer.runtime",
    "spark.sql.orc.columnar",
    "spark.sql.orc.compression.codec",
    "spark.sql.parquet.columnarReaderBatchSize",
    "spark.sql.parquet.compression.codec",
    "spark.sql.parquet.output.committer.class",
    "spark.sql.planChangeLog.",
    "spark.sql.redaction.",
    "spark.sql.sessionWindow.buffer.",
    "spark.sql.shuffle",
    "spark.sql.sort.",
    "spark.sql.sortMergeJoinExec.",
    "spark.sql.sources.bucketing.",
    "spark.sql.sources.commitProtocolClass",
    "spark.sql.sources.fileCompressionFactor",
    "spark.sql.sources.ignoreDataLocality",
    "spark.sql.sources.outputCommitterClass",
    "spark.sql.sources.parallelPartitionDiscovery.",
    "spark.sql.sources.useListFilesFileSystemList",
    "spark.sql.sources.v2.bucketing.",
    "spark.sql.statistics.",
    "spark.sql.ui.",
    "spark.sql.windowExec.",
)
"""Prefixes of settings that affect how a query is executed but not what it means."""


def decides_rows(setting: str) -> bool:
    """Return whether a setting may affect the meaning of a query and so belongs to the definition."""
    return setting.startswith("spark.sql.") and not setting.startswith(_OF_THE_CLUSTER)


def row_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that may affect the meaning of a query."""
    return {name: value for name, value in conf.items() if decides_rows(name)}


RENDERED = (
    "conf",
    "driver_class_path",
    "env_vars",
    "exclude_packages",
    "files",
    "jars",
    "keytab",
    "packages",
    "principal",
    "properties_file",
    "proxy_user",
    "py_files",
)
"""The settings that Airflow renders as templates."""

_REFERENCE = re.compile(r"\{\{-?\s*(?:var|conn|params)\b")


def asks_airflow(text: str) -> bool:
    """Return whether a text is a template with an Airflow variable, connection or param, which only a task can resolve."""
    return _REFERENCE.search(text) is not None


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Submission settings of the Spark job, named as in ``SparkSubmitOperator``; ``None`` leaves a setting to the connection."""

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
