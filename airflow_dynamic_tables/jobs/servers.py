"""Database servers in a job: passwords, JDBC drivers, dates and times as stored, and the table of a sink."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own habit
from pyspark.sql import types as T  # noqa: N812

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.refresh.plan import TimeColumn
from airflow_dynamic_tables.core.sinks import Sink
from airflow_dynamic_tables.jobs.driver import Driver
from airflow_dynamic_tables.jobs.spark_3 import from_ddl, is_spark_3


def password_for(who: str, variable: str | None, driver: Driver) -> str | None:
    """The password in an environment variable; ``None`` without a variable.

    :raises ValueError: when the variable is not set.
    """
    if variable is None:
        return None
    password = driver.password(variable)
    if password is None:
        raise ValueError(
            f"environment variable {variable} with the password of {who} is not set; in cluster mode hand it to the driver, for "
            "example as a Kubernetes secret"
        )
    return password


@contextmanager
def needing(jdbc_driver: str | None, who: str, driver: Driver) -> Iterator[None]:
    """Explain how to add a JDBC driver when the body fails because it is missing."""
    try:
        yield
    except Exception as error:
        if jdbc_driver is None or not re.search(rf"ClassNotFoundException\W+{re.escape(jdbc_driver)}", str(error)):
            raise
        raise ValueError(f"{who} needs the JDBC driver {jdbc_driver}; {driver.how_to_add_jars}") from error


def as_stored(frame: DataFrame, times: Iterable[TimeColumn], who: str) -> DataFrame:
    """The columns of a table, with dates and times exactly as stored by the server.

    Dates are those of the JDBC reader, so that the server evaluates conditions on them, and are checked against their numbers.
    """
    by_name = {time.name: time for time in times}
    numbers = {time.number for time in by_name.values()}
    names = [name for name in frame.columns if name not in numbers]
    for time in by_name.values():
        if time.type == "date":
            frame = frame.where(_is_same(F.col(quote(time.name)), F.col(quote(time.number)), f"{who}: column {time.name}"))
    return frame.select(*(_stored(by_name[name]) if name in by_name else F.col(quote(name)) for name in names))


def _is_same(column: Column, number: Column, who: str) -> Column:
    """Check that a date is the one stored by the server; raises an error in the query when it differs."""
    said = F.concat(
        F.lit(f"{who} has the date "),
        F.date_from_unix_date(number).cast("string"),
        F.lit(", which PostgreSQL's JDBC driver reads as another one; read it from a view that casts the column to text"),
    )
    return number.isNull() | (F.unix_date(column) == number) | F.raise_error(said).cast("boolean")


def _stored(time: TimeColumn) -> Column:
    if time.type == "date":
        return F.col(quote(time.name))
    kind = from_ddl(time.type)
    number = F.col(quote(time.number))
    if isinstance(kind, T.ArrayType):
        element = kind.elementType
        return F.transform(number, lambda value: _value(value, element)).alias(time.name)
    return _value(number, kind).alias(time.name)


def _value(number: Column, kind: T.DataType) -> Column:
    match kind:
        case T.DateType():
            return F.date_from_unix_date(number)
        case T.TimestampNTZType():
            seconds = number.cast("decimal(20,0)") / 1_000_000
            return F.expr("TIMESTAMP_NTZ'1970-01-01 00:00:00'") + seconds.cast("interval second")
    return F.timestamp_micros(number)


_LONGEST_NAME = 63
"""Maximum bytes of a name in PostgreSQL, which truncates longer ones."""

_SCALARS = (
    T.BooleanType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.StringType,
)
"""Types supported for columns and for the elements of arrays."""

_OF_COLUMNS = (*_SCALARS, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType)

_INSTANT = "yyyy-MM-dd HH:mm:ss.SSSSSSxxxxx"
"""The pattern of a time with its UTC offset, which historically may include seconds."""


class ServerTable:
    """The table of a plan's sink, for a job.

    :param who: the refreshed table, for messages.
    :raises ValueError: when the password is not available.
    """

    def __init__(self, spark: SparkSession, sink: Sink, who: str, driver: Driver) -> None:
        self._spark = spark
        self._sink = sink
        self._who = who
        self._driver = driver
        password = password_for(who, sink.password_variable, driver)
        self._login = {
            "driver": sink.driver,
            **({"user": sink.user} if sink.user is not None else {}),
            **({"password": password} if password is not None else {}),
        }

    def create(self, schema: T.StructType) -> None:
        """Create the empty table, replacing one of an earlier attempt.

        :raises ValueError: when the server does not support such columns, or Spark lacks its driver.
        """
        for field in schema.fields:
            _check_column(field)
        nullable = T.StructType([T.StructField(field.name, field.dataType) for field in schema.fields])
        empty = self._spark.createDataFrame([], nullable)
        with needing(self._sink.driver, self._who, self._driver):
            writer = empty.write.option("createTableOptions", self._with_time_zones(schema))
            writer.jdbc(self._sink.url, self._sink.table, "overwrite", self._login)

    def _with_time_zones(self, schema: T.StructType) -> str:
        """What follows the statement that creates the table: Spark 3.5 creates instants without time zone."""
        instants = [field.name.replace('"', '""') for field in schema.fields if isinstance(field.dataType, T.TimestampType)]
        if not instants or not is_spark_3(self._spark.version):
            return ""
        changes = ", ".join(f'ALTER COLUMN "{name}" TYPE timestamp with time zone' for name in instants)
        return f"; ALTER TABLE {self._sink.table} {changes}"

    def fill(self, stored: DataFrame, rows: int) -> int:
        """Copy the rows of the stage's files into the empty table.

        :param rows: the number of rows.
        :return: size of the table in bytes.
        :raises ValueError: when the table has another number of rows afterwards.
        """
        writer = stored.select(*map(_as_sent, stored.schema.fields)).write
        writer = writer.option("batchsize", self._sink.batch_size).option("numPartitions", self._sink.writers)
        # Combine rows into multi-row statements, and convert texts to the types of their columns.
        writer = writer.option("reWriteBatchedInserts", "true").option("stringtype", "unspecified")
        writer.jdbc(self._sink.url, self._sink.table, "append", self._login)
        copied, size = self._ask(f"SELECT count(*) AS copied, {_size_of(self._sink.table)} AS size FROM {self._sink.table}")
        if copied != rows:
            raise ValueError(
                f"{self._sink.table} has {copied} rows, but {rows} were to be copied: Spark ran a task again that had already "
                "written; refresh again, without spark.speculation if that is on"
            )
        return size

    def _ask(self, query: str) -> tuple[int, int]:
        answer = self._spark.read.jdbc(self._sink.url, f"({query}) AS answer", properties=self._login)
        first, second = answer.collect()[0]
        return int(first), int(second)


def _size_of(table: str) -> str:
    text = table.replace("'", "''")
    return f"pg_total_relation_size('{text}'::regclass)"


def _check_column(field: T.StructField) -> None:
    kind = field.dataType
    if (length := len(field.name.encode())) > _LONGEST_NAME:
        raise ValueError(
            f"the name of column {field.name!r} has {length} bytes, of which PostgreSQL keeps {_LONGEST_NAME}; give it a shorter "
            "one in the query"
        )
    is_array = isinstance(kind, T.ArrayType)
    element = kind.elementType if isinstance(kind, T.ArrayType) else kind
    if not isinstance(element, _SCALARS if is_array else _OF_COLUMNS):
        todo = "write it as text with to_json" if isinstance(kind, T.MapType | T.StructType | T.ArrayType) else "cast it"
        raise ValueError(
            f"column {field.name!r} has type {kind.simpleString()}, which Spark cannot write into PostgreSQL; {todo} in the query"
        )


def _as_sent(field: T.StructField) -> Column:
    """A column in the form sent to the server.

    Dates and times are sent as text. The driver would use Java's classes, which have the Julian calendar before 1582 and the time
    zone of the machine: an hour that its DST skips would become another one.
    """
    column = F.col(quote(field.name))
    if isinstance(field.dataType, T.DateType | T.TimestampNTZType):
        return column.cast("string").alias(field.name)
    return F.date_format(column, _INSTANT).alias(field.name) if isinstance(field.dataType, T.TimestampType) else column
