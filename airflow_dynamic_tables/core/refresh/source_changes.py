"""The state of a source by partition, as read by a refresh, and its differences to a later state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_dynamic_tables.core.partition_dates import normal_value
from airflow_dynamic_tables.core.partitions import NULL_PARTITION, parse_spec


@dataclass(frozen=True, slots=True)
class SourceState:
    """The state of one table as read by a refresh; unknown values are ``None``, and unknown never counts as unchanged.

    ``version`` identifies the state. ``identity`` distinguishes the table from a replacement of the same name, ``location`` is
    its location, ``schema`` a digest of its columns. ``partitions`` are fingerprints of each partition's content, by the
    partition's text (``ds=2024-01-01/hh=03``, see :func:`~airflow_dynamic_tables.core.partitions.describe`): a partition was
    changed, added or dropped when its fingerprint differs, is new or is missing. An empty text is the entire table when it cannot
    be split. ``unsettled`` are partitions that changed so shortly before they were examined that another change may not alter
    their fingerprint. ``same_rows`` are earlier versions that have the same rows in other files; they are not recorded.
    """

    version: str
    identity: str | None = None
    location: str | None = None
    schema: str | None = None
    partitions: Mapping[str, str] | None = None
    unsettled: tuple[str, ...] = ()
    same_rows: tuple[str, ...] = ()


_SPELLED_ONCE = frozenset({"string", "date", "tinyint", "smallint", "int", "bigint", "boolean"})
"""Types whose values have a unique spelling."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A source column: result rows with one value derive only from rows of that table with the same value.

    ``is_itself`` means that the result returns the column unchanged. Otherwise its values are compared, or combined in a union,
    with those of another column, and Spark may convert either one's type.
    """

    column: str
    is_itself: bool


@dataclass(frozen=True, slots=True)
class SourceDifference:
    """How a table differs from an earlier state: ``partitions``, by their texts, have or may have other content.

    ``None`` means that the partitions are unknown. ``why`` is the reason for people.
    """

    partitions: frozenset[str] | None
    why: str

    def concerns(self, spec: Mapping[str, str | None], keys: Mapping[str, str], kinds: Mapping[str, str]) -> bool:
        """Return whether the difference may affect the rows of one partition of a dependent table.

        :param spec: the partition; an empty one is the entire table.
        :param keys: for each partition key of the dependent table, the key of the changed table with the same value in every row.
        :param kinds: types of the dependent table's columns.
        """
        if self.partitions is None:
            return True
        return any(_meet(spec, text, keys, kinds) for text in self.partitions)


def difference(before: SourceState | None, now: SourceState | None) -> SourceDifference | None:
    """Compare two states of a table; ``None`` when it is certainly unchanged."""
    if before is None or now is None:
        return SourceDifference(None, "its earlier state is unknown" if before is None else "its current state is unknown")
    if before.partitions is None or now.partitions is None:
        return SourceDifference(None, "it has no versions")
    for what in ("identity", "location", "schema"):
        if getattr(before, what) != getattr(now, what):
            return SourceDifference(None, f"its {what} is another one")
    others = frozenset(name for name, _ in before.partitions.items() ^ now.partitions.items())
    if others and before.version not in now.same_rows:
        return SourceDifference(others | frozenset(before.unsettled), f"it is at {now.version}, and was at {before.version}")
    if before.unsettled:
        return SourceDifference(
            frozenset(before.unsettled), f"it was changed just before version {before.version} of it was read"
        )
    return None


def _meet(spec: Mapping[str, str | None], text: str, keys: Mapping[str, str], kinds: Mapping[str, str]) -> bool:
    other = parse_spec(text) if text else {}
    theirs = {key: other.get(keys.get(key, "")) for key in spec}
    return not any(_are_apart(value, theirs[key], kinds.get(key, "")) for key, value in spec.items())


def _are_apart(value: str | None, theirs: str | None, kind: str) -> bool:
    """Return whether two texts are certainly different values, both spelled canonically; null may match anything."""
    if kind not in _SPELLED_ONCE or value in (None, NULL_PARTITION) or theirs in (None, NULL_PARTITION) or value == theirs:
        return False
    try:
        return normal_value(value, kind) == value and normal_value(theirs, kind) == theirs
    except ValueError:
        return False
