"""Rollbacks, versions undone by another engine, and expiry of versions beyond the retention of a table.

A commit reads and writes the metadata of all versions, so its cost grows with their number. Refreshes therefore expire some
versions themselves, so that a table does not grow without bound if its maintenance is off. Files are deleted by the maintenance.

A table reports undone versions as long as its metadata contains them. After another engine has reset the table to an earlier
version, restored a dump, or dropped the table, only the history contains the later versions.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode, RefreshAction
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.core.versions import Retention, Version
from airflow_dynamic_tables.formats.base import kept_version
from airflow_dynamic_tables.ledger.base import HOLDING, Refresh, RefreshState, Stage
from airflow_dynamic_tables.services.outcomes import Operation
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace, as_dynamic
from airflow_dynamic_tables.services.writes.protocol import new_stage, staged_write

ENOUGH = 50
"""Number of versions due before a refresh expires them, which takes as long as a small commit."""

STREAMS_COME_BACK = timedelta(days=1)
"""How long snapshots are kept for a stream that has not read them yet. A stream that pauses for longer restarts."""

log = logging.getLogger(__name__)


def forget_versions(workspace: Workspace, registered: RegisteredTable, retention: Retention, least: int = 1) -> int:
    """Expire versions that are due, except those that an unfinished stage reads or may have created.

    :param least: nothing is expired while fewer versions are due.
    :return: the number of expired versions.
    :raises ConflictError: if concurrent commits prevent it; the next call repeats it.
    :raises CatalogUnavailableError: if the catalog or metadata cannot be read.
    """
    return registered.lake_table.expire(retention, workspace.now(), lambda: _pinned(workspace, registered.identifier), least)


def forget_after_commit(workspace: Workspace, registered: RegisteredTable, retention: Retention) -> None:
    """Expire versions at the end of a refresh if enough are due. Errors are logged; the next refresh repeats it."""
    try:
        forget_versions(workspace, registered, retention, ENOUGH)
    except Exception:
        message = "Old versions of %s could not be forgotten; the next refresh or the maintenance does it."
        log.exception(message, registered.identifier)


def _pinned(workspace: Workspace, table: TableIdentifier) -> set[str]:
    """Return the versions that unfinished stages may have created, that are being read, or from which streams continue."""
    pinned = {stage.token for stage in workspace.ledger.list_stages(table)}
    for stage in workspace.ledger.list_stages(states=HOLDING):
        refresh = workspace.ledger.get_refresh(stage.token)
        versions = (refresh.sources, refresh.referenced) if refresh is not None else ()
        pinned |= {each[str(table)] for each in versions if str(table) in each}
    return pinned | _read_by_streams(workspace, table)


def _read_by_streams(workspace: Workspace, table: TableIdentifier) -> set[str]:
    """Return the versions that streams have read last; streams read the later ones snapshot by snapshot."""
    since = workspace.now() - STREAMS_COME_BACK
    read: set[str] = set()
    for reader in workspace.ledger.tables():
        latest = (one for one in workspace.ledger.list_refreshes(reader) if one.reason_code is ReasonCode.STREAMED)
        refresh = next((one for one in latest if one.state is RefreshState.SUCCEEDED), None)
        if refresh is not None and refresh.started_at >= since and str(table) in refresh.sources:
            read.add(refresh.sources[str(table)])
    return read


@dataclass(frozen=True, slots=True)
class RollbackRequest:
    """A request to restore version ``number`` of a table; ``token`` and ``owner`` as for a refresh.

    ``with_columns`` also restores the columns and partition keys if they have changed; the definition must then be adapted.
    """

    identifier: TableIdentifier
    number: int
    token: str
    owner: str
    with_columns: bool = False


def rollback(workspace: Workspace, request: RollbackRequest) -> Version:
    """Restore the content of an earlier version as a new version.

    :raises TableNotFoundError: if the catalog has no such dynamic table.
    :raises VersionNotFoundError: if that version is not retained; the message lists those that are.
    :raises ConflictError: if a refresh of the table is running.
    :raises SchemaEvolutionError: if the columns of that version no longer fit the table.
    :raises CommitRejectedError: if the commit certainly did not land.
    :raises CommitUnknownError: if it is unknown whether the commit landed.
    """
    registered = workspace.look_up(request.identifier)
    as_dynamic(request.identifier, registered.entry)
    kept_version(registered.loaded.versions(), request.number, request.identifier)  # checked before anything is recorded
    staged = registered.lake_table.stage(request.token)
    stage = new_stage(workspace, registered, request.token, request.owner, staged.begin())
    with staged_write(workspace, Operation.ROLLBACK, stage, staged) as write:
        registered.reload()
        note_undone(workspace, registered)
        _record(workspace, stage, kept_version(registered.loaded.versions(), request.number, stage.table))
        trace(Step.RESTORING, stage.token)
        version = write.publish(partial(staged.restore, request.number, with_columns=request.with_columns))
        write.landed(version)
    return version


def _record(workspace: Workspace, stage: Stage, old: Version) -> None:
    """Begin the history record: a rollback has the sources and ticks of the version that it restores."""
    made = workspace.ledger.get_refresh(old.token)
    workspace.ledger.record(
        Refresh(
            token=stage.token,
            table=stage.table,
            action=RefreshAction.ROLLBACK,
            reason=f"version {old.number} asked for",
            reason_code=ReasonCode.ROLLBACK,
            state=RefreshState.RUNNING,
            schedule_time=old.data_timestamp or old.committed_at,
            started_at=stage.opened_at,
            sources={str(stage.table): old.snapshot},
            restores=old.number,
            unbroken=made.unbroken if made is not None else None,
            watermark=made.watermark if made is not None else None,
        )
    )
    workspace.ledger.record_source_states(stage.table, stage.token, workspace.ledger.source_states(old.token))


def note_undone(workspace: Workspace, registered: RegisteredTable) -> Version | None:
    """Record in the history the versions that another engine has undone, completely or in part; idempotent.

    Our own rollbacks create a version, so the history already has them.

    :return: the current version of the table.
    :raises CatalogUnavailableError: if the table or the ledger is unavailable.
    """
    identifier = registered.identifier
    errors: dict[str, str] = {}
    for undone in registered.loaded.undone():
        refresh = workspace.ledger.get_refresh(undone.version.token)
        if refresh is not None and refresh.state is RefreshState.SUCCEEDED:
            until = "" if undone.for_good else " until the next refresh makes up for it"
            errors[refresh.token] = f"Version {undone.version.number} was undone by another engine, {undone.how}{until}."
    current = registered.current()
    if gone := _not_in(workspace, registered, current):
        current = registered.reload().current()  # a commit may have landed before the history was read
        gone = {token: gone[token] for token in gone.keys() & _not_in(workspace, registered, current).keys()}
    for error in errors.values():
        log.warning("%s: %s", identifier, error)
    lost = {token: f"Version {number} is {_where(number, current)}." for token, number in gone.items() if token not in errors}
    if lost:
        newest = max(lost, key=lambda token: gone[token])
        more = f" {len(lost) - 1} earlier ones are gone, too." if len(lost) > 1 else ""
        log.warning("%s: %s%s", identifier, lost[newest], more)
    workspace.ledger.mark_undone(errors | lost)
    return current


def _not_in(workspace: Workspace, registered: RegisteredTable, current: Version | None) -> Mapping[str, int]:
    """Return the versions in the history that are newer than the current one, or differ from it and have its number."""
    identifier = registered.identifier
    if current is not None and registered.lake_table.remembers_undone:
        return {}
    if current is not None and current.number:
        made = workspace.ledger.list_versions(identifier, current.number)
        return {token: number for token, number in made.items() if number > current.number or token != current.token}
    kept = registered.loaded.versions() if current is not None else []
    return workspace.ledger.list_versions(identifier, kept[-1].number + 1 if kept else 1)


def _where(number: int, current: Version | None) -> str:
    if current is None:
        return "not in the table any more, which has no version: it was dropped, or another engine took it back"
    if not current.number:
        return (
            "not known to be in the table any more: another engine took it back, or rewrote it and removed its log or snapshots"
        )
    if number == current.number:
        return "not in the table any more, which was restored or made again, and has another version of that number"
    return f"not in the table any more: another engine took the table back to version {current.number}"


def with_undone(planned: PartitionSet, registered: RegisteredTable, partition_keys: Sequence[str]) -> PartitionSet:
    """Add the partitions of undone versions to those of a scheduled refresh.

    :param planned: the partitions of the scheduled refresh; the result has the same keys.
    """
    if planned.is_whole:
        return planned
    keys = tuple(next(iter(planned), dict.fromkeys(partition_keys)))
    undone = [spec for one in registered.loaded.undone() if not one.partitions.is_whole for spec in one.partitions]
    return planned.union(PartitionSet.of({key: spec[key] for key in keys} for spec in undone))
