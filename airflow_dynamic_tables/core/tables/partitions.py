"""Partitions: how they are named and selected.

The job imports this module, so it keeps to the standard library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote, unquote

from airflow_dynamic_tables.core import identifiers

PartitionSpec = Mapping[str, str]


NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Stands in a partition spec for null, as Hive and Spark write it."""


def describe(spec: PartitionSpec) -> str:
    """A spec as text, e.g. ``ds=2024-01-01/hh=03``; :func:`parse_spec` gives it back."""
    return "/".join(f"{_escape(key)}={_escape(value)}" for key, value in spec.items())


def _escape(text: str) -> str:
    """Write as %xx what separates specs (or lists of them) and what would not survive as an argument."""
    return re.sub(r"[%/=,\x00-\x1f\x7f]|^\s|\s$", lambda match: quote(match[0], safe=""), text)


def parse_spec(text: str) -> dict[str, str]:
    """Parse ``key=value/key=value``; ``/``, ``=``, ``%`` and ``,`` within a value are written as %2F, %3D, %25 and %2C.

    An empty value is legal.

    :raises ValueError: when it is malformed.
    """
    spec: dict[str, str] = {}
    for part in text.strip().strip("/").split("/"):
        key, equals, value = part.partition("=")
        if not equals or not key or "=" in value:
            raise ValueError(
                f"{text!r} is no partition; write for example ds=2024-01-01 or ds=2024-01-01/hh=03 (/ as %2F, = as %3D)"
            )
        if unquote(key) in spec:
            raise ValueError(f"{text!r} names {unquote(key)!r} twice")
        spec[unquote(key)] = unquote(value)
    return spec


def check_spec(spec: PartitionSpec, keys: Sequence[str]) -> None:
    """Check that a spec has exactly the partition keys.

    :raises ValueError: names them.
    """
    if not keys:
        raise ValueError("the table is not partitioned, so no partition can be named")
    if set(spec) != set(keys):
        raise ValueError(f"partition {describe(spec)!r} does not fit the partition keys {', '.join(keys)}")


def predicate(partitions: Sequence[PartitionSpec]) -> str:
    """Spark SQL that is true for exactly the rows of these partitions.

    Values that go with the same values of the other keys share one IN list, so that a week of hours stays short.

    :param partitions: all with the same keys.
    :raises ValueError: when there are none (the whole table has no predicate), or their keys differ.
    """
    keys = tuple(partitions[0]) if partitions else ()
    if not keys or any(set(spec) != set(keys) for spec in partitions):
        raise ValueError("a predicate needs partitions, all with the same keys")
    return _among(keys, {tuple(spec[key] for key in keys): None for spec in partitions})


def _among(keys: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """These rows of values, as a condition on the first key and one on the others for all values they go with."""
    others: dict[str, list[tuple[str, ...]]] = {}
    for value, *rest in rows:
        others.setdefault(value, []).append(tuple(rest))
    shared: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for value, rests in others.items():
        shared.setdefault(tuple(rests), []).append(value)
    terms = [
        " AND ".join([f"{identifiers.quote(keys[0])} {_one_of(values)}", *([_among(keys[1:], same)] if len(keys) > 1 else [])])
        for same, values in shared.items()
    ]
    return terms[0] if len(terms) == 1 else "(" + " OR ".join(f"({term})" for term in terms) + ")"


def _one_of(values: list[str]) -> str:
    literals = ", ".join(map(identifiers.literal, values))
    return f"= {literals}" if len(values) == 1 else f"IN ({literals})"
