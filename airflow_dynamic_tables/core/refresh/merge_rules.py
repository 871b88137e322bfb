"""Merge rules: how the result of a query follows from its former result and the new rows of one source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.schema import Column

_NUMBER = "dynamic-tables.number"
"""Name of a column of the merge statement. No column of a table can have it."""

_EXACT = {"string", "tinyint", "smallint", "int", "bigint", "date", "boolean", "timestamp", "timestamp_ntz", "binary"}
"""Types whose values are equal in a table if they are equal in a query. Floating-point numbers have several zeros."""


class MergeKind(StrEnum):
    """How new rows are merged."""

    APPEND = "APPEND"
    """They are added."""
    GROUPS = "GROUPS"
    """Groups with the same keys become one."""
    NEWEST = "NEWEST"
    """The first row of each key, in some order, remains."""


@dataclass(frozen=True, slots=True)
class MergeRule:
    """How the result of a query for more rows of one source follows from its former result and that for the new rows alone.

    For the latter, the sources ``empty`` are read as empty; their names are in lower case. The others are columns of the result,
    in lower case: ``keys``, ``measures`` with the aggregate function that merges them, and the ``order`` of the rows of a key,
    with directions as SQL.
    """

    kind: MergeKind
    empty: frozenset[str] = frozenset()
    keys: tuple[str, ...] = ()
    measures: tuple[tuple[str, str], ...] = ()
    order: tuple[tuple[str, str], ...] = ()

    def statement(self, columns: Sequence[Column], former: str, new: str) -> str:
        """Return the query for the merged rows; empty if the new rows are only added.

        :param columns: those of the table.
        :param former: the view of the rows that the table has.
        :param new: the view of the rows of the query for the new rows of the source.
        :raises ValueError: if the table has other columns, or values of a type that cannot be merged exactly.
        """
        types = {column.name.lower(): column for column in columns}
        used = {*self.keys, *(name for name, _ in (*self.measures, *self.order))}
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
        functions = dict(self.measures)
        items = ", ".join(_item(column, functions.get(column.name.lower())) for column in columns)
        by = ", ".join(quote(types[name].name) for name in self.keys)
        return f"SELECT {items} FROM {rows}{f' GROUP BY {by}' if by else ''}"


def _is_exact(kind: str) -> bool:
    return kind in _EXACT or kind.startswith("decimal(")


def _item(column: Column, function: str | None) -> str:
    """Return the item of the merge statement for a column.

    :raises ValueError: if values of its type cannot be merged exactly.
    """
    name = quote(column.name)
    if function is None:
        return name
    if function == "count":
        return f"coalesce(sum({name}), 0) AS {name}"
    if function == "sum":
        if column.type != "bigint" and not column.type.startswith("decimal("):
            raise ValueError(f"the sum {column.name} has the type {column.type}, and depends on the order of its rows")
        return f"CAST(sum({name}) AS {column.type}) AS {name}"
    if not _is_exact(column.type):
        raise ValueError(f"{function} {column.name} has the type {column.type}")
    return f"{function}({name}) AS {name}"
