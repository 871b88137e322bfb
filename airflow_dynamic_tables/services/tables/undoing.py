"""Versions that another engine took away: the history says so, and the next scheduled refresh makes up for their partitions."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.tables.partitions import PartitionSet
from airflow_dynamic_tables.formats.base import LakeTable
from airflow_dynamic_tables.ledger.base import RefreshState
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)


def note_undone(workspace: Workspace, identifier: TableIdentifier, table: LakeTable) -> None:
    """Write into the history which versions another engine took away, or partitions of them; idempotent.

    :raises CatalogUnavailableError: when table or ledger cannot be asked.
    """
    for undone in table.undone():
        refresh = workspace.ledger.get_refresh(undone.version.token)
        if refresh is None or refresh.state is not RefreshState.SUCCEEDED:
            continue
        until = "" if undone.for_good else " until the next refresh makes up for it"
        what = f"Version {undone.version.number} was undone by another engine, {undone.how}{until}."
        log.warning("%s: %s", identifier, what)
        workspace.ledger.update_refresh(refresh.token, state=RefreshState.UNDONE, error=what)


def with_undone(planned: PartitionSet, table: LakeTable, partition_keys: Sequence[str]) -> PartitionSet:
    """What a scheduled refresh replaces, and beside that the partitions of versions that another engine took away.

    :param planned: what it would replace otherwise. Partitions are named by the same keys.
    """
    if planned.is_whole:
        return planned
    keys = tuple(next(iter(planned), dict.fromkeys(partition_keys)))
    undone = [spec for one in table.undone() if not one.partitions.is_whole for spec in one.partitions]
    return planned.union(PartitionSet.of({key: spec[key] for key in keys} for spec in undone))
