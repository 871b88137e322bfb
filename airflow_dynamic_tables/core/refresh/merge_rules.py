"""Merge rules: how the result of a query follows from its former result and the new rows of one source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.schema import Column

_NUMBER = "dynamic-tables.number"
"""Name of a column of the merge statement. No column of a table can have it."""

_EXACT = {"string", "tinyint", "smallint", "int", "bigint", "date", "boolean", "timestamp", "timestamp_ntz", "binary"}
"""Types whose values are equal in a table if they are equal in a query. Floating-point numbers have several zeros."""

_FLOATS = ("float", "double")

_LARGEST_DECIMAL = (21, 9)
"""Maximum precision and scale of decimals whose average is computed from its parts as Spark computes it.

Then no step of the computation exceeds 38 digits, with at least 12 for the number of rows.
"""


class MergeKind(StrEnum):
    """How new rows are merged."""

    APPEND = "APPEND"
    """They are added."""
    GROUPS = "GROUPS"
    """Groups with the same keys become one."""
    NEWEST = "NEWEST"
    """The first row of each key, in some order, remains."""


@dataclass(frozen=True, slots=True)
class Average:
    """A column with an average, and those with the sum and the count of the same values, by their names in lower case.

    The values have the ``type``, if it is known.
    """

    name: str
    sum: str
    count: str
    type: str | None = None


@dataclass(frozen=True, slots=True)
class MergeRule:
    """How the result of a query for more rows of one source follows from its former result and that for the new rows alone.

    For the latter, the sources ``empty`` are read as empty; their names are in lower case. The others are columns of the result,
    in lower case: ``keys``, ``measures`` with the aggregate function that merges them, ``averages`` that follow from two of the
    measures, and the ``order`` of the rows of a key, with directions as SQL.
    """

    kind: MergeKind
    empty: frozenset[str] = frozenset()
    keys: tuple[str, ...] = ()
    measures: tuple[tuple[str, str], ...] = ()
    order: tuple[tuple[str, str], ...] = ()
    averages: tuple[Average, ...] = ()

    def statement(self, columns: Sequence[Column], former: str, new: str, *, is_tolerant: bool = False) -> str:
        """Return the query for the merged rows; empty if the new rows are only added.

        :param columns: those of the table.
        :param former: the view of the rows that the table has.
        :param new: the view of the rows of the query for the new rows of the source.
        :param is_tolerant: whether sums and averages of floating-point numbers may depend on the order of the rows.
        :raises ValueError: if the table has other columns, or values of a type that cannot be merged exactly.
        """
        types = {column.name.lower(): column for column in columns}
        used = {*self.keys, *(name for name, _ in (*self.measures, *self.order)), *(average.name for average in self.averages)}
        if unknown := sorted(used - types.keys()):
            raise ValueError(f"the table has no column {unknown[0]}")
        for name in self.keys:
            if not _is_exact(types[name].type):
                raise ValueError(f"key {name} has the type {types[name].type}")
        if self.kind is MergeKind.APPEND:
            return ""
        names = ", ".join(quote(column.name) for column in columns)
        rows = f"(SELECT {names} FROM {quote(former)} UNION ALL SELECT {names} FROM {quote(new)})"
        if self.kind is MergeKind.NEWEST:
            keys = ", ".join(quote(types[name].name) for name in self.keys)
            order = ", ".join(f"{quote(types[name].name)} {direction}" for name, direction in self.order)
            numbered = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY {order}) AS {quote(_NUMBER)} FROM {rows}"
            return f"SELECT {names} FROM ({numbered}) WHERE {quote(_NUMBER)} = 1"
        if others := sorted(types.keys() - used):
            raise ValueError(f"the query does not return column {others[0]}")
        averages = {average.name: _average(average, types, is_tolerant=is_tolerant) for average in self.averages}
        functions = dict(self.measures)
        merged = [column for column in columns if column.name.lower() not in averages]
        items = ", ".join(_item(column, functions.get(column.name.lower()), is_tolerant=is_tolerant) for column in merged)
        by = ", ".join(quote(types[name].name) for name in self.keys)
        groups = f"SELECT {items} FROM {rows}{f' GROUP BY {by}' if by else ''}"
        if not averages:
            return groups
        every = ", ".join(averages.get(column.name.lower(), quote(column.name)) for column in columns)
        return f"SELECT {every} FROM ({groups})"


def _is_exact(kind: str) -> bool:
    return kind in _EXACT or kind.startswith("decimal(")


def _item(column: Column, function: str | None, *, is_tolerant: bool) -> str:
    """Return the item of the merge statement for a column.

    :raises ValueError: if values of its type cannot be merged exactly.
    """
    name = quote(column.name)
    if function is None:
        return name
    if function == "count":
        return f"coalesce(sum({name}), 0) AS {name}"
    if function == "sum":
        is_allowed = column.type == "bigint" or (column.type == "double" and is_tolerant)
        if not is_allowed and not column.type.startswith("decimal("):
            depends = f"the sum {column.name} has the type {column.type}, and depends on the order of its rows"
            raise ValueError(f"{depends}; float_tolerance permits that" if column.type == "double" else depends)
        return f"CAST(sum({name}) AS {column.type}) AS {name}"
    if not _is_exact(column.type) and not (column.type in _FLOATS and is_tolerant):
        raise ValueError(f"{function} {column.name} has the type {column.type}")
    return f"{function}({name}) AS {name}"


def _average(average: Average, types: Mapping[str, Column], *, is_tolerant: bool) -> str:
    """Return the item of the merge statement for an average, over the merged sum and count.

    :raises ValueError: if the result may differ from Spark's average of all rows.
    """
    column, total, rows = (types[name] for name in (average.name, average.sum, average.count))
    parts = quote(total.name), quote(rows.name)
    sizes = re.fullmatch(r"decimal\((\d+),(\d+)\)", total.type)
    if sizes is not None:
        value = _decimal_average(column, int(sizes[1]) - 10, int(sizes[2]), *parts)
    elif column.type == "double" and (is_tolerant or (total.type == "bigint" and average.type in ("tinyint", "smallint"))):
        # Spark adds integers up as floating-point numbers. These sums are exact up to 2^53, so for 2^38 rows of a group.
        value = f"CAST({parts[0]} AS double) / CAST({parts[1]} AS double)"
    else:
        kind = average.type or ("integers" if total.type == "bigint" else total.type)
        raise ValueError(
            f"the average {column.name} adds up values of type {kind} as floating-point numbers, and depends on the order of its "
            "rows; cast them to a decimal, in the average, its sum and its count, or permit that by float_tolerance"
        )
    return f"CASE WHEN {parts[1]} <> 0 THEN {value} END AS {quote(column.name)}"


def _decimal_average(column: Column, precision: int, scale: int, total: str, rows: str) -> str:
    """Return the quotient of a sum of decimals and their number, rounded once as Spark's average is.

    The quotient is a whole number and a fraction. Spark has enough digits for each of them, but not for both.

    :param precision: that of the decimals, with their ``scale``.
    :raises ValueError: if there may be not enough digits.
    """
    if precision > _LARGEST_DECIMAL[0] or scale > _LARGEST_DECIMAL[1] or column.type != f"decimal({precision + 4},{scale + 4})":
        most = "decimal({}, {})".format(*_LARGEST_DECIMAL)
        raise ValueError(f"the average {column.name} is of decimals larger than {most}: cast them, in its sum and count too")
    digits = (33 - scale) // 2
    quotient = scale + 4
    divisor = f"CAST({rows} AS decimal({digits}, 0))"
    rest = f"{total} % {divisor}"
    whole = f"CAST(({total} - {rest}) / {divisor} AS decimal({precision + 10 - scale}, 0))"
    fraction = (
        f"CAST(CAST({rest} AS decimal({digits + quotient}, {quotient})) / {divisor} AS decimal({quotient + 1}, {quotient}))"
    )
    return f"CAST({whole} + {fraction} AS {column.type})"
