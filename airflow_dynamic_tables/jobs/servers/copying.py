"""Copying: the data files of a stage become rows of a table of a PostgreSQL server.

Spark's JDBC writer may insert rows twice: a task that has committed and is run once more, because its executor died or somebody
speculated, does so without a word. So the query's rows are files first, which Spark writes exactly once and which can be counted,
and then the server is asked whether it has as many.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own habit
from pyspark.sql import types as T  # noqa: N812

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.sinks.sink import Sink
from airflow_dynamic_tables.jobs.drivers.base import Driver
from airflow_dynamic_tables.jobs.servers.login import needing, password_for

_LONGEST_NAME = 63
"""Bytes of a name that PostgreSQL keeps; it cuts off the others."""

_SCALARS = (
    T.BooleanType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.StringType,
)
"""Types that a column and the elements of an array can have."""

_OF_COLUMNS = (*_SCALARS, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType)

_INSTANT = "yyyy-MM-dd HH:mm:ss.SSSSSSxxxxx"
"""The pattern of a time with its distance from UTC, which once had seconds."""


class ServerTable:
    """The table of a plan's sink, for a job.

    :param who: the table that is refreshed, for messages.
    :raises ValueError: when the password is not there.
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
        """Make the table without a row, in place of one that an earlier try left.

        :raises ValueError: when the server cannot have such columns, or Spark lacks its driver.
        """
        for field in schema.fields:
            _check_column(field)
        nullable = T.StructType([T.StructField(field.name, field.dataType) for field in schema.fields])
        empty = self._spark.createDataFrame([], nullable)
        with needing(self._sink.driver, self._who, self._driver):
            empty.write.jdbc(self._sink.url, self._sink.table, "overwrite", self._login)

    def fill(self, stored: DataFrame, rows: int) -> int:
        """Copy the rows of a stage's files into the empty table.

        :param rows: how many there are.
        :return: bytes that they take there.
        :raises ValueError: when the server has more afterwards.
        """
        writer = stored.select(*map(_as_sent, stored.schema.fields)).write
        writer = writer.option("batchsize", self._sink.batch_size).option("numPartitions", self._sink.writers)
        # One statement for many rows; and a text becomes whatever type its column has.
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
    """SQL for the bytes of a table."""
    text = table.replace("'", "''")
    return f"pg_total_relation_size('{text}'::regclass)"


def _check_column(field: T.StructField) -> None:
    """Check that the server has a name and a type for a column.

    :raises ValueError: says what to do in the query.
    """
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
    """A column as it goes over the wire.

    Dates and times go as texts. Java's classes of them, which the driver has otherwise, have Caesar's calendar before 1582, and
    the time zone of the machine: where a clock was put forward, an hour would become another.
    """
    column = F.col(quote(field.name))
    if isinstance(field.dataType, T.DateType | T.TimestampNTZType):
        return column.cast("string").alias(field.name)
    return F.date_format(column, _INSTANT).alias(field.name) if isinstance(field.dataType, T.TimestampType) else column
