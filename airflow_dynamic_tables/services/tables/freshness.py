"""How fresh a table is: by its version, or by a later look that found it still up to date.

A table with time partitions is fresh up to the end of its unbroken ticks: the partitions of every tick up to then are in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from airflow_dynamic_tables.core.refresh.actions import RefreshAction
from airflow_dynamic_tables.core.schedule.wall_clock import is_ahead
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.services.workspace import Workspace


def fresh_until(workspace: Workspace, version: Version | None) -> datetime | None:
    """The time up to which a table is fresh that is at a version; ``None``: up to none.

    A time in the future counts as none. It comes from a wrong clock, and would stop the refreshes until then.

    :param version: its current one.
    """
    times = (found_fresh(workspace, version), version.data_timestamp if version is not None else None)
    return latest_known(times, workspace.now())


def latest_known(times: Iterable[datetime | None], now: datetime) -> datetime | None:
    """The latest of some times that is not in the future."""
    return max((time for time in times if time is not None and not is_ahead(time, now)), default=None)


def found_fresh(workspace: Workspace, version: Version | None) -> datetime | None:
    """The time up to which nothing had moved since a version was made; ``None`` when nobody looked.

    What was found holds for that version alone: it is kept under its token.
    """
    found = workspace.ledger.get_refresh(stretch(version.token)) if version is not None else None
    return found.data_timestamp if found is not None and found.action is RefreshAction.NO_DATA else None


def stretch(token: str) -> str:
    """The token of the line of the history that says how long the version of a token held."""
    return f"{token}-unchanged"
