"""What a command works on: the definitions, the state, and the tables that were named."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.definitions.loader import load_sound_definitions
from airflow_dynamic_tables.definitions.model import Conventions, Definitions, DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.names import named_identifier, named_table, names_scope
from airflow_dynamic_tables.services.refresh.requests import in_time_zone, latest_schedule_time
from airflow_dynamic_tables.services.settings import allowed_in, find_catalogs_file, threshold_in


def find_definitions(arguments: Namespace) -> Path | None:
    """Where the definitions are: ``--definitions``, ``$DYNAMIC_TABLES_DEFINITIONS``, ``./dags/definitions``, Airflow's."""
    return next((path for path in _places(arguments) if path.exists()), None)


def definitions_path(arguments: Namespace) -> Path:
    """As :func:`find_definitions`.

    :raises ConfigurationError: when there is nothing at that place.
    """
    definitions = find_definitions(arguments)
    if definitions is None:
        where = " or ".join(map(str, _places(arguments)))
        raise ConfigurationError(f"No definitions at {where}; name their folder with --definitions.")
    return definitions


def _places(arguments: Namespace) -> tuple[Path, ...]:
    named = arguments.definitions or os.environ.get("DYNAMIC_TABLES_DEFINITIONS")
    airflow_home = Path(os.environ.get("AIRFLOW_HOME") or "~/airflow").expanduser()
    return (Path(named),) if named else (Path("dags/definitions"), airflow_home / "dags/definitions")


def scope(arguments: Namespace, path: Path) -> tuple[str, str]:
    """Catalog and database of names that leave them out: the default ones of the catalogs file."""
    named = getattr(arguments, "catalogs", None)  # not every command needs the catalogs themselves
    return names_scope({**os.environ, **({"DYNAMIC_TABLES_CATALOGS": named} if named else {})}, find_catalogs_file(path))


def definitions(arguments: Namespace) -> tuple[Definitions, bool]:
    """All tables without a mistake, and whether that is every table; mistakes are printed on stderr.

    One broken definition must not keep anybody from looking after the other tables.
    """
    defined, mistakes = _load(arguments, definitions_path(arguments))
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    return defined, not mistakes


def is_defined(arguments: Namespace, name: TableIdentifier) -> bool | None:
    """Whether the definitions have a table; ``None`` when nobody knows: there are none here, or some have mistakes."""
    path = find_definitions(arguments)
    if path is None:
        return None
    defined, mistakes = _load(arguments, path)
    if name in defined.tables:
        return True
    return None if mistakes else False


def _load(arguments: Namespace, path: Path) -> tuple[Definitions, tuple[Mistake, ...]]:
    return load_sound_definitions(path, conventions=conventions(arguments, path))


def conventions(arguments: Namespace, path: Path) -> Conventions:
    """What holds for all definitions of a path.

    :raises ConfigurationError: when the threshold is no length of time.
    """
    return Conventions(scope(arguments, path), allowed_in(os.environ), threshold(arguments))


def threshold(arguments: Namespace) -> Freshness:
    """The freshness below which tables that say nothing else are refreshed all the time.

    Airflow's, when Airflow runs the command, which then brings ``installed_threshold``. Else the environment's.
    """
    installed: Callable[[], Freshness] | None = getattr(arguments, "installed_threshold", None)
    return installed() if installed else threshold_in(os.environ)


def named_tables(defined: Definitions, names: Sequence[str]) -> list[DynamicTable]:
    """The tables of those names, or all of them, parents before children, when there are none."""
    return [named_table(defined, name) for name in names] if names else defined.topological()


def identifier(arguments: Namespace, name: str) -> TableIdentifier:
    """The full name of a table; one in three parts need not be defined (any more)."""
    return named_identifier(name, lambda: definitions(arguments)[0])


def schedule_time(table: DynamicTable, asked: datetime | None, now: datetime) -> datetime:
    """The schedule time to work for: as asked; else the table's latest tick."""
    return in_time_zone(asked, table) if asked is not None else latest_schedule_time(table, now)
