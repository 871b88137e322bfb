"""Writing the rows of a refresh to files of its stage, in folders by partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count, islice

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own habit
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.types import NumericType, StringType

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.partition_transforms import HiddenKey, hidden_key, source_column
from airflow_dynamic_tables.core.partitions import NULL_PARTITION
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.jobs.spark_3 import rebalanced


def write(frame: DataFrame, plan: RefreshPlan) -> None:
    """Write one file for a small partition, several for a large one: AQE rebalances by the partition keys.

    If the files contain the keys, folders are named by copies of them, or by transforms of their columns. Files that are copied
    into a server have no folders.
    """
    if plan.sink is not None:
        frame.write.mode("overwrite").format(plan.file_format).save(plan.data_location)
        return
    folders = list(plan.partition_keys)
    if plan.keys_in_files:
        taken = {name.lower() for name in frame.columns}
        folders = list(islice((name for name in map("_partition_{}".format, count()) if name not in taken), len(folders)))
        for folder, key in zip(folders, plan.partition_keys, strict=True):
            frame = frame.withColumn(folder, _folder(frame, key))
    balanced = rebalanced(frame, [F.col(quote(folder)) for folder in folders])
    balanced.write.mode("overwrite").partitionBy(*folders).format(plan.file_format).save(plan.data_location)


def _folder(frame: DataFrame, name: str) -> Column:
    """The folder name of a partition: the key, prefixed for texts that Spark would put in the folder of nulls."""
    hidden = hidden_key(name)
    kind = frame.schema[source_column(name)].dataType
    key = F.col(quote(name)) if hidden is None else transformed(hidden, kind)
    is_text = (
        isinstance(kind, StringType) if hidden is None else hidden.transform == "truncate" and not isinstance(kind, NumericType)
    )
    if not is_text:
        return key
    is_alike = key.isin("", NULL_PARTITION) | key.startswith("=")
    return F.when(is_alike, F.concat(F.lit("="), key)).otherwise(key)


_HASHED_TO_ZERO = -1693959553
"""The int whose hash in Spark is 0."""

_MASK = 0xFFFFFFFF


def _hash_of_long(value: Column) -> Column:
    """The hash of eight bytes, as an unsigned 32-bit number in a bigint; not null for null."""
    return _unsigned(F.hash(F.lit(_HASHED_TO_ZERO), value.cast("bigint")))


def _hash_of_bytes(value: Column) -> Column:
    """The hash of any number of bytes, as an unsigned 32-bit number in a bigint; not null for null."""
    length = F.octet_length(value)
    whole = length - length % 4
    of_whole = _unsigned(F.hash(F.lit(_HASHED_TO_ZERO), F.substr(value, F.lit(1), whole)))
    rest = F.rpad(F.hex(F.substr(value, whole + 1, F.lit(3))), 6, "0")
    in_order = F.concat(F.substring(rest, 5, 2), F.substring(rest, 3, 2), F.substring(rest, 1, 2))
    mixed = _let(F.conv(in_order, 16, 10).cast("bigint"), _mixed_in)
    before = _let(_before_end(of_whole), lambda hashed: hashed.bitwiseXOR(whole.cast("bigint")))
    with_rest = _at_end(before.bitwiseXOR(mixed).bitwiseXOR(length.cast("bigint")))
    return F.when(length == whole, of_whole).otherwise(with_rest)


def _mixed_in(rest: Column) -> Column:
    """The mix of the last one to three bytes."""
    turned = _let(_times(rest, 0xCC9E2D51), lambda value: _low(F.shiftleft(value, 15)).bitwiseOR(F.shiftright(value, 17)))
    return _let(turned, lambda value: _times(value, 0x1B873593))


def _at_end(value: Column) -> Column:
    """Murmur's finalizer, in which every bit affects all others."""
    first = _let(_let(value, lambda one: _folded(one, 16)), lambda one: _times(one, 0x85EBCA6B))
    second = _let(_let(first, lambda one: _folded(one, 13)), lambda one: _times(one, 0xC2B2AE35))
    return _let(second, lambda one: _folded(one, 16))


def _before_end(value: Column) -> Column:
    """The inverse of Murmur's finalizer, with the inverse of each factor."""
    second = _let(_let(value, lambda one: _folded(one, 16)), lambda one: _times(one, 0x7ED1B41D))
    first = _let(_let(second, lambda one: _folded(one, 13, 26)), lambda one: _times(one, 0xA5CB9243))
    return _let(first, lambda one: _folded(one, 16))


def _folded(value: Column, *shifts: int) -> Column:
    for shifted in [F.shiftright(value, shift) for shift in shifts]:
        value = value.bitwiseXOR(shifted)
    return value


def _times(value: Column, factor: int) -> Column:
    """The low 32 bits of a product, computed in two parts because the full product of 64 bits overflows a bigint."""
    high = F.shiftleft((value * F.lit(factor >> 16)).bitwiseAND(F.lit(0xFFFF)), 16)
    return _low(value * F.lit(factor & 0xFFFF) + high)


def _low(value: Column) -> Column:
    return value.bitwiseAND(F.lit(_MASK))


def _unsigned(value: Column) -> Column:
    return _low(value.cast("bigint"))


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """Bind a value that an expression uses several times, so that it is computed once."""
    return F.transform(F.array(value), body)[0]


_HOUR = 3_600_000_000
"""Microseconds."""

_DAY = 24 * _HOUR


def transformed(key: HiddenKey, kind: T.DataType) -> Column:
    """The transform of a key's column of a type; null for null."""
    column = F.col(quote(key.column))
    if key.transform == "bucket":
        bucket = _hash(quote(key.column), kind).bitwiseAND(F.lit(0x7FFFFFFF)) % F.lit(key.number)
        return F.when(column.isNotNull(), bucket)
    if key.transform == "truncate":
        return _truncated(column, kind, key.number or 1)
    return _TIMES[key.transform](column, kind)


def _days(column: Column, kind: T.DataType) -> Column:
    if isinstance(kind, T.TimestampType):  # the day in UTC, independent of the session's time zone
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
    """The number of complete units, rounded down also before 1970."""
    remainder = F.pmod(value, F.lit(unit).cast("bigint"))
    return F.call_function("div", value - remainder, F.lit(unit).cast("bigint"))


def _hash(name: str, kind: T.DataType) -> Column:
    column = F.col(name)
    match kind:
        case T.StringType() | T.BinaryType():
            return _hash_of_bytes(column.cast("binary"))
        case T.DecimalType():
            return _hash_of_bytes(_bytes_of(name, kind))
        case T.DateType():
            return _hash_of_long(_days(column, kind))
        case T.TimestampType() | T.TimestampNTZType():
            return _hash_of_long(_micros(column, kind))
    return _hash_of_long(column)


def _bytes_of(name: str, kind: T.DecimalType) -> Column:
    """The minimal big-endian two's complement of a decimal's unscaled value.

    As SQL text, which is a single level in Spark Connect, whose messages have at most a hundred.
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
            wide = column.cast(f"decimal({digits},{kind.scale})")  # otherwise the remainder would have the smaller type
            return wide - F.pmod(wide, _unit(width, kind.scale))
    return column.cast("bigint") - F.pmod(column.cast("bigint"), F.lit(width).cast("bigint"))


def _unit(width: int, scale: int) -> Column:
    """A width in units of a decimal's last digit."""
    digits = _digits(width, scale)
    whole = len(digits) - scale
    return F.lit(f"{digits[:whole]}.{digits[whole:]}").cast(f"decimal({len(digits)},{scale})")


def _digits(width: int, scale: int) -> str:
    return str(width).rjust(scale + 1, "0")
