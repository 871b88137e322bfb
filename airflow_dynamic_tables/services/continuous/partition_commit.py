"""Partition commit: detects complete time partitions of a table, runs their policies, and reports them.

The history of refreshes contains the published partitions. The ledger records for which version of a partition the policies ran
and which version was reported. After an interruption the next check continues, and a partition changed by late data is
complete again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from airflow_dynamic_tables.clients.files import write_text
from airflow_dynamic_tables.core.formats import FORMATS
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partition_dates import start_of
from airflow_dynamic_tables.core.partitions import describe, parse_spec
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.streaming.partition_commits import (
    CommitPolicy,
    CommitTrigger,
    PartitionCommit,
    read_partition_commit,
)
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.ledger.details import PublishedPartition
from airflow_dynamic_tables.services.source_progress import made, partition_folders, recorded_watermark
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)

LOOK_EVERY = timedelta(minutes=1)
"""How often a loop checks for partitions that became complete without a refresh."""

_FEW, _MANY = 50, 1_000
"""Limits of refreshes read for published partitions: by default, and if those do not reach back to the last check."""


@dataclass(frozen=True, slots=True)
class CompletePartition:
    """The argument of a custom policy: ``values`` of the time partition keys, and the version that has the partition's rows.

    ``folders`` are the URIs of its folders, if it has any. A policy is called again after late data changed the rows, and may be
    called twice for the same version.
    """

    table: str
    values: Mapping[str, str]
    token: str
    folders: tuple[str, ...]


class PartitionCommits:
    """The partition commits of one table."""

    def __init__(self, workspace: Workspace, table: DynamicTable, sources: Mapping[TableIdentifier, Source]) -> None:
        self._workspace = workspace
        self._table = table
        self._sources = sources
        self._commit = read_partition_commit(table.options)

    @property
    def table(self) -> TableIdentifier:
        """The identifier of the table."""
        return self._table.identifier

    def complete(self) -> list[PublishedPartition]:
        """Return the complete partitions, at their latest version, whose policies ran and whose report is not confirmed.

        A failed policy is run again at the next check; the partition is not reported before it succeeds.
        """
        if self._commit is None:
            return []
        ledger = self._workspace.ledger
        rows = self._published()
        due = [row for row in rows if row.told != row.token and self._is_due(self._commit, row)]
        for number, row in enumerate(due):
            if row.done != row.token and self._has_run(self._commit, row):
                due[number] = replace(row, done=row.token)
                ledger.record_published(self.table, [due[number]])
        return [row for row in due if row.done == row.token]

    def watched(self, seconds: Callable[[], float]) -> Callable[[], bool]:
        """Return a function that checks once a minute for complete partitions that no task has offered yet."""
        looked_at = seconds()

        def has_news() -> bool:
            nonlocal looked_at
            if seconds() - looked_at < LOOK_EVERY.total_seconds():
                return False
            looked_at = seconds()
            return any(row.offered != row.token for row in self.complete())

        return has_news

    def confirm(self, told: Collection[tuple[str, str]]) -> None:
        """Record the partitions that the scheduler has received, each with the token of its version."""
        rows = self._workspace.ledger.published_partitions(self.table)
        known = [replace(row, told=row.token) for row in rows if (row.partition, row.token) in told]
        self._workspace.ledger.record_published(self.table, known)

    def offer(self, rows: list[PublishedPartition]) -> None:
        """Record that a task is about to report partitions; the scheduler confirms the report, see :meth:`confirm`."""
        offered = [replace(row, offered=row.token) for row in rows]
        self._workspace.ledger.record_published(self.table, offered)

    def _published(self) -> list[PublishedPartition]:
        """Return every published partition, after updating them from the history since the last check."""
        ledger = self._workspace.ledger
        rows = {row.partition: row for row in ledger.published_partitions(self.table)}
        known = {row.token for row in rows.values()}
        changed: dict[str, PublishedPartition] = {}
        for refresh in reversed(self._since(known)):
            time = refresh.finished_at or refresh.started_at
            for name in [*rows, *changed] if refresh.partitions.is_whole else self._names(refresh):
                before = changed.get(name) or rows.get(name) or PublishedPartition(name, refresh.token, time)
                changed[name] = replace(before, token=refresh.token)
        ledger.record_published(self.table, list(changed.values()))
        return list({**rows, **changed}.values())

    def _since(self, known: set[str]) -> list[Refresh]:
        """Return the refreshes with a version since the last known one, newest first."""
        found: list[Refresh] = []
        for limit in (_FEW, _MANY):
            refreshes = self._workspace.ledger.list_refreshes(self.table, limit)
            succeeded = [refresh for refresh in refreshes if refresh.state is RefreshState.SUCCEEDED]
            last = next((number for number, refresh in enumerate(succeeded) if refresh.token in known), None)
            found = succeeded[:last]
            if last is not None or len(refreshes) < limit:
                break
        return found

    def _names(self, refresh: Refresh) -> list[str]:
        keys = self._table.formatters
        specs = ({key: str(spec[key]) for key in keys} for spec in refresh.partitions if keys.keys() <= spec.keys())
        return list(dict.fromkeys(map(describe, specs)))

    def _is_due(self, commit: PartitionCommit, row: PublishedPartition) -> bool:
        if commit.trigger is CommitTrigger.PROCESS_TIME:
            return commit.is_due(row.published_at, self._workspace.now())
        try:
            start = start_of(parse_spec(row.partition), self._table.formatters)
        except ValueError:
            return False
        return commit.is_passed(start, self._watermark(), self._table.timezone)

    def _watermark(self) -> datetime | None:
        current = self._workspace.table(self.table, self._table.format).current()
        return recorded_watermark(self._workspace, self._table, self._sources, current)

    def _has_run(self, commit: PartitionCommit, row: PublishedPartition) -> bool:
        try:
            self._tell(commit, row)
        except (Exception, SystemExit):
            log.exception("Partition %s of %s is complete, but its policies failed.", row.partition, self.table)
            return False
        log.info("Partition %s of %s is complete.", row.partition, self.table)
        return True

    def _tell(self, commit: PartitionCommit, row: PublishedPartition) -> None:
        values = parse_spec(row.partition)
        has_folders = not FORMATS[self._table.format].keys_in_files
        folders = partition_folders(self._workspace, self.table, values) if commit.policies and has_folders else []
        for policy in commit.policies:
            if policy is CommitPolicy.SUCCESS_FILE:
                for folder in folders:
                    write_text(f"{folder}/{commit.success_file}", "")
            elif policy is CommitPolicy.CUSTOM and commit.policy_class is not None:
                custom: Any = made(commit.policy_class, "commit", self._workspace.settings.allowed)
                custom.commit(CompletePartition(str(self.table), values, row.token, tuple(folders)))
