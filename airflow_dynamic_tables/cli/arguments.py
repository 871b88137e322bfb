"""Arguments of commands: their types, and those that several commands share."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from airflow_dynamic_tables.core.partitions import parse_spec, split_partitions
from airflow_dynamic_tables.core.schedule import Freshness, parse_schedule_time


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument; ``options`` are keywords of ``argparse.ArgumentParser.add_argument``.

    A ``type`` is a function of this module.
    """

    flags: tuple[str, ...]
    help: str
    options: Mapping[str, Any] = field(default_factory=dict)


def schedule_time(text: str) -> datetime:
    """Parse ``YYYY-MM-DD HH:MM:SS`` or ISO 8601; without an offset the result is naive and gets the table's time zone."""
    try:
        return parse_schedule_time(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no time; write for example '2024-01-31 06:00:00'") from error


def partition(text: str) -> dict[str, str]:
    """Parse ``ds=2024-01-01`` or ``ds=2024-01-01/hh=03``."""
    try:
        return parse_spec(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def partitions(text: str) -> str:
    """Check partitions and ranges of them, as far as possible without a table."""
    try:
        split_partitions(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    return text


def partitions_or_all(text: str) -> str:
    """Check partitions as :func:`partitions` does; ``all`` is the complete table."""
    return "all" if text.lower() == "all" else partitions(text)


def key_value(text: str) -> tuple[str, str]:
    """Parse ``key=value``; the value may be empty and may contain ``=``."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ArgumentTypeError(f"{text!r} is no property; write key=value")
    return key, value


def positive(text: str) -> int:
    """Parse a positive integer."""
    if not text.isdecimal() or int(text) == 0:
        raise ArgumentTypeError(f"{text!r} is no whole number above zero")
    return int(text)


def number_or_all(text: str) -> int | None:
    """Parse a positive integer; ``all`` is ``None``."""
    return None if text.lower() == "all" else positive(text)


def port(text: str) -> int:
    """Parse the number of a TCP port; 0 is any free port."""
    if not text.isdecimal() or int(text) > 65_535:
        raise ArgumentTypeError(f"{text!r} is no port; write a whole number up to 65535")
    return int(text)


def token(text: str) -> str:
    """Check the token of a refresh: it identifies the refresh in the history, and names its stage."""
    if not re.fullmatch(r"[\w-]{1,64}", text, re.ASCII):
        raise ArgumentTypeError(f"{text!r} is no token; write up to 64 letters, digits and dashes, or leave it out")
    return text


def idle_time(text: str) -> int | None:
    """Parse a duration such as ``15 minutes`` to seconds, ``never`` to ``None``."""
    if text.strip().lower() == "never":
        return None
    try:
        return Freshness.parse(text).seconds
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no length of time; write for example '15 minutes', or never") from error


def local_master(text: str) -> str:
    """Check that a Spark master is this machine: ``local``, ``local[4]``, ``local[*]``."""
    if not re.fullmatch(r"local(\[(\*|\d+)\])?", text):
        raise ArgumentTypeError(f"{text!r} is not this machine; write for example local[4], or local[*] for all its cores")
    return text


def flag(name: str, help_: str) -> Argument:
    """Return an option without a value."""
    return Argument((name,), help_, {"action": "store_true"})


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
    {"metavar": "TIME", "type": schedule_time},
)
LIMIT = Argument(
    ("--limit",),
    "how many of the latest refreshes (default: 20)",
    {"type": positive, "default": 20, "metavar": "N"},
)
PARTITION = Argument(
    ("--partition",),
    "refresh exactly this partition, e.g. ds=2024-01-01 or ds=2024-01-01/hh=03, or a range, ds=2024-01-01..ds=2024-01-31; may be "
    "repeated",
    {"metavar": "SPEC", "type": partitions, "action": "append", "dest": "partitions"},
)
FORCE = flag("--force", "refresh a suspended table, too; it stays suspended. Also replace frozen partitions that are asked for")
MASTER = Argument(
    ("--master",),
    "Spark master, or sc://host:port of a Spark Connect server (default: SPARK_REMOTE, else the server of "
    "'dynamic-tables spark start' if it runs, else local[*])",
    {"metavar": "URL"},
)
WITHOUT_SPARK = flag("--without-spark", "do not start Java to check queries and columns with Spark, and do not ask the catalogs")
DEBUG = flag("--debug", "show the traceback of an error, and log more")
TABLE = Argument(("table",), "a table: its name, database.name or catalog.database.name", {"metavar": "TABLE"})
TABLES = Argument(("tables",), "only these tables (default: all)", {"metavar": "TABLE", "nargs": "*"})
TOKEN = Argument(("token",), "the token of the refresh, as its error and history -o json name it", {"metavar": "TOKEN"})
ONE_TABLE = Argument(("table",), "only this table (default: all)", {"metavar": "TABLE", "nargs": "?"})

STATE = (DEFINITIONS, CATALOGS, DATABASE_URL, DEBUG)
