"""Which way a table is refreshed, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airflow_dynamic_tables.core.schedule.freshness import Freshness

FRESHNESS_THRESHOLD = Freshness(30 * 60)
"""A table that is to be fresher than this is refreshed all the time (Flink's default)."""

DEFAULT_FULL_FRESHNESS = Freshness(60 * 60)
"""Freshness of a table of batch refreshes that declares none (Flink's default)."""

DEFAULT_CONTINUOUS_FRESHNESS = Freshness(3 * 60)
"""Freshness of any other table that declares none (Flink's default)."""


class RefreshMode(StrEnum):
    """How a table is brought up to date; AUTO is only ever declared, never actual."""

    AUTO = "AUTO"
    FULL = "FULL"
    INCREMENTAL = "INCREMENTAL"
    CONTINUOUS = "CONTINUOUS"


@dataclass(frozen=True, slots=True)
class ModeDecision:
    """The actual refresh mode and freshness of a table, and a sentence that says why."""

    mode: RefreshMode
    freshness: Freshness
    reason: str


def decide(declared: RefreshMode, freshness: Freshness | None, threshold: Freshness = FRESHNESS_THRESHOLD) -> ModeDecision:
    """A declared mode wins; AUTO is CONTINUOUS when the freshness is below the threshold, else FULL (FLIP-435).

    Without a freshness, FULL and INCREMENTAL have one hour and the others three minutes, which then decides as if declared.
    """
    batch = declared in (RefreshMode.FULL, RefreshMode.INCREMENTAL)
    actual = freshness or (DEFAULT_FULL_FRESHNESS if batch else DEFAULT_CONTINUOUS_FRESHNESS)
    if declared is not RefreshMode.AUTO:
        origin = "" if freshness else f", with the default freshness of {actual} as none is declared"
        return ModeDecision(declared, actual, f"refresh mode {declared} is declared{origin}")
    origin = "" if freshness else " (the default, as none is declared)"
    continuous = actual < threshold
    return ModeDecision(
        RefreshMode.CONTINUOUS if continuous else RefreshMode.FULL,
        actual,
        f"freshness {actual}{origin} is {'below' if continuous else 'not below'} the threshold of {threshold}",
    )
