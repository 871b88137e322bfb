"""Whether all files of a partition are there, by what its source says of that."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.core.refresh.allowed import Allowed
from airflow_dynamic_tables.core.streaming.watermarks import CompleteWhen, WholeBy
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.watermarks.classes import made
from airflow_dynamic_tables.services.watermarks.places import PartitionFolder

Obstacle = Callable[[PartitionFolder], str | None]
"""Why a partition is not whole, as the end of a sentence; ``None`` when it is."""


def obstacle_of(complete: CompleteWhen, store_time: datetime, allowed: Allowed) -> Obstacle:
    """What looks at partitions.

    :param store_time: the time now, as the store has it.
    :raises ConfigurationError: when it is a class that cannot be used.
    """
    if complete.by is WholeBy.FILE:
        return lambda folder: None if folder.has(complete.told_by) else f"it has no {complete.told_by} yet"
    if complete.by is WholeBy.QUIET:
        return lambda folder: _not_quiet(folder, complete, store_time)
    if complete.by is WholeBy.CLASS:
        judge = made(complete.told_by, "is_complete", allowed)
        return lambda folder: _not_complete(judge, complete.told_by, folder)
    return lambda _folder: None  # the metastore knows it


def _not_quiet(folder: PartitionFolder, complete: CompleteWhen, store_time: datetime) -> str | None:
    if folder.changed_at is None:
        return "its store does not say when it changed; use {file: _SUCCESS} under 'complete_when'"
    if store_time - folder.changed_at >= complete.quiet:
        return None
    return f"it changed at {folder.changed_at.isoformat()}, and has to be quiet for {complete.quiet}"


def _not_complete(judge: Any, name: str, folder: PartitionFolder) -> str | None:
    try:
        answer = judge.is_complete(folder)
    except (Exception, SystemExit) as error:  # whatever it asks may be away for a moment
        return shown(f"{name} cannot tell ({type(error).__name__}: {error})")
    if not isinstance(answer, bool):
        raise ConfigurationError(f"{name}.is_complete gives {answer!r}; it has to give True or False.")
    return None if answer else f"{name} says so"
