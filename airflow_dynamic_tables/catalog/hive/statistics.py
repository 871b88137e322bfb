"""Conversion of column statistics to and from a Hive metastore, by column type.

Hive requires the numbers of nulls and of distinct values (-1 is unknown) and has no minimum and maximum of strings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from hive_metastore import ttypes
from hive_metastore.ttypes import ColumnStatisticsData, Table

from airflow_dynamic_tables.catalog.hive.encoding import set_statistics, statistics_of
from airflow_dynamic_tables.catalog.hive.partitions import HivePartitions
from airflow_dynamic_tables.catalog.hive.session import Session
from airflow_dynamic_tables.catalog.hive.tables import HiveTables
from airflow_dynamic_tables.catalog.values import ColumnStatistics, TableStatistics
from airflow_dynamic_tables.clients.metastore.tables import PREFIX, joined_parameter, split_parameter
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import PartitionSpec
from airflow_dynamic_tables.exceptions import NotFoundError

_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A field of Thrift's union ``ColumnStatisticsData``, and converters of its minimum and maximum to and from strings."""

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
    """Return the statistics of a column of that type; ``None`` when Hive cannot represent them."""
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
    """Return the statistics that Hive stores for a column."""
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


_COLUMN_STATISTICS = f"{PREFIX}column-statistics"


@dataclass(frozen=True, slots=True)
class HiveStatistics:
    """Statistics of tables, partitions and columns.

    Values that Hive cannot represent are stored in a parameter, and are valid until Hive's statistics change.
    """

    session: Session
    tables: HiveTables
    partitions: HivePartitions

    def of_table(self, path: ObjectPath, spec: PartitionSpec | None = None) -> TableStatistics:
        """Return the size of a table or of one of its partitions."""
        table = self.tables.load(path)
        return statistics_of(table.parameters or {}) if spec is None else self.partitions.get(path, spec).statistics

    def of_columns(self, path: ObjectPath) -> dict[str, ColumnStatistics]:
        """Return statistics by column name."""
        table = self.tables.load(path)
        ours = json.loads(joined_parameter(table.parameters or {}, _COLUMN_STATISTICS) or "{}")
        names = {column.name.lower(): column.name for column in self.tables.value(table).columns}
        request = ttypes.TableStatsRequest(path.database, path.name, list(names), engine="hive")
        answer = self.session.call("get_table_statistics_req", request).tableStats if names else ()
        known = {names[one.colName]: from_hive_statistics(one.statsData) for one in answer}
        for name, value in ours.items():
            statistics = ColumnStatistics(**value)
            if known.get(name) in (None, _as_hive_says(table, name, statistics)):
                known[name] = statistics
        return known

    def alter_table(self, path: ObjectPath, statistics: TableStatistics, spec: PartitionSpec | None = None) -> None:
        """Replace the size of a table or of one of its partitions."""
        if spec is None:
            self.tables.change_stored(path, lambda stored: set_statistics(stored.parameters, statistics))
        else:
            self.tables.load(path)
            self.partitions.alter(path, replace(self.partitions.get(path, spec), statistics=statistics))

    def alter_columns(self, path: ObjectPath, statistics: Mapping[str, ColumnStatistics]) -> None:
        """Replace the statistics of all columns."""
        before = self.of_columns(path)
        text = json.dumps({name: asdict(value) for name, value in statistics.items()})

        def keep_ours(stored: Table) -> None:
            others = {key: value for key, value in stored.parameters.items() if not key.startswith(_COLUMN_STATISTICS)}
            stored.parameters = {**others, **split_parameter(_COLUMN_STATISTICS, text)}

        self.tables.change_stored(path, keep_ours)
        types = _types(self.tables.load(path))
        for name in before:  # keep statistics of columns that the new value does not mention
            if name.lower() in types:
                self._forget(path, name.lower())
        self._tell_hive(path, types, statistics)

    def _tell_hive(self, path: ObjectPath, types: Mapping[str, str], statistics: Mapping[str, ColumnStatistics]) -> None:
        """Write the statistics that Hive can represent."""
        data = {name.lower(): to_hive_statistics(types.get(name.lower(), ""), value) for name, value in statistics.items()}
        objects = [ttypes.ColumnStatisticsObj(name, types[name], value) for name, value in data.items() if value is not None]
        if objects:
            about = ttypes.ColumnStatisticsDesc(isTblLevel=True, dbName=path.database, tableName=path.name)
            self.session.call("update_table_column_statistics", ttypes.ColumnStatistics(about, objects, engine="hive"))

    def _forget(self, path: ObjectPath, column: str) -> None:
        try:
            self.session.call("delete_table_column_statistics", path.database, path.name, column, "hive")
        except NotFoundError:
            return  # Hive had none


def _types(table: Table) -> dict[str, str]:
    return {field.name: field.type for field in table.sd.cols or ()}


def _as_hive_says(table: Table, name: str, statistics: ColumnStatistics) -> ColumnStatistics | None:
    """Return these statistics as Hive returns them."""
    data = to_hive_statistics(_types(table).get(name.lower(), ""), statistics)
    return from_hive_statistics(data) if data is not None else None
