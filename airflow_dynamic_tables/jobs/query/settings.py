"""Settings: those that decide what a query means are the same on every cluster, unless the definition says otherwise."""

from __future__ import annotations

from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.spark_settings import DEFAULTS, FIXED, TIME_ZONE, decides_rows


def settle_settings(spark: SparkSession, plan: RefreshPlan) -> dict[str, str]:
    """Give every setting that decides rows its one value.

    :return: what the cluster had set and the definition did not ask for, so that it is not used.
    """
    ours = {**DEFAULTS, **FIXED, TIME_ZONE: plan.timezone}
    unasked = {
        name: value
        for name, value in spark.conf.getAll.items()
        if decides_rows(name) and name not in plan.settings and _is_of_spark(spark, name)
    }
    for name in unasked.keys() - ours.keys():
        spark.conf.unset(name)
    for name, value in ours.items():
        is_asked = name in plan.settings and name in DEFAULTS
        # Spark warns of some as soon as they are set.
        if not is_asked and not (spark.conf.isModifiable(name) and spark.conf.get(name) == value):
            spark.conf.set(name, value)
    return {name: value for name, value in unasked.items() if ours.get(name) != value}


def _is_of_spark(spark: SparkSession, name: str) -> bool:
    """Whether Spark itself has a setting, and it can be changed in a session; others are of what is built into the cluster."""
    # Under spark.sql.legacy. are the earlier names of many, which Spark still reads and does not list.
    return spark.conf.isModifiable(name) or name.startswith("spark.sql.legacy.")
