"""The table of commands."""

from __future__ import annotations

from airflow_dynamic_tables.cli import argument_types
from airflow_dynamic_tables.cli.arguments import (
    COMMAND_PACKAGE,
    FORCE,
    LIMIT,
    MASTER,
    ONE_TABLE,
    OUTPUT,
    PARTITION,
    SCHEDULE_TIME,
    STATE,
    TABLE,
    TOKEN,
    Argument,
    Command,
    CommandGroup,
    sections,
)
from airflow_dynamic_tables.cli.command_groups import (
    CHANGING_COMMANDS,
    DEFINITION_COMMANDS,
    DEPLOYMENT_COMMANDS,
    OF_A_REQUEST,
    SERVING_COMMANDS,
    SPARK_COMMANDS,
    STATEMENTS_COMMAND,
)

_MODULE = f"{COMMAND_PACKAGE}.catalogs"
_COMMON = (*STATE, OUTPUT)

_CATALOG = Argument(("catalog",), "a catalog (default: the default catalog)", {"metavar": "CATALOG", "nargs": "?"})
_DATABASE = Argument(
    ("database",), "a database: catalog.database or database (default: the default one)", {"metavar": "DATABASE", "nargs": "?"}
)
_NAME = Argument(
    ("name",), "its name; a shorter name than the full one is in the default catalog and database", {"metavar": "NAME"}
)
_COMMENT = Argument(("--comment",), "its description", {"metavar": "TEXT"})
_PROPERTY = Argument(
    ("--property",),
    "a property; may be repeated",
    {"metavar": "KEY=VALUE", "type": argument_types.key_value, "action": "append", "dest": "properties"},
)
_REPLACE = Argument(("--replace",), "replace an existing one of this name", {"action": "store_true"})
_IF_EXISTS = Argument(("--if-exists",), "do nothing when it is missing", {"action": "store_true"})
_IF_NOT_EXISTS = Argument(("--if-not-exists",), "do nothing when the name is taken", {"action": "store_true"})


CATALOG_COMMANDS: tuple[Command, ...] = (
    Command(
        "catalogs",
        "list the catalogs",
        f"{_MODULE}.list_catalogs",
        _COMMON,
        "List the catalogs that the catalogs file names or, without one, that the definitions mention. Connects to none.",
    ),
    Command(
        "databases",
        "list the databases of a catalog",
        f"{_MODULE}.list_databases",
        (_CATALOG, *_COMMON),
        "List the databases of a catalog.",
    ),
    Command(
        "tables",
        "list the tables, dynamic tables and views of a database",
        f"{_MODULE}.list_tables",
        (_DATABASE, *_COMMON),
        "List everything in a database that can be read as a table, of any engine.",
    ),
    Command(
        "views", "list the views of a database", f"{_MODULE}.list_views", (_DATABASE, *_COMMON), "List the views of a database."
    ),
    Command(
        "functions",
        "list the functions of a database",
        f"{_MODULE}.list_functions",
        (_DATABASE, *_COMMON),
        "List the functions of a database.",
    ),
    Command(
        "partitions",
        "list the partitions of a table: rows, bytes, files",
        f"{_MODULE}.list_partitions",
        (
            TABLE,
            Argument(
                ("--partition",),
                "only those that agree with this spec, e.g. ds=2024-01-01",
                {"metavar": "SPEC", "type": argument_types.partition},
            ),
            *_COMMON,
        ),
        "List the partitions of a table with their sizes, as the table's own metadata or its catalog has them.",
    ),
    Command(
        "describe",
        "show a table, view, function or database in full",
        f"{_MODULE}.describe",
        (_NAME, *_COMMON),
        "Show the table, dynamic table, view, function or database of that name, the first that exists, with its statistics.",
    ),
    Command(
        "create-database",
        "create a database",
        f"{_MODULE}.create_database",
        (_NAME, _COMMENT, _PROPERTY, _IF_NOT_EXISTS, *_COMMON),
        "Create a database in a catalog.",
    ),
    Command(
        "drop-database",
        "drop a database",
        f"{_MODULE}.drop_database",
        (
            _NAME,
            Argument(("--cascade",), "drop what it holds, too; data files stay", {"action": "store_true"}),
            _IF_EXISTS,
            *_COMMON,
        ),
        "Drop a database that is empty or, with --cascade, with everything in it. Data files are not deleted.",
    ),
    Command(
        "create-view",
        "create a view that definitions can read",
        f"{_MODULE}.create_view",
        (
            _NAME,
            Argument(("--query",), "the SELECT", {"metavar": "SQL"}),
            Argument(("-f", "--file"), "file with the SELECT", {"metavar": "FILE"}),
            _COMMENT,
            _REPLACE,
            *_COMMON,
        ),
        "Create a view. Short names in its query mean tables and functions of the view's own database. Definitions read it as a "
        "source of format 'view'.",
    ),
    Command("drop-view", "drop a view", f"{_MODULE}.drop_view", (_NAME, _IF_EXISTS, *_COMMON), "Drop a view, and nothing else."),
    Command(
        "create-function",
        "create a function that queries can call",
        f"{_MODULE}.create_function",
        (
            _NAME,
            Argument(("--language",), "what it is written in", {"choices": ("python", "java"), "required": True}),
            Argument(
                ("--as",), "module:callable (python) or class (java)", {"metavar": "CODE", "required": True, "dest": "code"}
            ),
            Argument(("--returns",), "type of its result as Spark DDL; python needs it", {"metavar": "TYPE"}),
            Argument(
                ("--property",),
                "a property; py_files and jars name the code by URIs, separated by commas; may be repeated",
                {"metavar": "KEY=VALUE", "type": argument_types.key_value, "action": "append", "dest": "properties"},
            ),
            _REPLACE,
            *_COMMON,
        ),
        "Create a function. A refresh whose query calls it registers it in its Spark session.",
    ),
    Command(
        "drop-function",
        "drop a function",
        f"{_MODULE}.drop_function",
        (_NAME, _IF_EXISTS, *_COMMON),
        "Drop a function.",
    ),
)


SUMMARY = "Tables that keep themselves fresh: SQL plus a freshness in YAML, refreshed atomically."


_ALL: tuple[Command | CommandGroup, ...] = (
    *DEFINITION_COMMANDS,
    *DEPLOYMENT_COMMANDS,
    Command(
        "refresh",
        "run one refresh now, without Airflow",
        f"{COMMAND_PACKAGE}.refresh.refresh",
        (
            TABLE,
            SCHEDULE_TIME,
            PARTITION,
            Argument(("--full-refresh",), "replace the complete table, whatever its partitions", {"action": "store_true"}),
            Argument(
                ("--downstream",),
                "then also refresh every table that reads it, directly or not, each once",
                {"action": "store_true"},
            ),
            FORCE,
            Argument(("--show",), "also print the first rows of the table, ten at most", {"action": "store_true"}),
            *OF_A_REQUEST,
            MASTER,
            *STATE,
            OUTPUT,
        ),
        "Run one refresh with Spark and commit it. Readers see the new version only after everything succeeded. After Ctrl-C or "
        "a failure they still see the last one. With --downstream the tables that read it follow, parents first: for the "
        "partitions that follow from those that were replaced, or, where their query does not say which, as refresh does it by "
        "itself. The tables below one that fails are left, and the command exits with 1.",
        is_daily=True,
    ),
    Command(
        "list",
        "list dynamic tables: version, freshness, last refresh",
        f"{COMMAND_PACKAGE}.tables.list_tables",
        (*STATE, OUTPUT),
        "List the defined dynamic tables, and those in their catalogs that are no longer defined.",
        is_daily=True,
    ),
    Command(
        "show",
        "show one dynamic table: columns, versions, refreshes, rows",
        f"{COMMAND_PACKAGE}.tables.show_table",
        (
            TABLE,
            Argument(("--rows",), "also print that many rows", {"type": argument_types.positive, "default": 0, "metavar": "N"}),
            Argument(
                ("--version",),
                "print rows of that version (default: the current one; 20 rows without --rows)",
                {"type": argument_types.positive, "metavar": "N"},
            ),
            Argument(
                ("--check-sources",),
                "also check whether its sources changed since the current version read them",
                {"action": "store_true"},
            ),
            LIMIT,
            *STATE,
            OUTPUT,
        ),
        "Show one dynamic table of a catalog with its latest versions and refreshes and, with --rows or --version, the first "
        "rows of a version.",
        is_daily=True,
    ),
    Command(
        "history",
        "list the latest refreshes and rollbacks, newest first",
        f"{COMMAND_PACKAGE}.tables.history",
        (ONE_TABLE, LIMIT, *STATE, OUTPUT),
        "List the latest refreshes with action, reason, result, rows, bytes and the seconds of each step.",
        is_daily=True,
    ),
    *CHANGING_COMMANDS,
    Command(
        "rollback",
        "make an earlier version current again",
        f"{COMMAND_PACKAGE}.tables.rollback_table",
        (
            TABLE,
            Argument(
                ("--to",), "the version to restore", {"type": argument_types.positive, "metavar": "VERSION", "required": True}
            ),
            Argument(
                ("--with-columns",),
                "bring its columns and partition keys back, too, where the table has others now",
                {"action": "store_true"},
            ),
            *STATE,
            OUTPUT,
        ),
        "Restore an earlier version in one step, as a new version with its content, data timestamp and sources. No data is "
        "copied. Fails while the table is being refreshed; the next scheduled refresh works on top of it.",
    ),
    Command(
        "publish",
        "commit a refresh that is in quarantine",
        f"{COMMAND_PACKAGE}.tables.publish_stage",
        (TOKEN, *STATE, OUTPUT),
        "Commit a refresh that its row count put into quarantine. Everything else is checked again. Refused if newer data of "
        "the same partitions has been committed since.",
    ),
    Command(
        "abort",
        "delete a refresh that is in quarantine",
        f"{COMMAND_PACKAGE}.tables.abort_stage",
        (TOKEN, *STATE),
        "Delete a refresh that its row count put into quarantine. The table stays as it is.",
    ),
    Command(
        "compact",
        "merge small files of a dynamic table",
        f"{COMMAND_PACKAGE}.tables.compact_table",
        (
            TABLE,
            Argument(
                ("--dry-run",),
                "only print how many files each partition has, and which partitions are due",
                {"action": "store_true"},
            ),
            *STATE,
            OUTPUT,
        ),
        "Merge small files in each partition that has too many, as gc does. This makes no version: rows and history stay, and "
        "readers are not affected. Prints files and bytes of each partition before and after, and why a partition was left; "
        "exits with 1 if one is still due. Safe to run at any time.",
    ),
    Command(
        "gc",
        "clean up after refreshes that died, and expire old versions",
        f"{COMMAND_PACKAGE}.tables.gc",
        (*STATE, OUTPUT),
        "Finish or undo each refresh whose process is gone. Expire versions beyond the retention of their tables, delete "
        "unreferenced files, and prune old history. Running refreshes are not touched. Safe to run at any time.",
    ),
    *CATALOG_COMMANDS,
    *SERVING_COMMANDS,
    STATEMENTS_COMMAND,
    SPARK_COMMANDS,
    CommandGroup(
        "db",
        "the databases of ledger and catalogs",
        (
            Command(
                "upgrade",
                "create the tables of the databases, or migrate them to this release",
                f"{COMMAND_PACKAGE}.tables.upgrade_databases",
                STATE,
                "Create the tables of the ledger and of the `sql` catalogs, or migrate them to this release. SQLite is migrated "
                "automatically; run this once per release for PostgreSQL.",
            ),
        ),
    ),
)

COMMANDS: tuple[Command | CommandGroup, ...] = tuple(command for section in sections(_ALL).values() for command in section)
"""All commands, in the order of the help."""
