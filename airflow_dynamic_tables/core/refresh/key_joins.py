"""Joins of a dimension by its keys: which rows of other tables, the facts, the rows of the dimension may be joined with.

If the dimension changes, only rows of the facts with the keys of changed rows can have another effect on the result of the query.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum

from airflow_dynamic_tables.core.refresh.key_sources import KeyColumn

Key = tuple[str | int | bool | date | Decimal, ...]
"""The values of the columns of a join in one row, of which none is null."""

_EXACT = frozenset({"string", "date", "boolean", "tinyint", "smallint", "int", "bigint"})
"""Types whose values are equal for Spark if, and only if, they are equal in files."""


class KeyCode(StrEnum):
    """The effect of a change of a dimension, or why it is not known."""

    CHANGED_KEYS = "CHANGED_KEYS"
    """Some partitions of the facts have keys of changed rows."""
    SAME_ROWS = "SAME_ROWS"
    """No row with a key changed in a column that the query uses."""
    NO_FACTS = "NO_FACTS"
    """No fact has a key of a changed row."""
    QUERY = "QUERY"
    """The query does not join the dimension by a key of one table whose partitions are mapped."""
    REPLACED = "REPLACED"
    """The dimension is another table than before, has other columns, or its state is unknown."""
    EXPIRED = "EXPIRED"
    """The version that the partitions were made of is gone."""
    UNREADABLE = "UNREADABLE"
    """The files of the dimension or of a fact do not tell its rows, or cannot be read."""
    TOO_MANY = "TOO_MANY"
    """Too many keys changed, or too many rows would be read."""


@dataclass(frozen=True, slots=True)
class KeyJoin:
    """A join of a dimension with a ``fact``: pairs of a column of the dimension and one of the fact that are equal."""

    fact: str
    columns: tuple[tuple[KeyColumn, KeyColumn], ...]


@dataclass(frozen=True, slots=True)
class KeyJoins:
    """The joins of a dimension, for each of the places where the query reads it.

    ``columns`` are names in lower case, among which are all columns that the query uses; ``None`` if it uses all.
    """

    joins: tuple[KeyJoin, ...]
    columns: frozenset[str] | None


def are_exact(one: str | None, other: str | None) -> bool:
    """Return whether Spark compares the values of two types without converting them, as they are in files."""
    if one is None or other is None:
        return False
    integers = {"tinyint", "smallint", "int", "bigint"}
    return (one == other and (one in _EXACT or one.startswith("decimal("))) or (one in integers and other in integers)
