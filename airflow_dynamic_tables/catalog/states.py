"""The state machine of dynamic tables: what may be asked of a table in which state, and the state that it has then."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from airflow_dynamic_tables.catalog.values import JobState


class Asked(StrEnum):
    """What may be asked of a table."""

    REGISTER = "register"
    """Its definition goes into the catalog, for the first time or changed."""

    REFRESH = "refresh"
    """A refresh begins, by schedule or by hand."""

    FORCED_REFRESH = "forced refresh"
    """A refresh begins by hand, whatever the state."""

    SUSPEND = "suspend"

    RESUME = "resume"
    """It is refreshed again, and has a version."""

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
"""The state of a table after what is asked of it, by the state before; ``None`` is a table that is not there.

What is missing is refused: a suspended table is not refreshed, and of a table that is not there nothing else can be asked.
"""


def is_refused(asked: Asked, state: JobState | None) -> bool:
    """Whether that cannot be asked of a table in a state."""
    return state not in STATES[asked]


def state_after(asked: Asked, state: JobState) -> JobState:
    """The state of a table after what is asked of it, unless it is refused.

    :raises ValueError: when it is, or the table is gone then.
    """
    after = STATES[asked].get(state)
    if after is None:
        raise ValueError(f"no table is {state} and goes on after {asked}")
    return after
