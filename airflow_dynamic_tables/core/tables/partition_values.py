"""Values of partitions in the one spelling that their column's type has: ``3``, not ``03``, where the key is an integer.

Two spellings of one value would be two partitions to whoever compares texts, and one to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation

from airflow_dynamic_tables.core.tables.dates import formatted
from airflow_dynamic_tables.core.tables.partitions import NULL_PARTITION, PartitionSet, describe
from airflow_dynamic_tables.core.tables.schema import Column

_SAMPLE = datetime(2001, 2, 3, 4, 5, 6)  # noqa: DTZ001 - wall clock
"""Every field of it has one digit."""

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")
_BOOLEANS = {**dict.fromkeys(("true", "t", "yes", "y", "1"), "true"), **dict.fromkeys(("false", "f", "no", "n", "0"), "false")}


def normal_value(value: str | None, kind: str) -> str | None:
    """A value as its type writes it; one of a type with many spellings that nobody uses for a partition key stays as it is.

    :param kind: Spark's DDL text of the type.
    :raises ValueError: when it is no value of that type.
    """
    if value is None or value == NULL_PARTITION:
        return value
    try:
        if kind in _INTEGERS:
            if not _INTEGER.fullmatch(value):
                raise ValueError(value)
            return str(int(value))
        if kind == "date":
            return date.fromisoformat(value.strip()).isoformat()
        if kind == "boolean":
            return _BOOLEANS[value.strip().lower()]
        if kind.startswith("decimal"):
            scale = int(kind.partition(",")[2].rstrip(")") or 0)
            return str(Decimal(value).quantize(Decimal(1).scaleb(-scale)))
    except (ValueError, KeyError, InvalidOperation):
        raise ValueError(f"{value!r} is no {kind}") from None
    return value


def formatter_problem(pattern: str, kind: str) -> str | None:
    """Why a date pattern does not give values as a type spells them, and what to write instead; ``None`` when it does.

    :param kind: Spark's DDL text of the type.
    """
    sample = formatted(_SAMPLE, pattern)
    try:
        normal = normal_value(sample, kind)
    except ValueError:
        normal = None
    if normal == sample:
        return None
    advice = "write single letters such as H, or CAST it AS STRING"
    if kind == "date":
        advice = "write yyyy-MM-dd, or yyyy-MM-'01' for months"
    return f"the column is of type {kind}, and {pattern!r} gives {sample!r}, which that type does not have; {advice}"


def normalised(partitions: PartitionSet, columns: Sequence[Column]) -> PartitionSet:
    """A set of partitions with every value in the spelling of its column's type; keys of unknown type stay as they are.

    :raises ValueError: when a value is none of its type.
    """
    kinds = {column.name: column.type for column in columns}
    return PartitionSet.of(_normal_spec(spec, kinds) for spec in partitions)


def _normal_spec(spec: Mapping[str, str | None], kinds: Mapping[str, str]) -> dict[str, str | None]:
    try:
        return {key: normal_value(value, kinds.get(key, "string")) for key, value in spec.items()}
    except ValueError as error:
        raise ValueError(f"partition {describe(spec)!r}: {error}") from error
