"""Arguments shared by several commands."""

from __future__ import annotations

from airflow_dynamic_tables.cli import argument_types
from airflow_dynamic_tables.cli.command_index import Argument

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
    {"action": "store_true"},
)
DEBUG = Argument(("--debug",), "show the traceback of an error, and log more", {"action": "store_true"})
TABLE = Argument(("table",), "a table: its name, database.name or catalog.database.name", {"metavar": "TABLE"})
TABLES = Argument(("tables",), "only these tables (default: all)", {"metavar": "TABLE", "nargs": "*"})
TOKEN = Argument(("token",), "the token of the refresh, as its error and history -o json name it", {"metavar": "TOKEN"})
ONE_TABLE = Argument(("table",), "only this table (default: all)", {"metavar": "TABLE", "nargs": "?"})

STATE = (DEFINITIONS, CATALOGS, DATABASE_URL, DEBUG)
