"""Comparison of a table and its sources with the states that its refreshes recorded. Unknown state counts as changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_dynamic_tables.core.partition_transforms import plain_keys
from airflow_dynamic_tables.core.partitions import describe
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.source_changes import Origin, SourceDifference, SourceHistory, SourceState
from airflow_dynamic_tables.core.types import Struct, parse_type
from airflow_dynamic_tables.definitions.queries.text import origins
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.ledger.base import Refresh
from airflow_dynamic_tables.services.refresh.planning import Bound
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace


@dataclass(frozen=True, slots=True)
class SourceChange:
    """A change of a source, and the mapping of our partition keys to its keys with the same values.

    A source without versions counts as changed, and so does one that the refresh did not read (``is_new``). ``why`` is the reason
    for people.
    """

    source: str
    why: str
    difference: SourceDifference
    keys: Mapping[str, str]
    has_versions: bool
    is_new: bool


class Comparison:
    """Comparison of the current state of a table and its sources with the states recorded by its refreshes."""

    def __init__(self, workspace: Workspace, registered: RegisteredTable, bound: Bound) -> None:
        table = bound.table
        self.versions: set[int] = set()
        self._ledger = workspace.ledger
        self._bound = bound
        self._content = registered.loaded.read().state
        self._histories: dict[str, SourceHistory] = {}
        self._kinds = {column.name: column.type for column in registered.columns}
        self._changes: dict[str | None, list[SourceChange]] = {}
        # Column names are compared case-insensitively, as Spark does by default.
        is_default = bound.settings.get("spark.sql.caseSensitive", "false").strip().lower() == "false"
        keys = plain_keys(table.partition_keys) if is_default else ()
        self._origins = {key: origins(table.expanded_query, key) for key in keys}

    def why_moved(self, spec: Mapping[str, str | None], history: Sequence[Refresh]) -> str | None:
        """Return why a partition must be refreshed; ``None`` if it is unchanged.

        :param history: the refreshes of the table, newest first.
        """
        refresh = next((one for one in history if one.partitions.covers(spec)), None)
        if refresh is None:
            return f"{describe(spec) or 'the complete table'} has never been built"
        if refresh.recipe != self._bound.recipe:
            return self._bound.why_other_recipe
        self.versions.add(refresh.version or 0)
        own = self.own_change_since(refresh.token)
        if own is not None and self.concerns(own, spec):
            return own.why
        changes = self.changes_since(refresh.token)
        return next((change.why for change in changes if self.concerns(change, spec)), None)

    def concerns(self, change: SourceChange, spec: Mapping[str, str | None]) -> bool:
        """Return whether a change may affect the rows of a partition."""
        return change.difference.concerns(spec, change.keys, self._kinds)

    def only_in(self, change: SourceChange, keys: Mapping[str, str]) -> list[dict[str, str]] | None:
        """Return the partitions with all rows that a change may affect; see :meth:`SourceDifference.only_in`."""
        return change.difference.only_in(keys, self._kinds)

    def changes_since(self, token: str | None) -> list[SourceChange]:
        """Return the changes of sources since a refresh; ``None`` is an unknown one."""
        if token not in self._changes:
            found = ((source, self._since(token, source.identifier, source.state)) for source in self._bound.sources)
            self._changes[token] = [self._change(token, source, other) for source, other in found if other is not None]
        return self._changes[token]

    def own_change_since(self, token: str | None) -> SourceChange | None:
        """Return how the table differs from the state in which a refresh left it; ``None`` if it does not."""
        name = str(self._bound.table.identifier)
        if (difference := self._since(token, name, self._content)) is None:
            return None
        keys = {key: key for key in self._bound.table.partition_keys}
        return SourceChange(name, f"the table is not as its refresh left it: {difference.why}", difference, keys, True, False)

    def _change(self, token: str | None, source: SourceBinding, difference: SourceDifference) -> SourceChange:
        return SourceChange(
            source=source.identifier,
            why=f"{source.identifier} moved: {difference.why}",
            difference=difference,
            keys=self._keys_of(source),
            has_versions=source.state is not None and source.state.partitions is not None,
            is_new=not self._history(source.identifier, source.state).knows(token),
        )

    def is_known(self, token: str | None) -> bool:
        """Return whether the state of a source is known as a refresh read it."""
        return any(self._history(source.identifier, source.state).knows(token) for source in self._bound.sources)

    def _since(self, token: str | None, source: str, now: SourceState | None) -> SourceDifference | None:
        return self._history(source, now).difference(token)

    def _history(self, source: str, now: SourceState | None) -> SourceHistory:
        if source not in self._histories:
            self._histories[source] = SourceHistory(self._ledger.readings(self._bound.table.identifier, source), now)
        return self._histories[source]

    def _keys_of(self, source: SourceBinding) -> dict[str, str]:
        if "char(" in (source.schema or "").lower():
            return {}  # Spark pads these values with spaces
        own = {key: found[source.identifier] for key, found in self._origins.items() if source.identifier in found}
        return {key: one.column for key, one in own.items() if one.is_itself or self._is_alike(source, one, key)}

    def _is_alike(self, source: SourceBinding, origin: Origin, key: str) -> bool:
        """Return whether a source column has the type of our key. Spark may format values of another type differently."""
        return key in self._kinds and _type_of(source, origin.column) == self._kinds[key]


def _type_of(source: SourceBinding, column: str) -> str | None:
    """Return the type of a column as Spark reads it; ``None`` if only the files contain it."""
    if source.schema is None:
        return None
    try:
        schema = parse_type(f"struct<{source.schema}>")
    except UnsupportedError:
        return None
    types = {field.name.lower(): str(field.type) for field in schema.fields} if isinstance(schema, Struct) else {}
    # The job reads a partition key that is missing in the schema as a string.
    return types.get(column.lower(), "string" if column in source.partition_keys else None)
