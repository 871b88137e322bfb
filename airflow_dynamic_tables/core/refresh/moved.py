"""What has moved of a source since a refresh read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.core.tables.partition_values import normal_value
from airflow_dynamic_tables.core.tables.partitions import NULL_PARTITION, parse_spec

_SPELLED_ONCE = frozenset({"string", "date", "tinyint", "smallint", "int", "bigint", "boolean"})
"""Types of which two different texts, spelled rightly, are two values."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A column of a table: rows of a result with one value are made of rows of that table with that value alone.

    ``is_itself`` says that the result has the column as it is. Otherwise its values are compared with those of another column,
    or stand beside them in a union, and Spark converts whichever of the two has another type.
    """

    column: str
    is_itself: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """How a table differs from what it was: ``partitions``, by their texts, hold something else, or may do so.

    ``None``: nobody knows which. ``why`` says it for people.
    """

    partitions: frozenset[str] | None
    why: str

    def concerns(self, spec: Mapping[str, str | None], keys: Mapping[str, str], kinds: Mapping[str, str]) -> bool:
        """Whether rows of one partition of a table may be others by it.

        :param spec: the partition; an empty one is all of the table.
        :param keys: partition keys of that table, and which key of this one each is, row by row.
        :param kinds: their types in that table.
        """
        if self.partitions is None:
            return True
        return any(_meet(spec, text, keys, kinds) for text in self.partitions)


def difference(before: SourceState | None, now: SourceState | None) -> Difference | None:
    """How a table differs from what it was; ``None`` when it surely does not."""
    if before is None or now is None:
        return Difference(None, "nobody knows what it was like" if before is None else "nobody knows what it is like")
    if before.partitions is None or now.partitions is None:
        return Difference(None, "it has no versions")
    for what in ("identity", "location", "schema"):
        if getattr(before, what) != getattr(now, what):
            return Difference(None, f"its {what} is another one")
    others = frozenset(name for name, _ in before.partitions.items() ^ now.partitions.items())
    if others:
        return Difference(others | frozenset(before.unsettled), f"it is at {now.version}, and was at {before.version}")
    if before.unsettled:
        return Difference(frozenset(before.unsettled), f"it was changed just before version {before.version} of it was read")
    return None


def _meet(spec: Mapping[str, str | None], text: str, keys: Mapping[str, str], kinds: Mapping[str, str]) -> bool:
    """Whether rows may be in both: only a value that surely is another one tells two partitions apart."""
    other = parse_spec(text) if text else {}
    theirs = {key: other.get(keys.get(key, "")) for key in spec}
    return not any(_are_apart(value, theirs[key], kinds.get(key, "")) for key, value in spec.items())


def _are_apart(value: str | None, theirs: str | None, kind: str) -> bool:
    """Whether two texts are two values, as each is spelled as its type spells it; null may be anything."""
    if kind not in _SPELLED_ONCE or value in (None, NULL_PARTITION) or theirs in (None, NULL_PARTITION) or value == theirs:
        return False
    try:
        return normal_value(value, kind) == value and normal_value(theirs, kind) == theirs
    except ValueError:
        return False
