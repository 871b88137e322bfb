"""The input of a command: the definitions, and the named tables."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from airflow_dynamic_tables.cli.running import progress_of
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.schedule import Freshness
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services import project
from airflow_dynamic_tables.services.names import named_identifier, named_table
from airflow_dynamic_tables.services.project import Project
from airflow_dynamic_tables.services.refresh.requests import in_time_zone, latest_schedule_time


def find_definitions(arguments: Namespace) -> Path | None:
    """Return the definitions folder: ``--definitions``, ``$DYNAMIC_TABLES_DEFINITIONS``, ``./dags/definitions``, or Airflow's."""
    return project.find_definitions(arguments.definitions)


def project_of(arguments: Namespace, *, may_be_new: bool = False) -> Project:
    """Return the project that a command works on.

    If Airflow runs the command, it sets ``installed_threshold``, and Airflow's freshness threshold applies.

    :raises ConfigurationError: if there are no definitions.
    """
    installed: Callable[[], Freshness] | None = getattr(arguments, "installed_threshold", None)
    catalogs = getattr(arguments, "catalogs", None)  # only some commands need the catalogs themselves
    threshold = installed() if installed else None
    return project.open_project(arguments.definitions, catalogs, threshold, may_be_new=may_be_new)


def definitions(arguments: Namespace) -> tuple[Definitions, bool]:
    """Return all tables without mistakes, and whether these are all tables; mistakes are printed on stderr.

    A broken definition must not block commands on the other tables.
    """
    with progress_of(arguments).step("Reading the definitions"):
        defined, mistakes = project_of(arguments).load()
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    return defined, not mistakes


def defined_names(arguments: Namespace) -> list[str]:
    """Return the full names of all tables without mistakes; empty if there are no definitions."""
    return [] if find_definitions(arguments) is None else [str(name) for name in project_of(arguments).load()[0].tables]


def definitions_if_any(arguments: Namespace) -> tuple[Definitions, bool]:
    """Same as :func:`definitions`, without printing mistakes; without definitions, the result is empty and incomplete."""
    if find_definitions(arguments) is None:
        return Definitions(), False
    defined, mistakes = project_of(arguments).load()
    return defined, not mistakes


def is_defined(arguments: Namespace, name: TableIdentifier) -> bool | None:
    """Return whether the definitions contain a table; ``None`` if unknown, because there are none or some have mistakes."""
    defined, is_complete = definitions_if_any(arguments)
    return name in defined.tables or (False if is_complete else None)


def named_tables(defined: Definitions, names: Sequence[str]) -> list[DynamicTable]:
    """Return the named tables, or all tables if no names are given, parents before children."""
    return [named_table(defined, name) for name in names] if names else defined.topological()


def identifier(arguments: Namespace, name: str) -> TableIdentifier:
    """Return the full name of a table; a name in three parts does not have to be defined (any more)."""
    return named_identifier(name, lambda: definitions(arguments)[0])


def read_argument(path: Path) -> str:
    """Return the text of a file that an argument names.

    :raises ConfigurationError: if it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error


def schedule_time(table: DynamicTable, asked: datetime | None, now: datetime) -> datetime:
    """Return the requested schedule time, or else the table's latest tick."""
    return in_time_zone(asked, table) if asked is not None else latest_schedule_time(table, now)
