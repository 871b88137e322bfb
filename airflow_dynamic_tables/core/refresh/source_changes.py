"""The state of a source by partition, as read by refreshes, and its differences to a later state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import chain, takewhile
from math import inf

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
    their fingerprint. ``same_rows`` are earlier versions that have the same rows in other files, and ``sizes`` the bytes of the
    files of each partition, ``None`` if they are unknown. ``changed_at`` is the time of the last change of its rows, if
    it is known (timezone-aware). These are not recorded.
    """

    version: str
    identity: str | None = None
    location: str | None = None
    schema: str | None = None
    partitions: Mapping[str, str] | None = None
    unsettled: tuple[str, ...] = ()
    same_rows: tuple[str, ...] = field(default=(), compare=False)
    sizes: Mapping[str, int] | None = field(default=None, compare=False)
    changed_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SourceDifference:
    """How a table differs from an earlier state: ``partitions``, by their texts, have or may have other content.

    ``None`` means that the partitions are unknown. ``why`` is the reason for people.
    """

    partitions: frozenset[str] | None
    why: str


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

    @property
    def latest(self) -> SourceState | None:
        """The state of the last reading, with its partitions; ``None`` if it is not known any more."""
        known = [(reading, state) for reading, state in self.states.values() if reading is not None]
        reading, state = max(known, key=lambda each: each[0], default=(0, None))
        if state is None or any(number > reading for number, _, _ in self.changes.values()):
            return None
        partitions = {name: fingerprint for name, (_, fingerprint, _) in self.changes.items() if fingerprint is not None}
        unsettled = sorted(name for name, (_, _, is_unsettled) in self.changes.items() if is_unsettled)
        return replace(state, partitions=partitions, unsettled=tuple(unsettled))


class SourceHistory:
    """The differences between the recorded states of a source and its current one.

    A partition that changed and changed back counts as changed for the refreshes before.
    """

    def __init__(self, readings: Readings, now: SourceState | None) -> None:
        self._states = readings.states
        self._recorded = readings.changes
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

    def latest(self, tokens: Iterable[str]) -> str | None:
        """Return the refresh that read the latest state, of some; ``None`` if the state of one is not known."""
        readings = {token: self._states[token][0] if token in self._states else None for token in tokens}
        known = {token: reading for token, reading in readings.items() if reading is not None}
        return max(known, key=known.__getitem__) if len(known) == len(readings) else None

    def state(self, token: str) -> SourceState:
        """Return the state that a refresh read, without its partitions."""
        return self._states[token][1]

    def changed_between(self, token: str, later: str) -> frozenset[str]:
        """Return the partitions that may have changed between the known states that two refreshes read."""
        since, until = self._states[token][0] or 0, self._states[later][0] or 0
        if since >= until:
            return frozenset()
        # Only the last change of a partition is known; there may have been earlier ones.
        return self._unsettled | {name for name, (reading, _, _) in self._recorded.items() if reading > since}

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

    The token is ``None`` if the partition is no longer as that refresh made it, the digest if it is unknown. ``search`` is the
    number of the last search for dirty partitions before the refresh read its sources; ``None`` if it is unknown.
    """

    version: int
    token: str | None
    recipe: str | None = None
    search: int | None = None


@dataclass(frozen=True)
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

    def specs(self, keys: Collection[str], now: SourceState | None, more: Iterable[Mapping[str, str]]) -> list[dict[str, str]]:
        """Return the partitions that were made, those that the table has, and more ones, by some keys, in order of their texts.

        :param now: the state of the table.
        """
        texts = {*self.refreshes, *((now.partitions if now is not None else None) or {})}
        every = chain((parse_spec(text) for text in texts if text), more)
        known = ({key: spec[key] for key in keys} for spec in every if spec.keys() >= {*keys})
        found = {sorted_text(spec): spec for spec in known}
        return [found[text] for text in sorted(found)]

    def covers(self, spec: Mapping[str, str | None]) -> bool:
        """Return whether a refresh has made a partition."""
        return bool(self._covering(spec))

    def is_named(self, spec: Mapping[str, str | None]) -> bool:
        """Return whether a refresh has made a partition without the complete table."""
        return bool(spec) and any(made is not self.refreshes.get("") for made in self._covering(spec))

    def token(self, spec: Mapping[str, str | None]) -> str | None:
        """Return the token of the refresh that last made a partition; ``None`` if it is unknown."""
        made = self.made(spec)
        return made.token if made is not None else None

    def made(self, spec: Mapping[str, str | None]) -> Made | None:
        """Return the refresh that last made a partition; ``None`` if none has."""
        return max(self._covering(spec), key=lambda each: each.version, default=None)

    def _covering(self, spec: Mapping[str, str | None]) -> list[Made]:
        text = {key: NULL_PARTITION if value is None else value for key, value in spec.items()}
        found = (rows.get(tuple(text.get(key) for key in keys)) for keys, rows in self._by_keys.items())
        return [made for made in found if made is not None]

    @cached_property
    def _by_keys(self) -> dict[tuple[str, ...], dict[tuple[str | None, ...], Made]]:
        """The refreshes by the keys of the specs and their values."""
        found: dict[tuple[str, ...], dict[tuple[str | None, ...], Made]] = {}
        for text, made in self.refreshes.items():
            spec = parse_spec(text) if text else {}
            found.setdefault(tuple(spec), {})[tuple(spec.values())] = made
        return found


@dataclass(frozen=True, slots=True)
class DirtyPartitions:
    """The partitions that a search found to be dirty: the oldest of them, and the number of all.

    They are all rows if it is not known which ones are dirty. Frozen partitions are not among them. Partitions that begin at
    ``before``, by the wall clock, or later were not compared.
    """

    partitions: PartitionSet = NO_PARTITIONS
    count: int = 0
    before: datetime | None = None

    def with_more(self, partitions: PartitionSet, unlisted: int = 0) -> DirtyPartitions:
        """Add partitions, and a number of further ones."""
        union = self.partitions.union(partitions)
        return replace(self, partitions=union, count=self.count + len(union) - len(self.partitions) + unlisted)


@dataclass(frozen=True, slots=True)
class DirtyFinding:
    """The result of the last search for the dirty partitions of a table. ``number`` counts the searches of the table.

    A partition stays dirty until a refresh replaces it that read its sources after this search began.
    """

    number: int
    found_at: datetime
    dirty: DirtyPartitions

    def is_dirty(self, spec: Mapping[str, str | None], made: Made | None, begins: datetime | None) -> bool | None:
        """Return whether a partition is known to be dirty; ``None`` if that is unknown.

        :param made: the refresh that last made it.
        :param begins: its start by the wall clock; ``None`` if its values are no times.
        """
        if made is None:
            return None
        if made.token is None:
            return True
        if self.precedes(made):
            return False
        if self.dirty.partitions.covers(spec):
            return True
        is_compared = self.dirty.before is None or (begins is not None and begins < self.dirty.before)
        is_listed = len(self.dirty.partitions) == self.dirty.count
        return False if is_compared and is_listed else None

    def precedes(self, made: Made) -> bool:
        """Return whether a refresh read its sources after the search began."""
        return made.search is not None and made.search >= self.number

    def still_dirty(self, made: MadePartitions) -> int | None:
        """Return the number of partitions that are still dirty; ``None`` if it is unknown."""
        listed = self.dirty.partitions
        if listed.is_whole:
            return None
        makers = [made.made(spec) for spec in listed]
        clean = sum(maker is None or (maker.token is not None and self.precedes(maker)) for maker in makers)
        return self.dirty.count - clean


@dataclass(frozen=True, slots=True)
class LateChanges:
    """Partitions older than the scheduled ones whose sources changed after they were made, oldest first, and the first change.

    These are all rows if new partitions may be among them. The policy says whether the refresh replaces them. ``frozen`` are
    further ones, which stay as they are. ``found`` are all dirty partitions; ``None`` if they were not searched for.
    """

    partitions: PartitionSet = NO_PARTITIONS
    why: str = ""
    policy: LatePolicy = LatePolicy.REPORT
    frozen: PartitionSet = NO_PARTITIONS
    found: DirtyPartitions | None = None

    @property
    def to_refresh(self) -> PartitionSet:
        """The partitions that the refresh replaces."""
        return self.partitions if self.policy is LatePolicy.REFRESH else NO_PARTITIONS

    @property
    def to_leave(self) -> PartitionSet:
        """The partitions that the refresh does not replace, although they are out of date."""
        return NO_PARTITIONS if self.policy is LatePolicy.REFRESH else self.partitions

    def __str__(self) -> str:
        """Return a sentence without a full stop; empty if there are none."""
        return "; ".join(filter(None, (self._named, told_frozen(self.frozen))))

    @property
    def _named(self) -> str:
        if self.partitions.is_empty:
            return ""
        if self.policy is LatePolicy.REFRESH:
            return f"it replaces {self.partitions.brief}, whose sources changed later: {self.why}"
        rows = "rows of any partition" if self.partitions.is_whole else self.partitions.brief
        return f"{rows} may be out of date, because sources changed later: {self.why}"


NOTHING_LATE = LateChanges()
"""No late changes."""


def told_frozen(changed: PartitionSet) -> str:
    """Return how many frozen partitions have changed sources, without a full stop; empty if none has."""
    return f"frozen partitions with changed sources: {len(changed)} ({changed.brief})" if not changed.is_empty else ""


def sorted_text(spec: Mapping[str, str | None]) -> str:
    """Return a partition as text, with its keys in alphabetical order."""
    return describe(dict(sorted(spec.items())))
