"""Conversion of column statistics of a Hive metastore."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from hive_metastore.ttypes import ColumnStatisticsData

from airflow_dynamic_tables.catalog.values import ColumnStatistics

_TEXTS: Mapping[str, Callable[[Any], str]] = {
    "longStats": str,
    "doubleStats": str,
    "decimalStats": lambda value: str(Decimal(int.from_bytes(value.unscaled, "big", signed=True)).scaleb(-value.scale)),
    "dateStats": lambda value: str(date(1970, 1, 1) + timedelta(days=value.daysSinceEpoch)),
}
"""Conversion of minimum and maximum to text, by field of Thrift's union; other fields have none."""


def column_statistics_of(data: ColumnStatisticsData) -> ColumnStatistics:
    """Return the statistics that Hive stores for a column; -1 is an unknown number."""
    field, stored = next((name, value) for name, value in vars(data).items() if value is not None)

    def count(name: str) -> int | None:
        number: int | None = getattr(stored, name, None)
        return None if number == -1 else number

    def bound(name: str) -> str | None:
        value = getattr(stored, name, None)
        return None if value is None or field not in _TEXTS else _TEXTS[field](value)

    return ColumnStatistics(count("numNulls"), count("numDVs"), bound("lowValue"), bound("highValue"))
