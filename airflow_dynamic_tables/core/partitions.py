"""Partitions: their names and sets.

The job imports this module, so it depends on the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import quote, unquote

from airflow_dynamic_tables.core import identifiers
from airflow_dynamic_tables.core.partition_transforms import plain_keys

PartitionSpec = Mapping[str, str]

_Spec = Mapping[str, str | None]

_RANGE = re.compile(r"\.\.(?=[^=/]+=)")
"""The separator of a range. Within a value it is not followed by an equals sign."""

_SEPARATORS = re.compile(r"[%/=,\x00-\x1f\x7f]|^\s|\s$")

_Rows = dict[tuple[object, ...], _Spec]

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Null in a partition spec, as Hive and Spark write it."""


def describe(spec: _Spec) -> str:
    """A spec as text, e.g. ``ds=2024-01-01/hh=03``; :func:`parse_spec` is the inverse, except that null becomes Hive's text."""
    return "/".join(f"{_key(key)}={_escape(NULL_PARTITION if value is None else value)}" for key, value in spec.items())


@lru_cache
def _key(key: str) -> str:
    """A key as declared: partitions cannot be selected by computed keys, so their commas need no escaping."""
    return _escape(key) if plain_keys([key]) else _escape(key).replace("%2C", ",")


def _escape(text: str) -> str:
    """Percent-encode separators of specs and their lists, and characters that command-line arguments would lose."""
    return _SEPARATORS.sub(lambda match: quote(match[0], safe=""), text)


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


def split_partitions(text: str) -> list[tuple[dict[str, str], ...]]:
    """Parse comma-separated partitions: one spec each, or the first and last one of a range.

    :raises ValueError: when one is malformed.
    """
    parts = [tuple(map(parse_spec, _RANGE.split(part))) for part in text.split(",")]
    if any(len(ends) > 2 for ends in parts):
        raise ValueError(f"{text!r}: a range has two ends, such as ds=2024-01-01..ds=2024-01-31")
    return parts


def check_spec(spec: _Spec, keys: Sequence[str]) -> None:
    """Check that a spec has exactly the partition keys."""
    if not keys:
        raise ValueError("the table is not partitioned, so no partition can be named")
    plain = plain_keys(keys)
    if not plain:
        raise ValueError(
            f"the partitions by {', '.join(keys)} are Iceberg's affair and none can be named; all of them are refreshed"
        )
    if set(spec) != set(plain):
        instead = f"; {', '.join(key for key in keys if key not in plain)} is not named" if len(plain) < len(keys) else ""
        raise ValueError(f"partition {describe(spec)!r} does not fit the partition keys {', '.join(plain)}{instead}")


@dataclass(frozen=True, eq=False)
class PartitionSet:
    """A set of partitions: those of some specs, the entire table, or none.

    A spec without some keys includes all values of those keys, so the entire table (:data:`WHOLE_TABLE`) is the set of a single
    empty spec, and the empty set has no specs. A value may be null. Specs are distinct and in the order given; equality ignores
    the order.
    """

    specs: tuple[_Spec, ...] = ()

    @classmethod
    def of(cls, specs: Iterable[_Spec]) -> PartitionSet:
        """The partitions of these specs; the entire table if one of them is empty."""
        distinct = {frozenset(spec.items()): dict(spec) for spec in specs}
        return WHOLE_TABLE if frozenset() in distinct else cls(tuple(distinct.values()))

    @property
    def is_empty(self) -> bool:
        """Return whether it contains no partitions."""
        return not self.specs

    @property
    def is_whole(self) -> bool:
        """Return whether it is the entire table."""
        return () in self._rows

    def covers(self, spec: _Spec) -> bool:
        """Return whether all rows of a partition are in this set."""
        return any(tuple(spec.get(key, _ALL) for key in keys) in rows for keys, rows in self._rows.items())

    def covering(self, spec: _Spec) -> list[_Spec]:
        """The specs of this set that include a partition; several when they omit different keys."""
        values = ((rows, tuple(spec.get(key, _ALL) for key in keys)) for keys, rows in self._rows.items())
        return [rows[row] for rows, row in values if row in rows]

    def is_told_by(self, keys: Collection[str]) -> bool:
        """Return whether the values of these keys determine for every row whether it is in this set."""
        return all(key in keys for named in self._rows for key in named)

    def overlaps(self, other: PartitionSet) -> bool:
        """Return whether some rows may be in both sets; only keys shared by two specs can separate them."""
        return any(_meet(mine, theirs) for mine in self._rows.items() for theirs in other._rows.items())

    def union(self, other: PartitionSet) -> PartitionSet:
        """The union of both sets."""
        return PartitionSet.of((*self.specs, *other.specs))

    @property
    def predicate(self) -> str:
        """A Spark SQL predicate for exactly the rows of these partitions.

        Values that occur with the same values of the other keys share one IN list, which keeps a week of hours short.

        :raises ValueError: for the entire table, for no partitions, and when the keys differ.
        """
        if len(self._rows) != 1 or self.is_whole:
            raise ValueError("a predicate needs partitions, all with the same keys")
        keys = tuple(self.specs[0])
        return _among(keys, (tuple(spec[key] for key in keys) for spec in self.specs))

    def to_plain(self) -> list[dict[str, str | None]] | None:
        """The set as JSON data: a list of specs, ``[]`` for the entire table, ``None`` for no partitions."""
        if self.is_empty:
            return None
        return [dict(spec) for spec in self.specs if spec]

    @classmethod
    def from_plain(cls, data: Any) -> PartitionSet:
        """Parse the result of :meth:`to_plain`.

        :raises ValueError: when the data have another form.
        """
        if data is None:
            return NO_PARTITIONS
        if not isinstance(data, Sequence) or not all(map(_is_spec, data)):
            raise ValueError(f"{data!r} is no list of partitions")
        return cls.of(data) if data else WHOLE_TABLE

    def __iter__(self) -> Iterator[_Spec]:
        return iter(self.specs)

    def __len__(self) -> int:
        return len(self.specs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionSet) and self._rows == other._rows

    def __hash__(self) -> int:
        return hash(frozenset(frozenset(spec.items()) for spec in self.specs))

    def __str__(self) -> str:
        return "the complete table" if self.is_whole else ", ".join(map(describe, self.specs)) or "nothing"

    @property
    def brief(self) -> str:
        """A text of bounded length: of three or more, the first and last one and their number."""
        if self.is_whole or len(self.specs) < 2:
            return str(self)
        if len(self.specs) == 2:
            return " and ".join(map(describe, self.specs))
        return f"{describe(self.specs[0])} to {describe(self.specs[-1])} ({len(self.specs)} partitions)"

    @cached_property
    def _rows(self) -> dict[tuple[str, ...], _Rows]:
        """The specs by their sorted keys and their values."""
        by_keys: dict[tuple[str, ...], _Rows] = {}
        for spec in self.specs:
            keys = tuple(sorted(spec))
            by_keys.setdefault(keys, {})[tuple(spec[key] for key in keys)] = spec
        return by_keys


WHOLE_TABLE = PartitionSet(({},))
"""All rows, whatever the partition keys."""

NO_PARTITIONS = PartitionSet()
"""No partitions."""

_ALL = object()
"""Represents all values of an omitted key; differs from null."""


def _is_spec(data: Any) -> bool:
    return isinstance(data, Mapping) and all(value is None or isinstance(value, str) for value in data.values())


def _meet(mine: tuple[tuple[str, ...], _Rows], theirs: tuple[tuple[str, ...], _Rows]) -> bool:
    shared = set(mine[0]) & set(theirs[0])
    left, right = ({tuple(row[keys.index(key)] for key in sorted(shared)) for row in rows} for keys, rows in (mine, theirs))
    return not left.isdisjoint(right)


def _among(keys: tuple[str, ...], rows: Iterable[tuple[str | None, ...]]) -> str:
    """A condition for rows of values: on the first key and, recursively, on the others, grouped by equal combinations."""
    others: dict[str | None, list[tuple[str | None, ...]]] = {}
    for value, *rest in rows:
        others.setdefault(value, []).append(tuple(rest))
    shared: dict[tuple[tuple[str | None, ...], ...], list[str | None]] = {}
    for value, rests in others.items():
        shared.setdefault(tuple(rests), []).append(value)
    terms = [
        " AND ".join([_one_of(identifiers.quote(keys[0]), values), *([_among(keys[1:], same)] if len(keys) > 1 else [])])
        for same, values in shared.items()
    ]
    return terms[0] if len(terms) == 1 else "(" + " OR ".join(f"({term})" for term in terms) + ")"


def _one_of(column: str, values: list[str | None]) -> str:
    literals = [identifiers.literal(value) for value in values if value is not None]
    if not literals:
        return f"{column} IS NULL"
    condition = f"{column} = {literals[0]}" if len(literals) == 1 else f"{column} IN ({', '.join(literals)})"
    return condition if len(literals) == len(values) else f"({condition} OR {column} IS NULL)"
