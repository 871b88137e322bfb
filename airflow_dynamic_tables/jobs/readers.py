"""Binding of sources: every table that the query reads becomes a temporary view of one version of it."""

from __future__ import annotations

from functools import reduce

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own habit
from pyspark.sql.types import StringType, StructField, StructType

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.partitions import NULL_PARTITION
from airflow_dynamic_tables.core.refresh.plan import SourceBinding, SourcePart
from airflow_dynamic_tables.jobs.driver import Driver
from airflow_dynamic_tables.jobs.files import exactly
from airflow_dynamic_tables.jobs.messages import message, refused
from airflow_dynamic_tables.jobs.servers import as_stored, needing, password_for
from airflow_dynamic_tables.jobs.spark_3 import from_ddl, metadata_column

_BY_NAME = ("parquet", "orc")


def bind(spark: SparkSession, source: SourceBinding, driver: Driver) -> None:
    """Register the view that the plan's query reads."""
    frame = frame_of(spark, source, driver)
    if source.event_time is not None and source.event_time.deduplicate:
        frame = frame.dropDuplicates(list(source.event_time.deduplicate))
    frame.createOrReplaceTempView(source.view)


def frame_of(spark: SparkSession, source: SourceBinding, driver: Driver) -> DataFrame:
    """The rows of one version of a table.

    :raises ValueError: when they cannot be read, or Spark would read other files.
    """
    if source.table is not None and source.format not in _BY_NAME:  # SQL finds no location: that would be SQL on files
        return spark.read.format(source.format).option("versionAsOf", source.version).load(source.table)
    if source.table is not None:
        return spark.sql(f"SELECT * FROM {source.table} VERSION AS OF {source.version}")
    if not source.has_files:
        return _of_server(spark, source, driver)
    try:
        schema = schema_of(source)
    except ParseException as error:
        raise ValueError(f"source {source.identifier}: {refused(spark.version, message(error))}") from error
    if source.parts:
        return reduce(DataFrame.union, (_part(spark, source, part, driver) for part in source.reads))
    if not source.files:
        if schema is None:
            raise ValueError(f"source {source.identifier} has neither files nor a schema")
        return spark.createDataFrame([], schema)
    frame = _files(spark, source, schema, source.reads[0])
    _check_files(frame, source, len(source.files), driver)
    return frame


def check_spelling(spark: SparkSession, source: SourceBinding) -> None:
    """Check that the files of a source spell its columns as its schema does; Spark would read others as nulls.

    Only for a case-sensitive session.

    :raises ValueError: names a column that differs.
    """
    schema = schema_of(source)
    if schema is None or source.format not in _BY_NAME:
        return
    wanted = {name.lower(): name for name in schema.names}
    for part in source.reads:
        reader = _reader(spark, source, part).option("mergeSchema", "true")
        for name in reader.load([exactly(file) for file in part.files]).columns if part.files else ():
            if name not in schema.names and name.lower() in wanted:
                raise ValueError(
                    f"the files of {source.identifier} have a column {name!r}, which is {wanted[name.lower()]!r} in its schema; "
                    "with spark.sql.caseSensitive: true these are two"
                )


def _files(spark: SparkSession, source: SourceBinding, schema: StructType | None, part: SourcePart) -> DataFrame:
    reader = _reader(spark, source, part)
    if schema is not None:
        reader = reader.schema(schema)
    return reader.load([exactly(file) for file in part.files])


def _reader(spark: SparkSession, source: SourceBinding, part: SourcePart) -> DataFrameReader:
    reader = spark.read.format(source.format).options(**source.options).option("ignoreMissingFiles", "false")
    return reader.option("basePath", part.base_path) if part.base_path is not None else reader


def _check_files(frame: DataFrame, source: SourceBinding, expected: int, driver: Driver) -> None:
    found = driver.count_files(frame)
    if found != expected:
        raise ValueError(f"Spark would read {found} files of source {source.identifier}, which has {expected}; nothing was read")


def _part(spark: SparkSession, source: SourceBinding, part: SourcePart, driver: Driver) -> DataFrame:
    schema = schema_of(source)
    if schema is None:
        raise ValueError(f"source {source.identifier} has parts and no schema")
    in_files = StructType([field for field in schema.fields if field.name not in part.values])
    frame = _files(spark, source, in_files, part)
    _check_files(frame, source, len(part.files), driver)
    if part.deleted:
        frame = frame.where(~metadata_column(frame, "_metadata")["row_index"].isin(list(part.deleted)))
    columns = (
        _value(part.values[field.name]).cast(field.dataType).alias(field.name)
        if field.name in part.values
        else F.col(quote(field.name))
        for field in schema.fields
    )
    return frame.select(*columns)


def _value(text: str) -> Column:
    return F.lit(None if text == NULL_PARTITION else text)


def _of_server(spark: SparkSession, source: SourceBinding, driver: Driver) -> DataFrame:
    options = dict(source.options)
    if (password := password_of(source, driver)) is not None:
        options["password"] = password
    with needing(options.get("driver"), f"source {source.identifier}", driver):
        frame = spark.read.format(source.format).options(**options).load()
        _ = frame.schema  # a Spark Connect server only loads the driver when the schema is requested
    return as_stored(frame, source.times, f"source {source.identifier}")


def password_of(source: SourceBinding, driver: Driver) -> str | None:
    """See :func:`~airflow_dynamic_tables.jobs.servers.password_for`."""
    return password_for(f"source {source.identifier}", source.password_variable, driver)


def schema_of(source: SourceBinding) -> StructType | None:
    """The declared schema; undeclared partition keys are strings."""
    if source.schema is None:
        return None
    declared = from_ddl(source.schema)
    fields = declared.fields if isinstance(declared, StructType) else []
    names = [field.name for field in fields]
    return StructType([*fields, *(StructField(key, StringType()) for key in source.partition_keys if key not in names)])
