"""What a table may say of being refreshed all the time."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator

from airflow_dynamic_tables.core.schedule.continuous import ContinuousSettings, StrategyName
from airflow_dynamic_tables.definitions.declarations.airflow import Duration
from airflow_dynamic_tables.definitions.declarations.base import Declaration, OneOf

_LONGEST_HOLD = timedelta(days=1)
"""A worker is drained, and an Airflow told, within this time at most."""


def _check_length(value: timedelta) -> timedelta:
    if value > _LONGEST_HOLD:
        raise ValueError("must be at most 1 day: a worker cannot be drained before that")
    return value


_Hold = Annotated[Duration, AfterValidator(_check_length)]


class ContinuousDeclaration(Declaration):
    """How a table is kept fresh that is refreshed all the time; what is scheduled does not heed it."""

    strategy: Annotated[str, OneOf("strategy", tuple(StrategyName))] | None = None
    """`micro-refresh`: a refresh every freshness; `stream`: a streaming query; `auto` (the default): what the query needs."""
    hold: _Hold | None = None
    """How long a task keeps its place on a worker, e.g. `1 hour` (the default); the next run goes on."""
    events: _Hold | None = None
    """After how long at most a task ends to tell of its commits, e.g. `1 minute` (the default)."""

    def built(self) -> ContinuousSettings:
        """The settings, with defaults for what is not said."""
        said = {name: value for name in ("hold", "events") if (value := getattr(self, name)) is not None}
        return ContinuousSettings(StrategyName(self.strategy or StrategyName.AUTO), **said)
