"""Loading of user classes by ``module:Class``, and checks for complete partitions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from importlib import import_module
from typing import Any

from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.core.refresh.permissions import Ability, Allowed
from airflow_dynamic_tables.core.streaming.source_watermarks import CompleteWhen, WholeBy
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.watermarks.places import PartitionFolder


def made(class_path: str, method: str, allowed: Allowed) -> Any:
    """Instantiate a class without arguments.

    :param method: the method that the object must have.
    :raises ConfigurationError: if there is no such class or method, it cannot be instantiated, or Python is not allowed.
    """
    if problem := allowed.refusal(Ability.PYTHON_FUNCTIONS):
        raise ConfigurationError(f"{class_path}: {problem}.")
    module, _, name = class_path.partition(":")
    try:
        thing = getattr(import_module(module), name)()
    except (Exception, SystemExit) as error:  # sys.exit in a user's module must not end this process
        raise ConfigurationError(
            f"{class_path} cannot be made ({type(error).__name__}: {error}); it has to be importable where refreshes run, "
            "and is made without arguments."
        ) from error
    if not callable(getattr(thing, method, None)):
        raise ConfigurationError(f"{class_path} has no method {method!r}.")
    return thing


Obstacle = Callable[[PartitionFolder], str | None]
"""Returns why a partition is incomplete, as the end of a sentence; ``None`` if it is complete."""


def obstacle_of(complete: CompleteWhen, store_time: datetime, allowed: Allowed) -> Obstacle:
    """Return the check for complete partitions.

    :param store_time: the current time by the clock of the store.
    :raises ConfigurationError: if a class of the user cannot be used.
    """
    if complete.by is WholeBy.FILE:
        return lambda folder: None if folder.has(complete.told_by) else f"it has no {complete.told_by} yet"
    if complete.by is WholeBy.QUIET:
        return lambda folder: _not_quiet(folder, complete, store_time)
    if complete.by is WholeBy.CLASS:
        judge = made(complete.told_by, "is_complete", allowed)
        return lambda folder: _not_complete(judge, complete.told_by, folder)
    return lambda _folder: None  # listed in the metastore, and therefore complete


def _not_quiet(folder: PartitionFolder, complete: CompleteWhen, store_time: datetime) -> str | None:
    if folder.changed_at is None:
        return "its store does not say when it changed; use {file: _SUCCESS} under 'complete_when'"
    if store_time - folder.changed_at >= complete.quiet:
        return None
    return f"it changed at {folder.changed_at.isoformat()}, and has to be quiet for {complete.quiet}"


def _not_complete(judge: Any, name: str, folder: PartitionFolder) -> str | None:
    try:
        answer = judge.is_complete(folder)
    except (Exception, SystemExit) as error:  # a service that it calls may be temporarily unavailable
        return shown(f"{name} cannot tell ({type(error).__name__}: {error})")
    if not isinstance(answer, bool):
        raise ConfigurationError(f"{name}.is_complete gives {answer!r}; it has to give True or False.")
    return None if answer else f"{name} says so"
