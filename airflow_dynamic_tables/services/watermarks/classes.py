"""Classes of users, by ``module:Class``, that say of partitions what options cannot say."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from airflow_dynamic_tables.core.refresh.allowed import Ability, Allowed
from airflow_dynamic_tables.exceptions import ConfigurationError


def made(class_path: str, method: str, allowed: Allowed) -> Any:
    """An object of a class, made without arguments.

    :param method: what it must have.
    :raises ConfigurationError: when there is no such class or method, when it cannot be made, or when Python is not allowed.
    """
    if problem := allowed.refusal(Ability.PYTHON_FUNCTIONS):
        raise ConfigurationError(f"{class_path}: {problem}.")
    module, _, name = class_path.partition(":")
    try:
        thing = getattr(import_module(module), name)()
    except (Exception, SystemExit) as error:  # sys.exit of a module is a mistake of that class, and not the end of the process
        raise ConfigurationError(
            f"{class_path} cannot be made ({type(error).__name__}: {error}); it has to be importable where refreshes run, "
            "and is made without arguments."
        ) from error
    if not callable(getattr(thing, method, None)):
        raise ConfigurationError(f"{class_path} has no method {method!r}.")
    return thing
