"""Change detection: skip a scheduled refresh, and record the table as fresh, if nothing that it depends on has changed.

The state recorded by the refresh that created the rows is compared with the current state of the recipe (query, functions,
settings), of every source, and of the table itself, which other engines may have changed. Unknown state counts as changed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import NAMESPACE_URL, uuid5

from airflow_dynamic_tables.core.partition_transforms import plain_keys
from airflow_dynamic_tables.core.partitions import NO_PARTITIONS, WHOLE_TABLE, PartitionSet, describe, parse_spec
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, SourceBinding
from airflow_dynamic_tables.core.refresh.reasons import Reason, ReasonCode, RefreshAction
from airflow_dynamic_tables.core.refresh.source_changes import Origin, SourceDifference, difference
from airflow_dynamic_tables.core.types import Struct, parse_type
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.queries.text import origins
from airflow_dynamic_tables.exceptions import DynamicTableError, UnsupportedError
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.services.refresh.catching_up import standing
from airflow_dynamic_tables.services.refresh.planning import Bound, ToDo, bind_inputs
from airflow_dynamic_tables.services.refresh.preview import why_it_varies
from airflow_dynamic_tables.services.refresh.requests import NEVER, RefreshRequest, Skipped
from airflow_dynamic_tables.services.source_progress import Growth
from airflow_dynamic_tables.services.tables.source_reads import stretch
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace
from airflow_dynamic_tables.services.writes.leases import COMPACTION

log = logging.getLogger(__name__)

_LATEST = 50
"""Limit of refreshes read from the history; partitions of older ones are refreshed again."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The partitions of a table that must be refreshed because their inputs changed, and why.

    These are all requested partitions if the changes are unknown. ``version`` is the current version; ``bound`` are the inputs as
    they were compared. ``holds`` means that nothing has changed.
    """

    partitions: PartitionSet
    why: str
    version: Version | None = None
    bound: Bound | None = None
    holds: bool = False


class _MustRefreshError(Exception):
    """An input has changed or may have changed; the message describes the change."""


def what_remains(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable, to_do: ToDo) -> ToDo | Skipped:
    """Return the work of a refresh, if it is scheduled without unchanged partitions. If none remains, record a skip."""
    remaining = _without_unchanged(workspace, request, registered, to_do)
    if isinstance(remaining, Skipped) or (nothing := _nothing_to_do(request, remaining)) is None:
        return remaining
    return skip(workspace, request, Reason(ReasonCode.NOTHING_TO_REFRESH, nothing), growth=remaining.growth)


def _nothing_to_do(request: RefreshRequest, to_do: ToDo) -> str | None:
    """Return why there is nothing to refresh, or why the sources are unreadable while being rewritten; ``None`` otherwise."""
    growth = to_do.growth
    if growth is not None and growth.obstacle is not None and request.partitions is None and not request.full_refresh:
        return growth.obstacle
    if to_do.partitions.is_empty:
        return f"no new complete partition: {growth}" if growth else "there is nothing to refresh"
    return None


def _without_unchanged(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable, to_do: ToDo) -> ToDo | Skipped:
    """With time partitions and watermark sources, only the watermarks determine which partitions to refresh."""
    growth = to_do.growth
    asked = to_do.partitions
    by_watermark = growth is not None and bool(request.table.formatters)
    if not request.is_scheduled or (growth is not None and growth.obstacle is not None) or (by_watermark and not asked.is_empty):
        return to_do
    if by_watermark:
        why = f"no new complete partition: {growth}"
        moved = Moved(NO_PARTITIONS, why, registered.current(), holds=True)
    else:
        moved = detect_changes(workspace, request, registered, asked, growth)
    if moved.holds and moved.version is not None:
        return skip(workspace, request, Reason(ReasonCode.UNCHANGED, moved.why), moved.version, growth=growth)
    log.info("Building %s of %s: %s.", moved.partitions.brief, request.table.identifier, moved.why)
    # The binding of a source with a watermark depends on the partitions that are replaced.
    is_bound_for_these = growth is None or moved.partitions == asked
    base = moved.version.token if moved.version is not None else None
    return ToDo(moved.partitions, growth, moved.bound if is_bound_for_these else None, base)


def detect_changes(
    workspace: Workspace, request: RefreshRequest, registered: RegisteredTable, asked: PartitionSet, growth: Growth | None = None
) -> Moved:
    """Return which partitions of a scheduled refresh have changed inputs, without side effects and without Spark."""
    version: Version | None = None
    bound: Bound | None = None
    try:
        version, history = _standing(workspace, request, registered)
        bound = bind_inputs(workspace, request, asked, growth)
        if why := why_it_varies(bound.table):
            return Moved(asked, why, version, bound)
        comparison = _Comparison(workspace, registered, bound, history)
        found = [(spec, comparison.why_moved(spec)) for spec in asked or WHOLE_TABLE]
    except _MustRefreshError as reason:
        return Moved(asked, str(reason))
    except (DynamicTableError, OSError) as error:
        # The refresh meets the same error and handles it.
        return Moved(asked, f"cannot tell whether its sources changed: {error}", version, bound)
    moved = [(spec, why) for spec, why in found if why]
    if moved:
        partitions = asked if asked.is_empty else PartitionSet.of(spec for spec, _ in moved)
        return Moved(partitions, moved[0][1] or "", version, bound)
    sources = ", ".join(f"{source.identifier} ({source.version})" for source in bound.sources) or "it reads no table"
    made = " and ".join(map(str, sorted(comparison.versions)))
    return Moved(NO_PARTITIONS, f"nothing that it reads has moved since version {made}: {sources}", version, bound, holds=True)


def skip(
    workspace: Workspace,
    request: RefreshRequest,
    reason: Reason,
    version: Version | None = None,
    instead_of: str = "",
    growth: Growth | None = None,
) -> Skipped:
    """Record a skip in the history. Consecutive skips of scheduled refreshes share one record.

    :param version: the current version if it is valid up to the time of the request, so that the table is fresh up to then.
    :param instead_of: token of a refresh that was skipped at its commit, whose record is replaced by this one.
    """
    is_line = request.is_scheduled or request.batch is not None
    token = _line(workspace, request, reason, version) if is_line else request.token
    skipped = _skipped(workspace, replace(request, token=token), reason, version, growth)
    if is_line:
        workspace.ledger.extend(skipped, instead_of)
    else:
        workspace.ledger.record(skipped)
    if version is None:
        return Skipped(reason)
    if request.unbroken:
        workspace.ledger.update_refresh(version.token, unbroken=True)  # this is recorded with no other version
    return Skipped(reason, request.schedule_time)


def _skipped(
    workspace: Workspace, request: RefreshRequest, reason: Reason, version: Version | None, growth: Growth | None
) -> Refresh:
    now = workspace.now()
    skipped = Refresh(
        token=request.token,
        table=request.table.identifier,
        action=RefreshAction.SKIP,
        reason=reason.text,
        reason_code=reason.code,
        state=RefreshState.SKIPPED,
        schedule_time=request.schedule_time,
        started_at=now,
        finished_at=now,
        partitions=NO_PARTITIONS,
        complete_until=request.complete_until,
        watermark=growth.reached_at if growth is not None else None,
    )
    if version is None:
        return skipped
    return replace(
        skipped,
        action=RefreshAction.NO_DATA,
        data_timestamp=None if request.complete_until == NEVER else request.complete_until or request.schedule_time,
        version=version.number,
        snapshot=version.snapshot,
        sources=version.sources,
    )


def _line(workspace: Workspace, request: RefreshRequest, reason: Reason, version: Version | None) -> str:
    """Return the token of the shared history record; a new record begins after a refresh that had a stage."""
    if version is not None:
        return stretch(version.token)
    if request.batch is not None:
        return f"{request.batch.position.stream}-{reason.code.lower()}"
    last = workspace.ledger.last_stage(request.table.identifier)
    since = last.token if last is not None else uuid5(NAMESPACE_URL, str(request.table.identifier)).hex
    return f"{since}-{reason.code.lower()}"


def remember(workspace: Workspace, registered: RegisteredTable, planned: RefreshPlan, version: Version) -> None:
    """Record the table's state after a commit, for detecting changes by other engines; without it no refresh is skipped."""
    replaced = planned.partitions
    try:
        left = registered.reload().read().state
        if left is not None and left.version == version.snapshot:
            if not replaced.is_whole:
                kept = {
                    text: rows for text, rows in (left.partitions or {}).items() if text and replaced.covers(parse_spec(text))
                }
                left = replace(left, partitions=kept)
            states = workspace.ledger.source_states(planned.token)
            workspace.ledger.record_source_states(planned.token, {**states, planned.identifier: left})
    except Exception:
        log.exception("What %s is like now could not be kept; its next refresh is not left out.", planned.identifier)


def _standing(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable) -> tuple[Version, list[Refresh]]:
    """Return the current version, and the refreshes that created it and earlier versions, newest first.

    :raises _MovedError: if there is no version, the table may have changed since, or ``skip_unchanged`` is false.
    """
    ledger = workspace.ledger
    identifier = request.table.identifier
    if not request.table.skip_unchanged:
        raise _MustRefreshError("skip_unchanged is false")
    if workspace.now() < request.schedule_time:
        raise _MustRefreshError("what is read now may not be all that comes before its schedule time")
    version = registered.current()
    if version is None:
        raise _MustRefreshError("it has no version yet")
    if registered.loaded.undone():
        raise _MustRefreshError("another engine changed the table")
    unfinished = [stage for stage in ledger.list_stages(identifier) if stage.owner != COMPACTION]
    opened = ledger.last_stage(identifier, but_of=COMPACTION)
    refreshes = [refresh for refresh in ledger.list_refreshes(identifier, _LATEST) if refresh.state is not RefreshState.SKIPPED]
    last = {refresh.token for refresh in refreshes[:1]}
    # Clocks of several machines give no reliable order; the ledger does, as long as it has the stage.
    last |= {opened.token} if opened is not None else set()
    if unfinished or last != {version.token}:
        raise _MustRefreshError("its last refresh did not succeed")
    return version, standing(refreshes, version.number)


class _Comparison:
    """Comparison of the current state with the state recorded by the refresh that last replaced each partition.

    :param history: the refreshes of the table, newest first.
    """

    def __init__(self, workspace: Workspace, registered: RegisteredTable, bound: Bound, history: Sequence[Refresh]) -> None:
        table = bound.table
        self.versions: set[int] = set()
        self._ledger = workspace.ledger
        self._bound = bound
        self._content = registered.loaded.read().state
        self._history = history
        self._kinds = {column.name: column.type for column in registered.columns}
        self._differences: dict[str, list[tuple[str, SourceDifference, dict[str, str]]]] = {}
        # Column names are compared case-insensitively, as Spark does by default.
        is_default = bound.settings.get("spark.sql.caseSensitive", "false").strip().lower() == "false"
        keys = plain_keys(table.partition_keys) if is_default else ()
        self._origins = {key: origins(table.expanded_query, key) for key in keys}

    def why_moved(self, spec: Mapping[str, str | None]) -> str | None:
        """Return why a partition must be refreshed; ``None`` if it is unchanged."""
        refresh = next((one for one in self._history if one.partitions.covers(spec)), None)
        if refresh is None:
            return f"{describe(spec) or 'the complete table'} has never been built"
        if refresh.recipe != self._bound.recipe:
            return "its definition changed"
        self.versions.add(refresh.version or 0)
        if refresh.token not in self._differences:
            self._differences[refresh.token] = list(self._since(refresh))
        return next(
            (why for why, other, keys in self._differences[refresh.token] if other.concerns(spec, keys, self._kinds)), None
        )

    def _since(self, refresh: Refresh) -> Iterator[tuple[str, SourceDifference, dict[str, str]]]:
        """Yield the differences by table: description, difference, and the mapping of our partition keys to its columns."""
        states = self._ledger.source_states(refresh.token)
        own = str(self._bound.table.identifier)
        if other := difference(states.get(own), self._content):
            keys = {key: key for key in self._bound.table.partition_keys}
            yield f"the table is not as version {refresh.version} left it: {other.why}", other, keys
        for source in self._bound.sources:
            if other := difference(states.get(source.identifier), source.state):
                yield f"{source.identifier} moved: {other.why}", other, self._keys_of(source)

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
