"""Which way a table is refreshed, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airflow_dynamic_tables.core.freshness import Freshness

FRESHNESS_THRESHOLD = Freshness(30 * 60)
DEFAULT_FULL_FRESHNESS = Freshness(60 * 60)
DEFAULT_CONTINUOUS_FRESHNESS = Freshness(3 * 60)


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
    """A declared mode wins; AUTO is CONTINUOUS when the freshness is below the threshold, else FULL (FLIP-435)."""
    batch = declared in (RefreshMode.FULL, RefreshMode.INCREMENTAL)
    actual = freshness or (DEFAULT_FULL_FRESHNESS if batch else DEFAULT_CONTINUOUS_FRESHNESS)
    origin = "" if freshness else f" (the default, as none is declared: {actual})"
    if declared is not RefreshMode.AUTO:
        return ModeDecision(declared, actual, f"refresh mode {declared} is declared{origin}")
    if actual < threshold:
        return ModeDecision(RefreshMode.CONTINUOUS, actual, f"freshness {actual} is below the threshold of {threshold}{origin}")
    return ModeDecision(RefreshMode.FULL, actual, f"freshness {actual} is not below the threshold of {threshold}{origin}")
