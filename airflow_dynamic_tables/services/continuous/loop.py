"""Continuous mode: the loop of a table, which runs turns and watches the table's definition, and its strategies."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.plain import to_plain
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schedule import ContinuousSettings, Freshness, StrategyName, grid_time
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.cache import normalised
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.exceptions import (
    CommitRejectedError,
    ConfigurationError,
    ConflictError,
    DynamicTableError,
    JobMisfitError,
    QuarantinedError,
    SchemaEvolutionError,
    UnsupportedError,
)
from airflow_dynamic_tables.formats.small_files import Limits
from airflow_dynamic_tables.services.continuous.base import Strategy, TurnOutcome, Work
from airflow_dynamic_tables.services.continuous.streams.strategy import Streaming
from airflow_dynamic_tables.services.maintenance.compacting import compact
from airflow_dynamic_tables.services.outcomes import collecting
from airflow_dynamic_tables.services.refresh.preview import choose
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


_OF_NO_TASK = frozenset({"file", "line", "deadline", "executor"})
"""Properties that do not concern a running loop: the location of a definition, and settings of the scheduler."""


class DefinitionWatch:
    """Watches the definition of a table for changes.

    :param load: reads the definitions that the table's workflow needs; empty if they are invalid or removed.
    """

    def __init__(self, table: DynamicTable, sources: Mapping[TableIdentifier, Source], load: Callable[[], Definitions]) -> None:
        self._table = table
        self._load = load
        self._first = _meaning(table, sources)

    def halt(self) -> Halt | None:
        """End the loop if the definition has changed; suspend its turns while the definition is invalid or missing.

        An invalid definition may be an incomplete deployment. If the definition was removed permanently, no new run follows when
        the hold of this one is over.
        """
        definitions = self._load()
        table = definitions.tables.get(self._table.identifier)
        if table is None:
            return Halt(f"the definition of {self._table.identifier} is gone, or has mistakes")
        needed = {name: definitions.sources[name] for name in definitions.needed_by(table) if name in definitions.sources}
        return Halt("its definition changed", ends=True) if _meaning(table, needed) != self._first else None


def _meaning(table: DynamicTable, sources: Mapping[TableIdentifier, Source]) -> list[Any]:
    said = [normalised(table), *(to_plain(sources[name]) for name in sorted(sources))]
    return [{key: value for key, value in each.items() if key not in _OF_NO_TASK} for each in said]


class Monitor:
    """Limits how often turns list the sources of a table, by ``streaming-source.monitor-interval``."""

    def __init__(self, work: Work, seconds: Callable[[], float] = time.monotonic) -> None:
        marks = (source.watermark for name, source in work.sources.items() if name in work.table.upstream)
        intervals = (mark.monitor_interval for mark in marks if mark is not None)
        self._interval = min((interval.total_seconds() for interval in intervals if interval is not None), default=0)
        self._seconds = seconds
        self._looked_at: float | None = None

    def next_batch(self, request: RefreshRequest) -> Batch | None:
        """Return the batch of a turn; ``None`` if the interval has not elapsed."""
        now = self._seconds()
        if self._looked_at is not None and now - self._looked_at < self._interval:
            return None
        self._looked_at = now
        return Batch(request)


def watched(work: Work) -> MicroRefresh:
    """Return the micro-refresh strategy with a monitor of the table's sources."""
    return MicroRefresh(work, Monitor(work).next_batch)


log = logging.getLogger(__name__)

MOST_FAILURES = 5
"""Number of consecutive failed turns after which the task fails, so that its failure is reported."""

FIRST_DELAY = timedelta(seconds=5)
"""Delay after a failed turn; it doubles with every further failure."""

RUN_DELAY = timedelta(minutes=5)
"""Delay of the first turn of a run after a failed run, because Airflow starts the next run immediately."""

ASKED_EVERY = timedelta(seconds=10)
"""How often a loop that waits for its next turn checks whether to continue."""

_ASKED = ASKED_EVERY.total_seconds()

_STOPPED = "the task was stopped"

_HOPELESS = (ConfigurationError, SchemaEvolutionError, JobMisfitError, QuarantinedError, UnsupportedError)
"""Errors that a further turn would only repeat."""


@dataclass(frozen=True, slots=True)
class Halt:
    """A reason to run no turn now. With ``ends`` the loop ends; otherwise it continues to wait and checks again."""

    why: str
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The successful end of a loop: the committed versions, oldest first, the number of turns, and the reason."""

    versions: tuple[Version, ...]
    turns: int
    why: str


class Stop(Protocol):
    """An event that ends the loop immediately when it is set."""

    def is_set(self) -> bool:
        """Return whether the event is set."""

    def wait(self, timeout: float) -> bool:
        """Wait until the event is set, for at most that many seconds."""


@dataclass(slots=True)
class Loop:
    """The turns of one table in one task.

    :param halt: called before every turn, and every few seconds between turns.
    :param clock: the wall clock, which determines when turns are due.
    :param delay: delay before the first turn.
    """

    strategy: Strategy
    freshness: Freshness
    settings: ContinuousSettings
    halt: Callable[[], Halt | None]
    stop: Stop
    clock: Callable[[], datetime]
    seconds: Callable[[], float]
    delay: timedelta = timedelta()
    _versions: list[Version] = field(default_factory=list)
    _turns: int = 0
    _failures: int = 0
    _due: float = 0
    _ends_at: float = 0
    _told: str = ""

    def run(self) -> Ended:
        """Run turns until there is a reason to end.

        :raises DynamicTableError: if turns fail repeatedly, or fail permanently.
        """
        self._due = self.seconds() + self.delay.total_seconds()
        self._ends_at = self.seconds() + self.settings.hold.total_seconds()
        why = ""
        while not why:
            try:
                why = self._step()
            except Exception as error:
                if self.stop.is_set():
                    why = _STOPPED
                elif self._versions:
                    # A failed task reports no versions. The next run meets the same error, and fails.
                    why = f"a turn failed: {error}"
                else:
                    raise
        return Ended(tuple(self._versions), self._turns, why)

    def _step(self) -> str:
        """Run the turn that is due, or wait for it for a while.

        :return: the reason to end the loop; empty if it continues.
        """
        now = self.seconds()
        if self.stop.is_set():
            return _STOPPED
        if now >= self._ends_at:
            return "its commits have to be reported" if self._versions else "its hold is over"
        try:
            halt = self.halt()
            if halt is not None and halt.ends:
                return halt.why
            if halt is None and now >= self._due:
                self._turn()
                return ""
        except _HOPELESS:
            raise
        except Exception as error:
            self._failed(error)
            return ""
        if halt is not None:
            self._tell(f"No turn: {halt.why}.")
        self.stop.wait(min(_ASKED, self._ends_at - now, _ASKED if halt is not None else self._due - now))
        return ""

    def _turn(self) -> None:
        self._turns += 1
        try:
            outcome = self.strategy.turn(self._turns)
        except CommitRejectedError:
            raise
        except ConflictError as error:
            # A refresh or rollback by hand is running; the next turn reads its changes.
            outcome = TurnOutcome(reason=str(error))
        self._failures = 0
        if outcome.versions and not self._versions:
            self._ends_at = min(self._ends_at, self.seconds() + self.settings.events.total_seconds())
        self._versions += outcome.versions
        self._due = self.seconds() + (0 if outcome.more else self._until_next())
        if not outcome.versions:
            self._tell(f"Turn {self._turns} had nothing to do: {outcome.reason}.", about=outcome.reason)

    def _failed(self, error: Exception) -> None:
        """Wait before the next turn.

        :raises Exception: the error itself, if there were too many failures, or the task is stopping.
        """
        self._failures += 1
        if self._failures >= MOST_FAILURES or self.stop.is_set():
            raise error
        delay = backoff(self._failures)
        unforeseen = not isinstance(error, DynamicTableError)
        log.warning("Turn %s failed, the next one is in %.0f s: %s", self._turns, delay, error, exc_info=unforeseen)
        self._due = self.seconds() + delay
        self.stop.wait(delay)

    def _until_next(self) -> float:
        """Return the seconds until the next multiple of the freshness, at most one freshness if the clock jumped."""
        now = self.clock()
        wait: timedelta = grid_time(now, self.freshness) + self.freshness.period - now
        return wait.total_seconds()

    def _tell(self, what: str, about: str = "") -> None:
        """Log why nothing happens, once for each reason."""
        if (about or what) != self._told:
            log.info("%s", what)
        self._told = about or what


def backoff(failures: int) -> float:
    """Return the seconds until the turn after that many failures: exponential, with up to a quarter of random reduction.

    The jitter prevents tables that failed together, for example with their server, from retrying at the same time.
    """
    return FIRST_DELAY.total_seconds() * 2.0 ** (failures - 1) * random.uniform(0.75, 1)


STRATEGIES: Mapping[StrategyName, Callable[[Work], Strategy]] = {
    StrategyName.MICRO_REFRESH: watched,
    StrategyName.STREAM: Streaming,
}
"""Factory of each strategy."""


def strategy_of(work: Work) -> Strategy:
    """Create the strategy of a table."""
    return Tidying(work, STRATEGIES[choose(work.table, work.sources).strategy](work))


_MB = 1024 * 1024

LIMITS = Limits(small=8 * _MB, target=32 * _MB, most=32 * _MB, whole=32 * _MB)
"""Limits of a compaction between turns, which takes about a second. The rest is left to the maintenance."""


class Tidying:
    """A strategy that compacts its table after a turn that left too many small files."""

    def __init__(self, work: Work, strategy: Strategy) -> None:
        self._work = work
        self._strategy = strategy

    def turn(self, number: int) -> TurnOutcome:
        """See :meth:`Strategy.turn`. A failed compaction is left to the maintenance."""
        outcome = self._strategy.turn(number)
        if outcome.versions and not outcome.more:
            try:
                compact(self._work.workspace, self._work.table.identifier, LIMITS, is_cheap=True)
            except Exception:
                log.exception("%s could not be compacted; the maintenance does it.", self._work.table.identifier)
        return outcome

    def close(self) -> None:
        """See :meth:`Strategy.close`."""
        self._strategy.close()
