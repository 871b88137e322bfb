"""The one table of commands, as neutral values.

``cli.main`` builds argparse from it, ``plugins`` builds Airflow's ``airflow dynamic-tables`` from it. Functions are named by
dotted path, so that nothing is imported before a command runs; they take the parsed arguments and return an exit code.
"""

from __future__ import annotations

from airflow_dynamic_tables.cli import argument_types
from airflow_dynamic_tables.cli.arguments import (
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
from airflow_dynamic_tables.cli.catalog_command_table import CATALOG_COMMANDS
from airflow_dynamic_tables.cli.command_groups.changing import CHANGING_COMMANDS
from airflow_dynamic_tables.cli.command_groups.definitions import DEFINITION_COMMANDS
from airflow_dynamic_tables.cli.command_groups.deployments import DEPLOYMENT_COMMANDS
from airflow_dynamic_tables.cli.command_groups.serving import AS_SOMEBODY_ELSE, SERVING_COMMANDS
from airflow_dynamic_tables.cli.command_groups.spark import SPARK_COMMANDS
from airflow_dynamic_tables.cli.command_groups.statements import STATEMENTS_COMMAND

SUMMARY = "Tables that keep themselves fresh: SQL plus a freshness in YAML, refreshed atomically."

_PACKAGE = "airflow_dynamic_tables.cli.commands"

_ALL: tuple[Command | CommandGroup, ...] = (
    *DEFINITION_COMMANDS,
    *DEPLOYMENT_COMMANDS,
    Command(
        "refresh",
        "run one refresh now, without Airflow",
        f"{_PACKAGE}.refresh.refresh",
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
            *AS_SOMEBODY_ELSE,
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
        f"{_PACKAGE}.tables.list_tables",
        (*STATE, OUTPUT),
        "List the defined dynamic tables, and those in their catalogs that are no longer defined.",
        is_daily=True,
    ),
    Command(
        "show",
        "show one dynamic table: columns, versions, refreshes, rows",
        f"{_PACKAGE}.tables.show_table",
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
        f"{_PACKAGE}.tables.history",
        (ONE_TABLE, LIMIT, *STATE, OUTPUT),
        "List the latest refreshes with action, reason, result, rows, bytes and the seconds of each step.",
        is_daily=True,
    ),
    *CHANGING_COMMANDS,
    Command(
        "rollback",
        "make an earlier version current again",
        f"{_PACKAGE}.tables.rollback_table",
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
        f"{_PACKAGE}.tables.publish_stage",
        (TOKEN, *STATE, OUTPUT),
        "Commit a refresh that its row count put into quarantine. Everything else is checked again. Refused if newer data of "
        "the same partitions has been committed since.",
    ),
    Command(
        "abort",
        "delete a refresh that is in quarantine",
        f"{_PACKAGE}.tables.abort_stage",
        (TOKEN, *STATE),
        "Delete a refresh that its row count put into quarantine. The table stays as it is.",
    ),
    Command(
        "compact",
        "merge small files of a dynamic table",
        f"{_PACKAGE}.tables.compact_table",
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
        f"{_PACKAGE}.tables.gc",
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
                f"{_PACKAGE}.tables.upgrade_databases",
                STATE,
                "Create the tables of the ledger and of the `sql` catalogs, or migrate them to this release. SQLite is migrated "
                "automatically; run this once per release for PostgreSQL.",
            ),
        ),
    ),
)

COMMANDS: tuple[Command | CommandGroup, ...] = tuple(command for section in sections(_ALL).values() for command in section)
"""All commands, in the order of the help."""
