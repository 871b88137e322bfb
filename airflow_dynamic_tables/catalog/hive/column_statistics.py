"""Column statistics as a Hive metastore keeps them, by type of column, and back.

Hive demands the numbers of nulls and of distinct values (-1 is unknown) and has no least and greatest text.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from hive_metastore import ttypes
from hive_metastore.ttypes import ColumnStatisticsData

from airflow_dynamic_tables.catalog.values import ColumnStatistics

_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A field of Thrift's union ``ColumnStatisticsData``, and its least and greatest value from and to text."""

    field: str
    data: Callable[..., Any]
    from_text: Callable[[str], Any]
    to_text: Callable[[Any], str]


def _decimal(text: str) -> ttypes.Decimal:
    sign, digits, exponent = Decimal(text).as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{text} is no number")
    unscaled = (-1 if sign else 1) * int("".join(map(str, digits))) * 10 ** max(exponent, 0)
    size = unscaled.bit_length() // 8 + 1
    return ttypes.Decimal(scale=max(-exponent, 0), unscaled=unscaled.to_bytes(size, "big", signed=True))


def _decimal_text(value: ttypes.Decimal) -> str:
    return str(Decimal(int.from_bytes(value.unscaled, "big", signed=True)).scaleb(-value.scale))


_LONG = _Kind("longStats", ttypes.LongColumnStatsData, int, str)
_DOUBLE = _Kind("doubleStats", ttypes.DoubleColumnStatsData, float, str)
_KINDS = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), _LONG),
    **dict.fromkeys(("float", "double"), _DOUBLE),
    "decimal": _Kind("decimalStats", ttypes.DecimalColumnStatsData, _decimal, _decimal_text),
    "date": _Kind(
        "dateStats",
        ttypes.DateColumnStatsData,
        lambda text: ttypes.Date((date.fromisoformat(text) - _EPOCH).days),
        lambda value: str(_EPOCH + timedelta(days=value.daysSinceEpoch)),
    ),
}
_BY_FIELD = {kind.field: kind for kind in _KINDS.values()}
_TEXT = ("string", "varchar", "char")


def to_hive_statistics(hive_type: str, statistics: ColumnStatistics) -> ColumnStatisticsData | None:
    """Statistics of a column of that type; ``None`` when Hive has no place for such ones."""
    name = hive_type.partition("(")[0]
    counts = {
        "numNulls": -1 if statistics.nulls is None else statistics.nulls,
        "numDVs": -1 if statistics.distinct is None else statistics.distinct,
    }
    if name in _TEXT:
        return ColumnStatisticsData(stringStats=ttypes.StringColumnStatsData(maxColLen=0, avgColLen=0.0, **counts))
    kind = _KINDS.get(name)
    if kind is None:
        return None
    with suppress(ValueError, ArithmeticError):
        least = None if statistics.minimum is None else kind.from_text(statistics.minimum)
        greatest = None if statistics.maximum is None else kind.from_text(statistics.maximum)
        return ColumnStatisticsData(**{kind.field: kind.data(lowValue=least, highValue=greatest, **counts)})
    return None


def from_hive_statistics(data: ColumnStatisticsData) -> ColumnStatistics:
    """What Hive knows of a column."""
    field, stored = next((name, value) for name, value in vars(data).items() if value is not None)
    kind = _BY_FIELD.get(field)
    distinct = getattr(stored, "numDVs", None)
    least = getattr(stored, "lowValue", None)
    greatest = getattr(stored, "highValue", None)
    return ColumnStatistics(
        nulls=None if stored.numNulls in (None, -1) else stored.numNulls,
        distinct=None if distinct in (None, -1) else distinct,
        minimum=None if kind is None or least is None else kind.to_text(least),
        maximum=None if kind is None or greatest is None else kind.to_text(greatest),
    )
