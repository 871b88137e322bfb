"""Changes of dimensions by key: the partitions of the facts that have keys of changed rows, found without Spark.

The rows of a dimension at the version that partitions were made of are compared with its current rows. The keys of changed rows
are looked for in the current rows of the facts: if a fact changed since, its own change makes the partitions dirty that it
concerns. If the keys are not certain, all partitions of the table may be out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.key_joins import Key, KeyCode, KeyJoin, KeyJoins
from airflow_dynamic_tables.core.refresh.key_sources import Obstacle
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.source_changes import SourceDifference, SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.definitions.queries.text import key_joins
from airflow_dynamic_tables.exceptions import DynamicTableError, VersionNotFoundError
from airflow_dynamic_tables.formats.base import KeyScan, ListedFile, ScanLimitError
from airflow_dynamic_tables.formats.registry import is_bound, key_scan, list_files
from airflow_dynamic_tables.services.refresh.partition_mappings import types_of
from airflow_dynamic_tables.services.refresh.planning import Bound
from airflow_dynamic_tables.services.workspace import Workspace

_MOST_FIRST = (KeyCode.CHANGED_KEYS, KeyCode.NO_FACTS, KeyCode.SAME_ROWS)
"""The effects of changes that are known."""


@dataclass(frozen=True, slots=True)
class KeyChange:
    """The effect of a change of a dimension: partitions of facts, by their texts, whose rows may have another one.

    ``None`` are all rows. ``why`` is the reason for people, without a full stop.
    """

    code: KeyCode
    why: str
    partitions: Mapping[str, frozenset[str]] | None = None

    def __str__(self) -> str:
        return f"{self.why} ({self.code})"


class _NotKnownError(Exception):
    """The keys of the changed rows are not certain."""

    def __init__(self, code: KeyCode, why: str) -> None:
        self.change = KeyChange(code, why)
        super().__init__(why)


class ChangedKeys:
    """The changes of the dimensions of a table by key. A version of a dimension is compared once, and a key looked for once.

    :param sources: the sources of the definitions.
    :param facts: returns the names of the sources whose partitions are mapped to those of the table.
    """

    def __init__(
        self, workspace: Workspace, bound: Bound, sources: Mapping[TableIdentifier, Source], facts: Callable[[], Collection[str]]
    ) -> None:
        self._workspace = workspace
        self._bound = bound
        self._sources = sources
        self._mapped = facts
        self._joins: dict[str, KeyJoins | Obstacle] = {}
        self._known: dict[tuple[str, str], KeyChange] = {}
        self._holders: dict[KeyJoin, dict[Key, frozenset[str]]] = {}
        self._without_effect: dict[str, KeyChange] = {}

    @cached_property
    def _facts(self) -> dict[str, SourceBinding]:
        names = self._mapped()
        return {each.identifier: each for each in self._bound.sources if each.identifier in names and each.event_time is None}

    @cached_property
    def _scan(self) -> KeyScan:
        return key_scan()

    @property
    def why(self) -> str:
        """Why changes of dimensions have no effect, without a full stop; empty if there are none."""
        return "; ".join(f"{source}: {change}" for source, change in self._without_effect.items())

    def since(self, dimension: SourceBinding, token: str, difference: SourceDifference) -> KeyChange:
        """Return the effect of a change of a dimension.

        :param token: of the refresh since which it differs.
        """
        try:
            since, now = self._states(dimension, token, difference)
            known = dimension.identifier, since.version
            if known not in self._known:
                self._known[known] = self._compared(dimension, since, now)
            change = self._known[known]
        except _NotKnownError as error:
            change = error.change
        if change.partitions is not None and not any(change.partitions.values()):
            self._without_effect[dimension.identifier] = change
        return change

    def _states(self, dimension: SourceBinding, token: str, difference: SourceDifference) -> tuple[SourceState, SourceState]:
        now = dimension.state
        if difference.partitions is None or now is None:
            raise _NotKnownError(KeyCode.REPLACED, difference.why)
        since = self._workspace.ledger.source_states(token).get(dimension.identifier)
        if since is None:
            raise _NotKnownError(KeyCode.EXPIRED, "its earlier state is not recorded any more")
        return since, now

    def _compared(self, dimension: SourceBinding, since: SourceState, now: SourceState) -> KeyChange:
        try:
            return self._change(dimension, self._joins_of(dimension), since, now)
        except _NotKnownError as error:
            return error.change
        except VersionNotFoundError as error:
            return KeyChange(KeyCode.EXPIRED, _told(error))
        except ScanLimitError as error:
            return KeyChange(KeyCode.TOO_MANY, _told(error))
        except (DynamicTableError, OSError) as error:
            return KeyChange(KeyCode.UNREADABLE, _told(error))

    def _change(self, dimension: SourceBinding, joins: KeyJoins, since: SourceState, now: SourceState) -> KeyChange:
        name = dimension.identifier
        types = {column.lower(): kind for column, kind in types_of(self._bound.sources)[name].items()}
        keys = {key.name for join in joins.joins for key, _ in join.columns}
        used = {column: kind for column, kind in types.items() if joins.columns is None or column in joins.columns | keys}
        if not keys <= used.keys():
            raise _NotKnownError(KeyCode.UNREADABLE, f"the columns of {name} are not known")
        before, after = self._files(name, (), since), self._files(name, (), now)
        effects = [self._of_join(join, self._scan.changed(before, after, used, _names(join))) for join in joins.joins]
        code = next(code for code in _MOST_FIRST if any(effect.code is code for effect in effects))
        why = " and ".join(dict.fromkeys(effect.why for effect in effects if effect.code is code))
        partitions: dict[str, frozenset[str]] = {}
        for effect in effects:
            for fact, found in (effect.partitions or {}).items():
                partitions[fact] = partitions.get(fact, frozenset()) | found
        return KeyChange(code, why, partitions)

    def _of_join(self, join: KeyJoin, changed: Collection[Key]) -> KeyChange:
        names = ", ".join(_names(join))
        if not changed:
            return KeyChange(KeyCode.SAME_ROWS, f"no row with a key ({names}) changed in a column that the query uses", {})
        state = self._facts[join.fact].state
        if state is None or state.partitions is None:
            raise _NotKnownError(KeyCode.UNREADABLE, f"the state of {join.fact} is not known")
        found = self._holding(join, state, changed)
        number = f"{len(changed):,} changed {'key' if len(changed) == 1 else 'keys'} ({names})"
        why = f"{number}, in {len(found):,} of {len(state.partitions):,} partitions of {join.fact}"
        return KeyChange(KeyCode.CHANGED_KEYS if found else KeyCode.NO_FACTS, why, {join.fact: found})

    def _holding(self, join: KeyJoin, state: SourceState, keys: Collection[Key]) -> frozenset[str]:
        """Return the partitions of a fact that may have some keys."""
        known = self._holders.setdefault(join, {})
        if wanted := [key for key in keys if key not in known]:
            types = {column.name: column.type or "" for _, column in join.columns}
            known.update(self._scan.holding(self._files(join.fact, types, state), types, wanted))
        return frozenset(chain.from_iterable(known[key] for key in keys))

    def _joins_of(self, dimension: SourceBinding) -> KeyJoins:
        name = dimension.identifier
        if dimension.event_time is not None:
            raise _NotKnownError(KeyCode.QUERY, "it has an event time, and one of its rows may hide another")
        if name not in self._joins:
            bound, facts = self._bound, self._facts.keys() - {name}
            self._joins[name] = key_joins(bound.table.expanded_query, name, facts, types_of(bound.sources), bound.settings)
        found = self._joins[name]
        if isinstance(found, Obstacle):
            raise _NotKnownError(KeyCode.QUERY, f"{found.cause}, at {self._bound.place(found.offset)} of the query")
        return found

    def _files(self, source: str, columns: Collection[str], state: SourceState) -> list[ListedFile]:
        identifier = TableIdentifier.parse(source)
        declared = self._sources.get(identifier)
        if declared is not None and is_bound(declared):
            return list_files(declared, self._workspace.readable(identifier.catalog).stores(), columns, state)
        return self._workspace.existing_table(identifier).load().list_files(columns, state)


def _names(join: KeyJoin) -> list[str]:
    return [key.name for key, _ in join.columns]


def _told(error: Exception) -> str:
    return str(error).removesuffix(".")
