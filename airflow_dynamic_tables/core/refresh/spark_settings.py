"""How a Spark job is submitted, and who decides which of Spark's settings.

The rule: a setting of Spark SQL is the cluster's when it only says how a query is run, in what memory, with how many tasks, by
which connection. Every other one says what the query means, or may say it in a later release: that is the definition's. When the
definition does not name it, it has Spark's own default in every refresh, whatever the cluster has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

FIXED = {
    # Partition folders hold text; Spark would guess dates and numbers from it.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.sources.partitionOverwriteMode": "static",
    # What Iceberg's readers understand.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.fieldId.write.enabled": "false",
    # Rebalances partitions into as few files as their size allows.
    "spark.sql.adaptive.enabled": "true",
    # A query is what it says: '${env:HOME}' is a text, and parquet.`/path` no table.
    "spark.sql.variable.substitute": "false",
    "spark.sql.runSQLOnFiles": "false",
    # How the definitions read quotes, and what they write between them.
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
}
"""What every refresh sets, because a promise hangs on it; a definition cannot say otherwise."""

TIME_ZONE = "spark.sql.session.timeZone"
"""The setting that is the ``timezone`` of a definition."""


def conf_problem(conf: Mapping[str, str]) -> str | None:
    """What of a configuration nobody may say; ``None`` when all of it may be said."""
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
"""Spark 4's own defaults, said aloud where an environment variable of the cluster or another Spark has others."""

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
"""How the names of settings begin that say how a query is run, and not what it means."""


def decides_rows(setting: str) -> bool:
    """Whether a setting may decide what a query means: it is the definition's, not the cluster's."""
    return setting.startswith("spark.sql.") and not setting.startswith(_OF_THE_CLUSTER)


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
"""The settings whose texts are templates to Airflow."""

_REFERENCE = re.compile(r"\{\{-?\s*(?:var|conn|params)\b")


def asks_airflow(text: str) -> bool:
    """Whether a text is a template with a variable, a connection or a param of Airflow, which only a task can look up."""
    return _REFERENCE.search(text) is not None


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
