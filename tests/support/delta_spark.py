"""Spark with Delta's own library, in a process of its own: the engine that reads and writes beside us."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.downloads import jars
from tests.support.metastore import HiveMetastore
from tests.support.spark import PlainSpark, running_session


def delta_library() -> dict[str, str]:
    """The settings by which Spark has Delta's library: it needs nothing beside Spark's own jars but its storage."""
    return {
        "spark.jars": ",".join(map(str, [*jars("delta-spark-4.2"), *jars("delta-storage")])),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


@contextmanager
def running_delta_spark(metastore: HiveMetastore) -> Iterator[PlainSpark]:
    """Start it on a Hive metastore; it is gone afterwards."""
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": metastore.uri,
        "spark.sql.warehouse.dir": metastore.warehouse,
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        # Tables are small: what is computed per task, or compiled, takes longer than their rows.
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    with running_session({**delta_library(), **settings}) as session:
        yield session
