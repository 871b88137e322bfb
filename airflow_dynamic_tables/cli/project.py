"""What a command works on: the definitions, the state, and the tables that were named."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.core.identifiers import TableIdentifier, split_name
from airflow_dynamic_tables.core.schedule.cron import previous_tick
from airflow_dynamic_tables.definitions.loader import load_sound_definitions
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError, TableNotFoundError
from airflow_dynamic_tables.services.names import names_scope
from airflow_dynamic_tables.services.settings import find_catalogs_file


def find_definitions(arguments: Namespace) -> Path | None:
    """Where the definitions are: ``--definitions``, ``$DYNAMIC_TABLES_DEFINITIONS``, ``./dags/definitions``, Airflow's."""
    return next((path for path in _places(arguments) if path.exists()), None)


def definitions_path(arguments: Namespace) -> Path:
    """As :func:`find_definitions`.

    :raises ConfigurationError: when there is nothing at that place.
    """
    found = find_definitions(arguments)
    if found is None:
        where = " or ".join(map(str, _places(arguments)))
        raise ConfigurationError(f"No definitions at {where}; name their folder with --definitions.")
    return found


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
    path = definitions_path(arguments)
    defined, mistakes = load_sound_definitions(path, scope=scope(arguments, path))
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    return defined, not mistakes


def named_tables(defined: Definitions, names: Sequence[str]) -> list[DynamicTable]:
    """The tables of those names, or all of them, parents before children, when there are none."""
    return [named_table(defined, name) for name in names] if names else defined.topological()


def named_table(defined: Definitions, name: str) -> DynamicTable:
    """The table of that name in one, two or three parts.

    :raises TableNotFoundError: when there is none, with "did you mean"; or when there are several.
    """
    table = defined.table(name)
    if table is not None:
        return table
    full = [str(identifier) for identifier in defined.tables]
    several = [identifier for identifier in full if identifier.endswith(f".{name}")]
    if several:
        raise TableNotFoundError(f"{name} may be any of {', '.join(several)}; name its database too.")
    known = {ending: identifier for identifier in full for ending in _endings(identifier)}
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {known[close[0]]}?" if close else f"defined are: {', '.join(full) or 'none'}."
    raise TableNotFoundError(f"No dynamic table {name} is defined; {hint}")


def identifier(arguments: Namespace, name: str) -> TableIdentifier:
    """The full name of a table; one in three parts need not be defined (any more)."""
    try:
        parts = split_name(name)
    except ValueError as error:
        raise ConfigurationError(f"{error}.") from error
    return TableIdentifier(*parts) if len(parts) == 3 else named_table(definitions(arguments)[0], name).identifier


def _endings(identifier: str) -> list[str]:
    parts = identifier.split(".")
    return [".".join(parts[position:]) for position in range(len(parts))]


def schedule_time(table: DynamicTable, asked: datetime | None, now: datetime) -> datetime:
    """The schedule time to work for: as asked, in the table's time zone when it has none; else the table's latest tick."""
    if asked is not None:
        return asked if asked.tzinfo is not None else asked.replace(tzinfo=ZoneInfo(table.timezone))
    return previous_tick(table.cron, table.timezone, now) if table.cron else now.astimezone(ZoneInfo(table.timezone))
