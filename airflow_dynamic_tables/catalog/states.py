"""State machine of dynamic tables: the allowed operations in each state, and the resulting state."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from airflow_dynamic_tables.catalog.values import JobState


class Asked(StrEnum):
    """An operation on a table."""

    REGISTER = "register"
    """Add its definition to the catalog, or update it."""

    REFRESH = "refresh"
    """Start a scheduled or manual refresh."""

    FORCED_REFRESH = "forced refresh"
    """Start a manual refresh, regardless of the state."""

    SUSPEND = "suspend"

    RESUME = "resume"
    """Resume refreshes of a table that has a version."""

    RESUME_EMPTY = "resume without a version"

    RENAME = "rename"

    DROP = "drop"


_INITIALIZING, _RUNNING, _SUSPENDED = JobState.INITIALIZING, JobState.RUNNING, JobState.SUSPENDED
_AS_IT_WAS: Mapping[JobState | None, JobState | None] = {state: state for state in JobState}

STATES: Mapping[Asked, Mapping[JobState | None, JobState | None]] = MappingProxyType(
    {
        Asked.REGISTER: {None: _INITIALIZING, **_AS_IT_WAS},
        Asked.REFRESH: {None: _RUNNING, _INITIALIZING: _RUNNING, _RUNNING: _RUNNING},
        Asked.FORCED_REFRESH: {None: _RUNNING, _INITIALIZING: _RUNNING, _RUNNING: _RUNNING, _SUSPENDED: _SUSPENDED},
        Asked.SUSPEND: dict.fromkeys(JobState, _SUSPENDED),
        Asked.RESUME: {**_AS_IT_WAS, _SUSPENDED: _RUNNING},
        Asked.RESUME_EMPTY: {**_AS_IT_WAS, _SUSPENDED: _INITIALIZING},
        Asked.RENAME: _AS_IT_WAS,
        Asked.DROP: dict.fromkeys(JobState, None),
    }
)
"""The state of a table after an operation, by the state before; ``None`` is a table that does not exist.

Missing transitions are refused: a suspended table is not refreshed, and a table that does not exist can only be registered.
"""


def is_refused(asked: Asked, state: JobState | None) -> bool:
    """Return whether an operation is refused in a state."""
    return state not in STATES[asked]


def state_after(asked: Asked, state: JobState) -> JobState:
    """Return the state of a table after an operation.

    :raises ValueError: when the operation is refused, or removes the table.
    """
    after = STATES[asked].get(state)
    if after is None:
        raise ValueError(f"no table is {state} and goes on after {asked}")
    return after
