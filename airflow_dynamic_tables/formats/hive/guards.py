"""Partitions that are there for a commit, not for rows: values of the right types that no real partition has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from uuid import uuid4

from airflow_dynamic_tables.exceptions import UnsupportedError

_BATCH = 200
"""Partitions dropped in one call; Derby cannot take many more."""


def guard(kinds: Sequence[str]) -> tuple[str, ...]:
    """Values of a partition that nobody has, of the types of the partition keys; they come before all real ones.

    :raises UnsupportedError: when all keys are boolean, so that there are no such values.
    """
    unique = uuid4().int
    if all(kind == "boolean" for kind in kinds):
        raise UnsupportedError("A Hive table whose partition keys are all boolean cannot be refreshed in one step; add another.")
    return tuple(_odd_value(kind, unique) for kind in kinds)


def guards_to_drop(count: int, kinds: Sequence[str]) -> list[tuple[str, ...]]:
    """A guard for each call that drops some of so many partitions."""
    return [guard(kinds) for _ in range(-(-count // _BATCH))]


def batches(others: Sequence[tuple[str, ...]], guards: Sequence[tuple[str, ...]]) -> Iterator[list[tuple[str, ...]]]:
    """Some of the others with a guard each, to be dropped in one call; what no guard is left for stays."""
    parts = [others[start : start + _BATCH] for start in range(0, len(others), _BATCH)] or [()]
    for number, (part, one) in enumerate(zip(parts, guards, strict=False)):
        rest = guards[number + 1 :] if number + 1 == len(parts) else ()
        yield [*part, one, *rest]


def _odd_value(kind: str, unique: int) -> str:
    if kind == "boolean":
        return "false"
    if kind == "date":
        return date.fromordinal(1 + unique % 300_000).isoformat()
    if kind.startswith("timestamp"):
        return f"{date.fromordinal(1 + unique % 300_000)} 00:00:00"
    digits = {"tinyint": 7, "smallint": 15, "int": 31, "float": 23, "double": 52, "bigint": 62}.get(kind.partition("(")[0])
    if digits is not None:
        return str(-(unique % 2**digits) - 1)
    if kind.startswith("decimal"):
        return str(-(unique % 10 ** _whole_digits(kind)) - 1)
    return f"!{unique:032x}"


def _whole_digits(kind: str) -> int:
    precision, _, scale = kind.partition("(")[2].rstrip(")").partition(",")
    return max(int(precision or 10) - int(scale or 0) - 1, 0)
