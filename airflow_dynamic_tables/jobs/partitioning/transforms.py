"""Iceberg's transforms as expressions of Spark: the same value for every row, whatever the settings of the session.

The commit checks every file, so that an expression which was wrong would be refused, and publish no row at a wrong place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own habit
from pyspark.sql import types as T  # noqa: N812

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.partitioning import HiddenKey
from airflow_dynamic_tables.jobs.partitioning.hashing import hash_of_bytes, hash_of_long

_HOUR = 3_600_000_000
"""Microseconds."""

_DAY = 24 * _HOUR


def transformed(key: HiddenKey, kind: T.DataType) -> Column:
    """What a key computes of its column, of that type; null where the column is."""
    column = F.col(quote(key.column))
    if key.transform == "bucket":
        bucket = _hash(quote(key.column), kind).bitwiseAND(F.lit(0x7FFFFFFF)) % F.lit(key.number)
        return F.when(column.isNotNull(), bucket)
    if key.transform == "truncate":
        return _truncated(column, kind, key.number or 1)
    return _TIMES[key.transform](column, kind)


def _days(column: Column, kind: T.DataType) -> Column:
    if isinstance(kind, T.TimestampType):  # a moment: its day is that of UTC, whatever the time zone of the session
        return _whole(F.unix_micros(column), _DAY)
    return F.unix_date(column.cast("date")).cast("bigint")


def _hours(column: Column, kind: T.DataType) -> Column:
    if isinstance(kind, T.TimestampType):
        return _whole(F.unix_micros(column), _HOUR)
    return _days(column, kind) * 24 + F.hour(column)


def _months(column: Column, kind: T.DataType) -> Column:
    return _years(column, kind) * 12 + F.month(_date(column, kind)) - 1


def _years(column: Column, kind: T.DataType) -> Column:
    return (F.year(_date(column, kind)) - 1970).cast("bigint")


def _date(column: Column, kind: T.DataType) -> Column:
    return F.date_from_unix_date(_days(column, kind).cast("int"))


_TIMES: Mapping[str, Callable[[Column, T.DataType], Column]] = {
    "year": _years,
    "month": _months,
    "day": _days,
    "hour": _hours,
}


def _micros(column: Column, kind: T.DataType) -> Column:
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(column)
    within = F.minute(column) * F.lit(60_000_000).cast("bigint") + (F.extract(F.lit("SECOND"), column) * 1_000_000).cast("bigint")
    return _hours(column, kind) * _HOUR + within


def _whole(value: Column, unit: int) -> Column:
    """How many whole units, downwards also before 1970."""
    remainder = F.pmod(value, F.lit(unit).cast("bigint"))
    return F.call_function("div", value - remainder, F.lit(unit).cast("bigint"))


def _hash(name: str, kind: T.DataType) -> Column:
    column = F.col(name)
    match kind:
        case T.StringType() | T.BinaryType():
            return hash_of_bytes(column.cast("binary"))
        case T.DecimalType():
            return hash_of_bytes(_bytes_of(name, kind))
        case T.DateType():
            return hash_of_long(_days(column, kind))
        case T.TimestampType() | T.TimestampNTZType():
            return hash_of_long(_micros(column, kind))
    return hash_of_long(column)


def _bytes_of(name: str, kind: T.DecimalType) -> Column:
    """The two's complement of the digits of a decimal in as few bytes as hold it, the highest first.

    As text, which is one level for Spark Connect: its messages have at most a hundred.
    """
    digits = f"CAST({name} * CAST('{10**kind.scale}' AS DECIMAL({kind.scale + 1}, 0)) AS DECIMAL(38, 0))"
    span = f"CAST('{2**64}' AS DECIMAL(20, 0))"
    low = f"CAST(pmod({digits}, {span}) AS DECIMAL(20, 0))"
    high = f"({digits} div {span}) - if({digits} % {span} < 0, 1, 0)"
    of_low = f"if({low} < CAST('{2**63}' AS DECIMAL(20, 0)), {low}, {low} - {span})"
    bits = f"concat(lpad(hex(CAST({high} AS BIGINT)), 16, '0'), lpad(hex(CAST({of_low} AS BIGINT)), 16, '0'))"
    without_signs = "^(?:(?:00)+(?=[0-7][0-9A-F])|(?:FF)+(?=[89A-F][0-9A-F]))"
    return F.expr(f"unhex(regexp_replace({bits}, '{without_signs}', ''))")


def _truncated(column: Column, kind: T.DataType, width: int) -> Column:
    match kind:
        case T.StringType():
            return F.substring(column, 1, width)
        case T.BinaryType():
            return F.hex(F.substring(column, 1, width))
        case T.DecimalType():
            digits = max(kind.precision, len(_digits(width, kind.scale)))
            wide = column.cast(f"decimal({digits},{kind.scale})")  # the remainder has the type of the smaller one
            return wide - F.pmod(wide, _unit(width, kind.scale))
    return column.cast("bigint") - F.pmod(column.cast("bigint"), F.lit(width).cast("bigint"))


def _unit(width: int, scale: int) -> Column:
    """A width in units of the last digit of a decimal."""
    digits = _digits(width, scale)
    whole = len(digits) - scale
    return F.lit(f"{digits[:whole]}.{digits[whole:]}").cast(f"decimal({len(digits)},{scale})")


def _digits(width: int, scale: int) -> str:
    return str(width).rjust(scale + 1, "0")
