"""Whether anything moved that a table is made of. If nothing did, a refresh is left out, and the table is fresh all the same.

Compared is what the refresh that made the rows recorded with what is there now: the recipe (query, functions, settings), every
source, and the rows of the table itself, which others may have changed. What nobody knows has moved.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import NAMESPACE_URL, uuid5

from airflow_dynamic_tables.core.partitioning import plain_keys
from airflow_dynamic_tables.core.refresh.actions import Reason, ReasonCode, RefreshAction
from airflow_dynamic_tables.core.refresh.moved import Difference, Origin, difference
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.tables.partitions import NO_PARTITIONS, WHOLE_TABLE, PartitionSet, describe, parse_spec
from airflow_dynamic_tables.core.tables.type_parsing import parse_type
from airflow_dynamic_tables.core.tables.types import Struct
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.definitions.queries.text import origins
from airflow_dynamic_tables.exceptions import DynamicTableError, UnsupportedError
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.services.refresh.planning import Attempt, Bound, ToDo, bind
from airflow_dynamic_tables.services.refresh.preview import why_it_varies
from airflow_dynamic_tables.services.refresh.requests import NEVER, RefreshRequest, Skipped
from airflow_dynamic_tables.services.registered import RegisteredTable
from airflow_dynamic_tables.services.stages.leases import COMPACTION
from airflow_dynamic_tables.services.tables.freshness import stretch
from airflow_dynamic_tables.services.tables.ticks import standing
from airflow_dynamic_tables.services.watermarks.growth import Growth
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)

_LATEST = 50
"""Refreshes of the history that are looked at: a partition that an older one made is made anew."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Which partitions of a table have to be made anew because what they are made of has moved, and why.

    They are all that were asked for when nobody knows. ``version`` is the table's current one, and ``bound`` all that it is made
    of as it was compared; with ``holds``, nothing has moved.
    """

    partitions: PartitionSet
    why: str
    version: Version | None = None
    bound: Bound | None = None
    holds: bool = False


class _MovedError(Exception):
    """Something has moved, or may have; the message says what."""


def without_unchanged(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable, to_do: ToDo) -> ToDo | Skipped:
    """Leave out of a scheduled refresh what has not moved. If nothing has, say so in the history.

    Of the time partitions of a table, its sources that have a watermark alone say which have to be made.

    :param to_do: all that it would do.
    :return: what it has to do; all of it when somebody asked for it.
    """
    growth = to_do.growth
    asked = to_do.partitions
    by_watermark = growth is not None and bool(request.table.formatters)
    if not request.is_scheduled or (growth is not None and growth.obstacle is not None) or (by_watermark and not asked.is_empty):
        return to_do
    if by_watermark:
        why = f"no new complete partition: {growth}"
        moved = Moved(NO_PARTITIONS, why, registered.current(), holds=True)
    else:
        moved = what_moved(workspace, request, registered, asked, growth)
    if moved.holds and moved.version is not None:
        return skip(workspace, request, Reason(ReasonCode.UNCHANGED, moved.why), moved.version, growth=growth)
    log.info("Building %s of %s: %s.", moved.partitions.brief, request.table.identifier, moved.why)
    # What a refresh reads of a source with a watermark depends on the partitions that it replaces.
    is_bound_for_these = growth is None or moved.partitions == asked
    base = moved.version.token if moved.version is not None else None
    return ToDo(moved.partitions, growth, moved.bound if is_bound_for_these else None, base)


def what_moved(
    workspace: Workspace, request: RefreshRequest, registered: RegisteredTable, asked: PartitionSet, growth: Growth | None = None
) -> Moved:
    """Which of the partitions that a scheduled refresh would replace have to be replaced. Only looks, and needs no Spark.

    :param asked: those that it would replace, see :func:`~airflow_dynamic_tables.services.refresh.planning.planned_partitions`.
    :param growth: the sources that have a watermark.
    """
    version: Version | None = None
    bound: Bound | None = None
    try:
        version, history = _standing(workspace, request, registered)
        bound = bind(workspace, request, asked, growth)
        if why := why_it_varies(bound.table):
            return Moved(asked, why, version, bound)
        comparison = _Comparison(workspace, registered, bound, history)
        found = [(spec, comparison.why_moved(spec)) for spec in asked or WHOLE_TABLE]
    except _MovedError as reason:
        return Moved(asked, str(reason))
    except (DynamicTableError, OSError) as error:
        # The refresh itself meets the same, and knows what to do.
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
    """Write into the history that nothing is done. As long as that goes on, what nobody asked for is one line.

    :param version: the current one, where it holds up to the time of the request: the table is as fresh as that.
    :param instead_of: token of a refresh that was skipped at last, which need not be told of then.
    :param growth: the sources that have a watermark.
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
        workspace.ledger.update_refresh(version.token, unbroken=True)  # no other version says so
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
        watermark=growth.reached_at(request.table.timezone) if growth is not None else None,
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
    """The token of the line of the history that tells of it: another one begins after a refresh that had a stage."""
    if version is not None:
        return stretch(version.token)
    if request.batch is not None:
        return f"{request.batch.position.stream}-{reason.code.lower()}"
    last = workspace.ledger.last_stage(request.table.identifier)
    since = last.token if last is not None else uuid5(NAMESPACE_URL, str(request.table.identifier)).hex
    return f"{since}-{reason.code.lower()}"


def remember(workspace: Workspace, attempt: Attempt, version: Version) -> None:
    """Keep what a commit left of the table, by which changes of others are noticed; without that no refresh is left out."""
    identifier = attempt.request.table.identifier
    if not attempt.request.table.skip_unchanged or attempt.request.batch is not None:
        return
    replaced = attempt.plan.partitions
    token = attempt.request.token
    try:
        left = attempt.registered.reload().read().state
        if left is not None and left.version == version.snapshot:
            if not replaced.is_whole:
                kept = {
                    text: rows for text, rows in (left.partitions or {}).items() if text and replaced.covers(parse_spec(text))
                }
                left = replace(left, partitions=kept)
            states = workspace.ledger.source_states(token)
            workspace.ledger.record_source_states(token, {**states, str(identifier): left})
    except Exception:
        log.exception("What %s is like now could not be kept; its next refresh is not left out.", identifier)


def _standing(workspace: Workspace, request: RefreshRequest, registered: RegisteredTable) -> tuple[Version, list[Refresh]]:
    """The current version, and the refreshes that made it and those before it, newest first.

    :raises _MovedError: when there is none, or something came after it.
    """
    ledger = workspace.ledger
    identifier = request.table.identifier
    if not request.table.skip_unchanged:
        raise _MovedError("skip_unchanged is false")
    if workspace.now() < request.schedule_time:
        raise _MovedError("what is read now may not be all that comes before its schedule time")
    version = registered.current()
    if version is None:
        raise _MovedError("it has no version yet")
    if registered.loaded.undone():
        raise _MovedError("another engine changed the table")
    unfinished = [stage for stage in ledger.list_stages(identifier) if stage.owner != COMPACTION]
    opened = ledger.last_stage(identifier, but_of=COMPACTION)
    refreshes = [refresh for refresh in ledger.list_refreshes(identifier, _LATEST) if refresh.state is not RefreshState.SKIPPED]
    last = {refresh.token for refresh in refreshes[:1]}
    # Clocks of several machines tell no order, the ledger does, as long as it knows the stage.
    last |= {opened.token} if opened is not None else set()
    if unfinished or last != {version.token}:
        raise _MovedError("its last refresh did not succeed")
    return version, standing(refreshes, version.number)


class _Comparison:
    """What is there now, compared with what each refresh recorded that made some of the partitions last.

    :param history: the refreshes that made it, newest first.
    """

    def __init__(self, workspace: Workspace, registered: RegisteredTable, bound: Bound, history: Sequence[Refresh]) -> None:
        table = bound.table
        self.versions: set[int] = set()
        self._ledger = workspace.ledger
        self._bound = bound
        self._content = registered.loaded.read().state
        self._history = history
        self._kinds = {column.name: column.type for column in registered.columns}
        self._differences: dict[str, list[tuple[str, Difference, dict[str, str]]]] = {}
        # The names of columns are compared as Spark does by default: ``ds`` and ``DS`` are one.
        is_default = bound.settings.get("spark.sql.caseSensitive", "false").strip().lower() == "false"
        keys = plain_keys(table.partition_keys) if is_default else ()
        self._origins = {key: origins(table.expanded_query, key) for key in keys}

    def why_moved(self, spec: Mapping[str, str | None]) -> str | None:
        """Why a partition has to be made anew; ``None`` when it has not."""
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

    def _since(self, refresh: Refresh) -> Iterator[tuple[str, Difference, dict[str, str]]]:
        """What is different, by table: in words, how, and which of our partition keys is which of its."""
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
            return {}  # Spark fills its values up with blanks
        own = {key: found[source.identifier] for key, found in self._origins.items() if source.identifier in found}
        return {key: one.column for key, one in own.items() if one.is_itself or self._is_alike(source, one, key)}

    def _is_alike(self, source: SourceBinding, origin: Origin, key: str) -> bool:
        """Whether a column of a source has the type of our key: of another one, Spark may spell values otherwise."""
        return key in self._kinds and _type_of(source, origin.column) == self._kinds[key]


def _type_of(source: SourceBinding, column: str) -> str | None:
    """The type of a column as Spark reads it; ``None`` when only the files tell."""
    if source.schema is None:
        return None
    try:
        schema = parse_type(f"struct<{source.schema}>")
    except UnsupportedError:
        return None
    types = {field.name.lower(): str(field.type) for field in schema.fields} if isinstance(schema, Struct) else {}
    # The job takes a partition key that a schema leaves out for a string.
    return types.get(column.lower(), "string" if column in source.partition_keys else None)
