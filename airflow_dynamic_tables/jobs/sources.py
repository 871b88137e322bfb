"""Binding: every table the query reads becomes a temporary view of one fixed version of it."""

from __future__ import annotations

import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from airflow_dynamic_tables.core.plan import SourceBinding


def bind(spark: SparkSession, source: SourceBinding) -> None:
    """Register the view that the plan's query reads."""
    _frame(spark, source).createOrReplaceTempView(source.view)


def _frame(spark: SparkSession, source: SourceBinding) -> DataFrame:
    if source.table is not None:
        return spark.sql(f"SELECT * FROM {source.table} VERSION AS OF {source.version}")
    if source.format == "jdbc":
        return _jdbc(spark, source)
    schema = _schema(source)
    if not source.files:
        if schema is None:
            raise ValueError(f"source {source.identifier} has neither files nor a schema")
        return spark.createDataFrame([], schema)
    reader = spark.read.format("parquet" if source.format == "iceberg" else source.format).options(**source.options)
    # The files are names, not patterns: a partition value may hold brackets. And all of them are wanted.
    reader = reader.option("__globPaths__", "false").option("ignoreMissingFiles", "false")
    if source.base_path is not None:
        reader = reader.option("basePath", source.base_path)
    if schema is not None:
        reader = reader.schema(schema)
    return reader.load(list(source.files))


def _jdbc(spark: SparkSession, source: SourceBinding) -> DataFrame:
    options = dict(source.options)
    if source.password_variable is not None:
        if source.password_variable not in os.environ:
            raise ValueError(
                f"environment variable {source.password_variable} with the password of source {source.identifier} is not set; "
                "in cluster mode hand it to the driver, for example as a Kubernetes secret"
            )
        options["password"] = os.environ[source.password_variable]
    try:
        return spark.read.format("jdbc").options(**options).load()
    except Exception as error:
        if f"ClassNotFoundException: {options['driver']}" not in str(error):
            raise
        raise ValueError(
            f"source {source.identifier} needs the JDBC driver {options['driver']}; name its jar in the definition, for example "
            "spark: {packages: 'org.postgresql:postgresql:42.7.7'}"
        ) from error


def _schema(source: SourceBinding) -> StructType | None:
    """The declared schema; partition keys that it leaves out are strings."""
    if source.schema is None:
        return None
    declared = StructType.fromDDL(source.schema)
    fields = declared.fields if isinstance(declared, StructType) else []
    names = [field.name for field in fields]
    return StructType([*fields, *(StructField(key, StringType()) for key in source.partition_keys if key not in names)])
