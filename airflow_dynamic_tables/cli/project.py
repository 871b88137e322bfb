"""What a command works on: the definitions, and the tables that were named."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from airflow_dynamic_tables.cli.progress import progress_of
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.services import project
from airflow_dynamic_tables.services.names import named_identifier, named_table
from airflow_dynamic_tables.services.project import Project
from airflow_dynamic_tables.services.refresh.requests import in_time_zone, latest_schedule_time


def find_definitions(arguments: Namespace) -> Path | None:
    """Where the definitions are: ``--definitions``, ``$DYNAMIC_TABLES_DEFINITIONS``, ``./dags/definitions``, Airflow's."""
    return project.find_definitions(arguments.definitions)


def project_of(arguments: Namespace, *, may_be_new: bool = False) -> Project:
    """The project that a command works on.

    The freshness threshold is Airflow's, when Airflow runs the command, which then brings ``installed_threshold``.

    :param may_be_new: see :func:`~airflow_dynamic_tables.services.project.open_project`.
    :raises ConfigurationError: when there are no definitions.
    """
    installed: Callable[[], Freshness] | None = getattr(arguments, "installed_threshold", None)
    catalogs = getattr(arguments, "catalogs", None)  # not every command needs the catalogs themselves
    threshold = installed() if installed else None
    return project.open_project(arguments.definitions, catalogs, threshold, may_be_new=may_be_new)


def definitions(arguments: Namespace) -> tuple[Definitions, bool]:
    """All tables without a mistake, and whether that is every table; mistakes are printed on stderr.

    One broken definition must not keep anybody from looking after the other tables.
    """
    with progress_of(arguments).step("Reading the definitions"):
        defined, mistakes = project_of(arguments).load()
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    return defined, not mistakes


def defined_names(arguments: Namespace) -> list[str]:
    """The full names of all tables without a mistake; none where there are no definitions."""
    return [] if find_definitions(arguments) is None else [str(name) for name in project_of(arguments).load()[0].tables]


def definitions_if_any(arguments: Namespace) -> tuple[Definitions, bool]:
    """As :func:`definitions`, without printing mistakes; without definitions nothing is defined, and that is not all."""
    if find_definitions(arguments) is None:
        return Definitions(), False
    defined, mistakes = project_of(arguments).load()
    return defined, not mistakes


def is_defined(arguments: Namespace, name: TableIdentifier) -> bool | None:
    """Whether the definitions have a table; ``None`` when it is not known: there are none here, or some have mistakes."""
    defined, is_complete = definitions_if_any(arguments)
    return name in defined.tables or (False if is_complete else None)


def named_tables(defined: Definitions, names: Sequence[str]) -> list[DynamicTable]:
    """The tables of those names, or all of them, parents before children, when there are none."""
    return [named_table(defined, name) for name in names] if names else defined.topological()


def identifier(arguments: Namespace, name: str) -> TableIdentifier:
    """The full name of a table; one in three parts need not be defined (any more)."""
    return named_identifier(name, lambda: definitions(arguments)[0])


def schedule_time(table: DynamicTable, asked: datetime | None, now: datetime) -> datetime:
    """The schedule time to work for: as asked; else the table's latest tick."""
    return in_time_zone(asked, table) if asked is not None else latest_schedule_time(table, now)
