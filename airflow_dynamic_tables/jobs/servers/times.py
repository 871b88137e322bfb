"""Dates and times of a server, made of numbers: what Java's classes make of them depends on the time zone of its process."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own habit
from pyspark.sql import types as T  # noqa: N812

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.refresh.plan import TimeColumn


def as_stored(frame: DataFrame, times: Iterable[TimeColumn], who: str) -> DataFrame:
    """The columns of a table with the dates and times that the server has.

    Dates are what the reader made of them, so that the server evaluates conditions on them, and are compared with their numbers.

    :param who: the table, for messages.
    """
    by_name = {time.name: time for time in times}
    numbers = {time.number for time in by_name.values()}
    names = [name for name in frame.columns if name not in numbers]
    for time in by_name.values():
        if time.type == "date":
            frame = frame.where(_is_same(F.col(quote(time.name)), F.col(quote(time.number)), f"{who}: column {time.name}"))
    return frame.select(*(_stored(by_name[name]) if name in by_name else F.col(quote(name)) for name in names))


def _is_same(column: Column, number: Column, who: str) -> Column:
    """Whether a date is the one that the server has; an error when it is another one."""
    said = F.concat(
        F.lit(f"{who} has the date "),
        F.date_from_unix_date(number).cast("string"),
        F.lit(", which PostgreSQL's JDBC driver reads as another one; read it from a view that casts the column to text"),
    )
    return number.isNull() | (F.unix_date(column) == number) | F.raise_error(said).cast("boolean")


def _stored(time: TimeColumn) -> Column:
    if time.type == "date":
        return F.col(quote(time.name))
    kind = T.DataType.fromDDL(time.type)
    number = F.col(quote(time.number))
    if isinstance(kind, T.ArrayType):
        element = kind.elementType
        return F.transform(number, lambda value: _value(value, element)).alias(time.name)
    return _value(number, kind).alias(time.name)


def _value(number: Column, kind: T.DataType) -> Column:
    """A date or time of the days or microseconds since 1970."""
    match kind:
        case T.DateType():
            return F.date_from_unix_date(number)
        case T.TimestampNTZType():
            return F.timestamp_add("MICROSECOND", number, F.expr("TIMESTAMP_NTZ'1970-01-01 00:00:00'"))
    return F.timestamp_micros(number)
