"""Building blocks of the command table, and arguments shared by several commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_dynamic_tables.cli import argument_types

COMMAND_PACKAGE = "airflow_dynamic_tables.cli.commands"
"""The package of the functions of commands."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument; ``options`` are keywords of ``argparse.ArgumentParser.add_argument``."""

    flags: tuple[str, ...]
    help: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Command:
    """A command; ``function`` is the dotted path of its function, see :func:`~airflow_dynamic_tables.cli.running.execute`.

    ``is_daily`` puts it into the first of the two sections of the help.
    """

    name: str
    help: str
    function: str
    arguments: tuple[Argument, ...]
    description: str
    is_daily: bool = False


@dataclass(frozen=True, slots=True)
class CommandGroup:
    """A command with subcommands."""

    name: str
    help: str
    commands: tuple[Command, ...]


def sections(commands: Iterable[Command | CommandGroup]) -> dict[str, list[Command | CommandGroup]]:
    """Return the commands by section title, as the help lists them."""
    titles: dict[str, list[Command | CommandGroup]] = {"every day": [], "all others": []}
    for command in commands:
        is_daily = isinstance(command, Command) and command.is_daily
        titles["every day" if is_daily else "all others"].append(command)
    return titles


DEFINITIONS = Argument(
    ("--definitions",),
    "YAML file or folder of definitions (default: $DYNAMIC_TABLES_DEFINITIONS, else ./dags/definitions, "
    "else $AIRFLOW_HOME/dags/definitions)",
    {"metavar": "PATH"},
)
INTO = Argument(("into",), "where to write (default: the current folder)", {"metavar": "FOLDER", "nargs": "?", "default": "."})
CATALOGS = Argument(
    ("--catalogs",),
    "YAML file that names the catalogs (default: $DYNAMIC_TABLES_CATALOGS, else catalogs.yaml in or beside the "
    "folder of the definitions, else every catalog is embedded)",
    {"metavar": "PATH"},
)
DATABASE_URL = Argument(
    ("--database-url",),
    "SQLAlchemy URL of the ledger and the embedded catalogs (default: of Airflow's connection when Airflow runs the command, "
    "else $DYNAMIC_TABLES_DATABASE_URL, else SQLite under $AIRFLOW_HOME/dynamic_tables)",
    {"metavar": "URL"},
)
OUTPUT = Argument(
    ("-o", "--output"),
    "output format: table (default), json or yaml; json and yaml have every field",
    {"choices": ("table", "json", "yaml"), "default": "table"},
)
SCHEDULE_TIME = Argument(
    ("--schedule-time",),
    "the scheduled time to refresh for, 'YYYY-MM-DD HH:MM:SS' in the table's time zone, or ISO 8601 with an offset "
    "(default: the table's latest tick)",
    {"metavar": "TIME", "type": argument_types.schedule_time},
)
LIMIT = Argument(
    ("--limit",),
    "how many of the latest refreshes (default: 20)",
    {"type": argument_types.positive, "default": 20, "metavar": "N"},
)
PARTITION = Argument(
    ("--partition",),
    "refresh exactly this partition, e.g. ds=2024-01-01 or ds=2024-01-01/hh=03, or a range, ds=2024-01-01..ds=2024-01-31; may be "
    "repeated",
    {"metavar": "SPEC", "type": argument_types.partitions, "action": "append", "dest": "partitions"},
)
FORCE = Argument(("--force",), "refresh a suspended table, too; it stays suspended", {"action": "store_true"})
MASTER = Argument(
    ("--master",),
    "Spark master, or sc://host:port of a Spark Connect server (default: SPARK_REMOTE, else the server of "
    "'dynamic-tables spark start' if it runs, else local[*])",
    {"metavar": "URL"},
)
WITHOUT_SPARK = Argument(
    ("--without-spark",),
    "do not start Java to check queries and columns with Spark, and do not ask the catalogs",
    {"action": argument_types.calling(f"{COMMAND_PACKAGE}.definitions.validate")},
)
DEBUG = Argument(("--debug",), "show the traceback of an error, and log more", {"action": "store_true"})
TABLE = Argument(("table",), "a table: its name, database.name or catalog.database.name", {"metavar": "TABLE"})
TABLES = Argument(("tables",), "only these tables (default: all)", {"metavar": "TABLE", "nargs": "*"})
TOKEN = Argument(("token",), "the token of the refresh, as its error and history -o json name it", {"metavar": "TOKEN"})
ONE_TABLE = Argument(("table",), "only this table (default: all)", {"metavar": "TABLE", "nargs": "?"})

STATE = (DEFINITIONS, CATALOGS, DATABASE_URL, DEBUG)
