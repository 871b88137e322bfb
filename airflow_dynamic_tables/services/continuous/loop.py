"""The loop of a task that keeps one table fresh: turn after turn, until there is a reason to end."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from airflow_dynamic_tables.core.schedule.continuous import ContinuousSettings, grid_time
from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.core.tables.versions import Version
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
from airflow_dynamic_tables.services.continuous.base import Strategy, TurnOutcome

log = logging.getLogger(__name__)

MOST_FAILURES = 5
"""Failed turns in a row after which the task fails, so that people are told."""

FIRST_DELAY = timedelta(seconds=5)
"""The delay after one failed turn; it doubles with every further one."""

RUN_DELAY = timedelta(minutes=5)
"""The delay of the first turn of a run whose predecessor failed: Airflow begins the next run at once."""

ASKED_EVERY = timedelta(seconds=10)
"""How often a loop that waits for its next turn asks whether it shall go on."""

_ASKED = ASKED_EVERY.total_seconds()

_STOPPED = "the task was stopped"

_HOPELESS = (ConfigurationError, SchemaEvolutionError, JobMisfitError, QuarantinedError, UnsupportedError)
"""Errors that another turn would only repeat."""


@dataclass(frozen=True, slots=True)
class Halt:
    """Why there shall be no turn now; with ``ends``, the loop ends, else it keeps its place and asks again."""

    why: str
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """How a loop came to its good end: the versions that it committed, the oldest first, the number of turns, and why."""

    versions: tuple[Version, ...]
    turns: int
    why: str


class Stop(Protocol):
    """An event: whoever sets it wants the loop to end at once."""

    def is_set(self) -> bool:
        """Whether it was set."""

    def wait(self, timeout: float) -> bool:
        """Wait until it is set, that many seconds at most."""


@dataclass(slots=True)
class Loop:
    """Turns of one table in one task.

    :param halt: asked before every turn, and every few seconds between two.
    :param clock: the time of day, by which turns are due.
    :param seconds: a clock that never jumps, by which the loop measures how long it runs.
    :param delay: how long to wait before the first turn.
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
        """Turn until there is a reason to end.

        :raises DynamicTableError: what is wrong, when turns fail for long, or fail for good.
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
                    # A task that fails tells of nothing. The next run meets the same error, and fails.
                    why = f"a turn failed: {error}"
                else:
                    raise
        return Ended(tuple(self._versions), self._turns, why)

    def _step(self) -> str:
        """Do the turn that is due, or wait for it a while.

        :return: why the loop is over; empty when it is not.
        """
        now = self.seconds()
        if self.stop.is_set():
            return _STOPPED
        if now >= self._ends_at:
            return "its commits are to be told" if self._versions else "its hold is over"
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
            # Somebody refreshes or rolls back by hand; what is new by then is read at the next turn.
            outcome = TurnOutcome(reason=str(error))
        self._failures = 0
        if outcome.versions and not self._versions:
            self._ends_at = min(self._ends_at, self.seconds() + self.settings.events.total_seconds())
        self._versions += outcome.versions
        self._due = self.seconds() + (0 if outcome.more else self._until_next())
        if not outcome.versions:
            self._tell(f"Turn {self._turns} had nothing to do: {outcome.reason}.", about=outcome.reason)

    def _failed(self, error: Exception) -> None:
        """Wait a while before the next turn.

        :raises Exception: that one, when it is one too many, or the task is to stop.
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
        """Seconds until the next multiple of the freshness; a clock that jumped makes it no longer than one freshness."""
        now = self.clock()
        wait: timedelta = grid_time(now, self.freshness) + self.freshness.period - now
        return wait.total_seconds()

    def _tell(self, what: str, about: str = "") -> None:
        """Say why nothing happens, once for each reason."""
        if (about or what) != self._told:
            log.info("%s", what)
        self._told = about or what


def backoff(failures: int) -> float:
    """Seconds until the turn after that many failed ones: exponential, up to a quarter less by chance.

    So tables that failed together, as their server died, do not come back together.
    """
    return FIRST_DELAY.total_seconds() * 2.0 ** (failures - 1) * random.uniform(0.75, 1)
