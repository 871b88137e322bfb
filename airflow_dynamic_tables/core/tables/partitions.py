"""Partitions: how they are named and selected.

The job imports this module, so it keeps to the standard library.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote, unquote

from airflow_dynamic_tables.core import identifiers
from airflow_dynamic_tables.core.partitioning import plain_keys

PartitionSpec = Mapping[str, str]

_Spec = Mapping[str, str | None]

_RANGE = re.compile(r"\.\.(?=[^=/]+=)")
"""What stands between the ends of a range. Within a value nothing with an equals sign follows."""

_Rows = dict[tuple[object, ...], _Spec]

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Stands in a partition spec for null, as Hive and Spark write it."""


def describe(spec: _Spec) -> str:
    """A spec as text, e.g. ``ds=2024-01-01/hh=03``; :func:`parse_spec` gives it back, but null as Hive writes it."""
    return "/".join(f"{_key(key)}={_escape(NULL_PARTITION if value is None else value)}" for key, value in spec.items())


def _key(key: str) -> str:
    """A key as it is declared: nobody names a partition by one that is computed, so its commas stand in no list."""
    return _escape(key) if plain_keys([key]) else _escape(key).replace("%2C", ",")


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


def split_partitions(text: str) -> list[tuple[dict[str, str], ...]]:
    """The partitions that a text names, separated by commas: one spec each, or the first and the last of a range.

    :raises ValueError: when one is malformed.
    """
    parts = [tuple(map(parse_spec, _RANGE.split(part))) for part in text.split(",")]
    if any(len(ends) > 2 for ends in parts):
        raise ValueError(f"{text!r}: a range has two ends, such as ds=2024-01-01..ds=2024-01-31")
    return parts


def check_spec(spec: _Spec, keys: Sequence[str]) -> None:
    """Check that a spec has exactly the partition keys.

    :raises ValueError: names them.
    """
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
    """Which partitions of a table: those of some specs, the whole table, or none at all.

    A spec that leaves out keys stands for all values of those keys, so the whole table (:data:`WHOLE_TABLE`) is the set with
    the one empty spec, and the empty set has no spec. A value may be null. Specs are distinct and in the order they were
    given in; two sets of the same specs are equal in whatever order.
    """

    specs: tuple[_Spec, ...] = ()

    @classmethod
    def of(cls, specs: Iterable[_Spec]) -> PartitionSet:
        """The partitions of these specs; the whole table as soon as one of them is empty."""
        distinct = {frozenset(spec.items()): dict(spec) for spec in specs}
        return WHOLE_TABLE if frozenset() in distinct else cls(tuple(distinct.values()))

    @property
    def is_empty(self) -> bool:
        """Whether it holds no partition, so that there is nothing to do."""
        return not self.specs

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole table."""
        return () in self._rows

    def covers(self, spec: _Spec) -> bool:
        """Whether all rows of a partition are in this set."""
        return any(tuple(spec.get(key, _ALL) for key in keys) in rows for keys, rows in self._rows.items())

    def covering(self, spec: _Spec) -> list[_Spec]:
        """The specs of this set that a partition belongs to; more than one when they leave out different keys."""
        values = ((rows, tuple(spec.get(key, _ALL) for key in keys)) for keys, rows in self._rows.items())
        return [rows[row] for rows, row in values if row in rows]

    def is_told_by(self, keys: Collection[str]) -> bool:
        """Whether the values of these keys tell of every row whether it is in this set."""
        return all(key in keys for named in self._rows for key in named)

    def overlaps(self, other: PartitionSet) -> bool:
        """Whether some rows may be in both sets; only keys that two specs share can tell them apart."""
        return any(_meet(mine, theirs) for mine in self._rows.items() for theirs in other._rows.items())

    def union(self, other: PartitionSet) -> PartitionSet:
        """What is in either set."""
        return PartitionSet.of((*self.specs, *other.specs))

    @property
    def predicate(self) -> str:
        """Spark SQL that is true for exactly the rows of these partitions.

        Values that go with the same values of the other keys share one IN list, so that a week of hours stays short.

        :raises ValueError: for the whole table and for no partition, which have no predicate, and when the keys differ.
        """
        if len(self._rows) != 1 or self.is_whole:
            raise ValueError("a predicate needs partitions, all with the same keys")
        keys = tuple(self.specs[0])
        return _among(keys, (tuple(spec[key] for key in keys) for spec in self.specs))

    def to_plain(self) -> list[dict[str, str | None]] | None:
        """As JSON has it: a list of specs, ``[]`` for the whole table, ``None`` for no partition."""
        if self.is_empty:
            return None
        return [dict(spec) for spec in self.specs if spec]

    @classmethod
    def from_plain(cls, data: Any) -> PartitionSet:
        """From what JSON made of :meth:`to_plain`.

        :raises ValueError: when it is something else.
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
        return "the whole table" if self.is_whole else ", ".join(map(describe, self.specs)) or "nothing"

    @property
    def brief(self) -> str:
        """As text of bounded length: of three and more, the first and the last one, and how many they are."""
        if self.is_whole or len(self.specs) < 2:
            return str(self)
        if len(self.specs) == 2:
            return " and ".join(map(describe, self.specs))
        return f"{describe(self.specs[0])} to {describe(self.specs[-1])} ({len(self.specs)} partitions)"

    @cached_property
    def _rows(self) -> dict[tuple[str, ...], _Rows]:
        """The specs by their keys (sorted) and by their values."""
        by_keys: dict[tuple[str, ...], _Rows] = {}
        for spec in self.specs:
            keys = tuple(sorted(spec))
            by_keys.setdefault(keys, {})[tuple(spec[key] for key in keys)] = spec
        return by_keys


WHOLE_TABLE = PartitionSet(({},))
"""All rows, whatever the table is partitioned by."""

NO_PARTITIONS = PartitionSet()
"""Nothing at all."""

_ALL = object()
"""Stands for all values of a key that a spec leaves out; differs from null."""


def _is_spec(data: Any) -> bool:
    return isinstance(data, Mapping) and all(value is None or isinstance(value, str) for value in data.values())


def _meet(mine: tuple[tuple[str, ...], _Rows], theirs: tuple[tuple[str, ...], _Rows]) -> bool:
    """Whether two specs of these agree on the keys that they share."""
    shared = set(mine[0]) & set(theirs[0])
    left, right = ({tuple(row[keys.index(key)] for key in sorted(shared)) for row in rows} for keys, rows in (mine, theirs))
    return not left.isdisjoint(right)


def _among(keys: tuple[str, ...], rows: Iterable[tuple[str | None, ...]]) -> str:
    """These rows of values, as a condition on the first key and one on the others for all values they go with."""
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
