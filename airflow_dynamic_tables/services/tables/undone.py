"""Versions undone by another engine: recorded in the history, so that the next scheduled refresh makes up for them.

A table reports undone versions as long as its metadata contains them. After another engine has reset the table to an earlier
version, restored a dump, or dropped the table, only the history contains the later versions.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.ledger.base import RefreshState
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace

log = logging.getLogger(__name__)


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
