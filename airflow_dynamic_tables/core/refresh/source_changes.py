"""The state of a source by partition, as read by refreshes, and its differences to a later state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, combinations, takewhile
from math import inf

from airflow_dynamic_tables.core.partition_dates import normal_value
from airflow_dynamic_tables.core.partitions import NO_PARTITIONS, NULL_PARTITION, PartitionSet, describe, parse_spec
from airflow_dynamic_tables.core.refresh.reasons import LatePolicy


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
    same_rows: tuple[str, ...] = field(default=(), compare=False)


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

    def only_in(self, keys: Mapping[str, str], kinds: Mapping[str, str]) -> list[dict[str, str]] | None:
        """Return the partitions of a dependent table that contain all rows that the difference may affect.

        :param keys: for each key of these partitions, the key of the changed table with the same value in every row; empty if
            there is none.
        :param kinds: types of the dependent table's columns.
        :return: ``None`` if rows of any partition may be affected.
        """
        found: list[dict[str, str]] = []
        for text in self.partitions or ():
            theirs = parse_spec(text) if text else {}
            spec = {key: theirs.get(own, "") for key, own in keys.items()}
            if not all(own and _is_canonical(spec[key], kinds.get(key, "")) for key, own in keys.items()):
                return None
            found.append(spec)
        return None if self.partitions is None else found


PartitionChange = tuple[int, str | None, bool]
"""The last reading that changed a partition, its fingerprint, ``None`` if the partition is gone, and whether it was unsettled."""


@dataclass(frozen=True, slots=True)
class Readings:
    """The states of one source as the refreshes of a table recorded them, in the order of their numbers, the *readings*.

    ``states`` has the reading and the state of each refresh, by token, without the partitions; the reading is ``None`` if they
    are unknown. ``changes`` has the last change of each partition, by its text.
    """

    states: Mapping[str, tuple[int | None, SourceState]]
    changes: Mapping[str, PartitionChange]


class SourceHistory:
    """The differences between the recorded states of a source and its current one.

    A partition that changed and changed back counts as changed for the refreshes before.
    """

    def __init__(self, readings: Readings, now: SourceState | None) -> None:
        self._states = readings.states
        self._now = now
        partitions = dict((now.partitions if now is not None else None) or {})
        same_since: list[tuple[float, str]] = []
        for name in readings.changes.keys() | partitions.keys():
            reading, fingerprint, is_unsettled = readings.changes.get(name, (0, None, False))
            is_same = fingerprint == partitions.get(name) and not is_unsettled
            same_since.append((reading if is_same else inf, name))
        self._same_since = sorted(same_since, reverse=True)
        self._unsettled = frozenset(name for name, (_, _, is_unsettled) in readings.changes.items() if is_unsettled)

    def knows(self, token: str | None) -> bool:
        """Return whether a refresh recorded a state of the source."""
        return token in self._states

    def difference(self, token: str | None) -> SourceDifference | None:
        """Return the changes since a refresh read the source; ``None`` if it is certainly unchanged."""
        now = self._now
        reading, before = self._states.get(token or "", (None, None))
        if before is None or now is None:
            return SourceDifference(None, "its earlier state is unknown" if before is None else "its current state is unknown")
        if reading is None or now.partitions is None:
            return SourceDifference(None, "it has no versions")
        for what in ("identity", "location", "schema"):
            if getattr(before, what) != getattr(now, what):
                return SourceDifference(None, f"its {what} is another one")
        changed = frozenset(name for _, name in takewhile(lambda each: each[0] > reading, self._same_since))
        if before.version in now.same_rows:
            changed &= self._unsettled
        if not changed:
            return None
        if before.version in (now.version, *now.same_rows):
            return SourceDifference(changed, f"it was changed just before version {before.version} of it was read")
        return SourceDifference(changed, f"it is at {now.version}, and was at {before.version}")


@dataclass(frozen=True, slots=True)
class Made:
    """The refresh that made a partition: the number of its version, its token, and the digest of the definition.

    The token is ``None`` if the partition is no longer as that refresh made it, the digest if it is unknown.
    """

    version: int
    token: str | None
    recipe: str | None = None


@dataclass(frozen=True, slots=True)
class MadePartitions:
    """The refresh that last made each partition of a table.

    Partitions are the texts of :func:`sorted_text`. A spec that omits keys stands for all their values, so an empty text is the
    complete table.
    """

    refreshes: Mapping[str, Made]

    @property
    def is_complete(self) -> bool:
        """Whether a refresh has made the complete table."""
        return "" in self.refreshes

    @property
    def recipes(self) -> set[str | None]:
        """The digests of the definitions that made the partitions."""
        return {made.recipe for made in self.refreshes.values()}

    def covers(self, spec: Mapping[str, str | None]) -> bool:
        """Return whether a refresh has made a partition."""
        return bool(self._covering(spec))

    def token(self, spec: Mapping[str, str | None]) -> str | None:
        """Return the token of the refresh that last made a partition; ``None`` if it is unknown."""
        made = max(self._covering(spec), key=lambda each: each.version, default=None)
        return made.token if made is not None else None

    def _covering(self, spec: Mapping[str, str | None]) -> list[Made]:
        covering = chain.from_iterable(combinations(spec.items(), size) for size in range(len(spec) + 1))
        texts = (sorted_text(dict(items)) for items in covering)
        return [self.refreshes[text] for text in texts if text in self.refreshes]


@dataclass(frozen=True, slots=True)
class LateChanges:
    """Partitions older than the scheduled ones whose sources changed after they were made, oldest first, and the first change.

    These are all rows if new partitions may be among them. The policy says whether the refresh replaces them.
    """

    partitions: PartitionSet = NO_PARTITIONS
    why: str = ""
    policy: LatePolicy = LatePolicy.REPORT

    @property
    def to_refresh(self) -> PartitionSet:
        """The partitions that the refresh replaces."""
        return self.partitions if self.policy is LatePolicy.REFRESH else NO_PARTITIONS

    def __str__(self) -> str:
        """Return a sentence without a full stop; empty if there are none."""
        if self.partitions.is_empty:
            return ""
        if self.policy is LatePolicy.REFRESH:
            return f"it replaces {self.partitions.brief}, whose sources changed later: {self.why}"
        rows = "rows of any partition" if self.partitions.is_whole else self.partitions.brief
        return f"{rows} may be out of date, because sources changed later: {self.why}"


NOTHING_LATE = LateChanges()
"""No late changes."""


def sorted_text(spec: Mapping[str, str | None]) -> str:
    """Return a partition as text, with its keys in alphabetical order."""
    return describe(dict(sorted(spec.items())))


def _meet(spec: Mapping[str, str | None], text: str, keys: Mapping[str, str], kinds: Mapping[str, str]) -> bool:
    other = parse_spec(text) if text else {}
    theirs = {key: other.get(keys.get(key, "")) for key in spec}
    return not any(_are_apart(value, theirs[key], kinds.get(key, "")) for key, value in spec.items())


def _are_apart(value: str | None, theirs: str | None, kind: str) -> bool:
    """Return whether two texts are certainly different values, both spelled canonically; null may match anything."""
    if value is None or theirs is None or value == theirs:
        return False
    return _is_canonical(value, kind) and _is_canonical(theirs, kind)


def _is_canonical(value: str, kind: str) -> bool:
    """Return whether no other text is the same value."""
    if kind not in _SPELLED_ONCE or value == NULL_PARTITION:
        return False
    try:
        return normal_value(value, kind) == value
    except ValueError:
        return False
