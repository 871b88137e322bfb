"""The micro-refresh strategy: an ordinary refresh at every turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from airflow_dynamic_tables.core.schedule import grid_time
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.services.continuous.base import TurnOutcome, Work
from airflow_dynamic_tables.services.outcomes import collecting
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.refresh.upstream import reachable, what_is_missing
from airflow_dynamic_tables.services.tables.source_reads import fresh_until


@dataclass(frozen=True, slots=True)
class Batch:
    """The refresh of one turn. ``more`` means that another batch is ready."""

    request: RefreshRequest
    more: bool = False


NextBatch = Callable[[RefreshRequest], Batch | None]
"""Returns the batch for the request of a turn; ``None`` if there is nothing to do yet."""


class MicroRefresh:
    """A refresh at every turn in which the table is behind.

    :param next_batch: may reduce what a turn reads and replaces; by default everything.
    """

    def __init__(self, work: Work, next_batch: NextBatch = Batch) -> None:
        self._work = work
        self._next_batch = next_batch

    def turn(self, number: int) -> TurnOutcome:
        """Refresh the table up to the last multiple of its freshness."""
        work = self._work
        schedule_time = grid_time(work.workspace.now(), work.table.freshness)
        fresh = self._fresh_up_to()
        if fresh is not None and fresh >= schedule_time:
            return TurnOutcome(reason=f"fresh up to {fresh.isoformat()} already")
        request = RefreshRequest(
            table=work.table,
            sources=work.sources,
            schedule_time=schedule_time,
            token=work.token(number),
            owner=work.owner,
            is_reported=True,
            is_scheduled=True,
        )
        reach = reachable(work.workspace, request, work.parents)
        if not isinstance(reach, datetime):
            return TurnOutcome(reason=what_is_missing(reach))
        # A parent that was rolled back does not move this table backwards.
        request = replace(request, schedule_time=reach if fresh is None else max(reach, fresh))
        batch = self._next_batch(request)
        if batch is None:
            return TurnOutcome(reason="no batch is complete yet")
        versions: list[Version] = []
        outcome = run(work.workspace.with_listener(collecting(versions)), batch.request, work.submit, work.stop_job)
        reason = str(outcome.reason) if isinstance(outcome, Skipped) else ""
        return TurnOutcome(tuple(versions), reason, more=batch.more)

    def close(self) -> None:
        """Release nothing; no resources are kept."""

    def _fresh_up_to(self) -> datetime | None:
        work = self._work
        return fresh_until(work.workspace, work.workspace.table(work.table.identifier, work.table.format).current())
