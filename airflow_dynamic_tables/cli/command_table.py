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
    Group,
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

_ALL: tuple[Command | Group, ...] = (
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
            Argument(("--full-refresh",), "replace the whole table, whatever its partitions", {"action": "store_true"}),
            FORCE,
            *AS_SOMEBODY_ELSE,
            MASTER,
            *STATE,
            OUTPUT,
        ),
        "Run one refresh with spark-submit and commit it. Nothing is visible to readers until everything succeeded; Ctrl-C "
        "or a failure leaves the last version as it is.",
        is_daily=True,
    ),
    Command(
        "list",
        "list dynamic tables: version, freshness, last refresh",
        f"{_PACKAGE}.tables.list_tables",
        (*STATE, OUTPUT),
        "List the defined dynamic tables, and those that their catalogs still hold but nobody defines any more.",
        is_daily=True,
    ),
    Command(
        "show",
        "show one dynamic table: columns, versions, refreshes, rows",
        f"{_PACKAGE}.tables.show_table",
        (
            TABLE,
            Argument(
                ("--rows",), "also print that many of its rows", {"type": argument_types.positive, "default": 0, "metavar": "N"}
            ),
            Argument(
                ("--version",),
                "print rows as that version has them (default: the current one; 20 rows without --rows)",
                {"type": argument_types.positive, "metavar": "N"},
            ),
            Argument(
                ("--check-sources",),
                "also look whether its sources have moved since the current version read them",
                {"action": "store_true"},
            ),
            LIMIT,
            *STATE,
            OUTPUT,
        ),
        "Show one dynamic table as its catalog has it, with the latest of its kept versions and of its refreshes and, if asked, "
        "the first rows of any kept version.",
        is_daily=True,
    ),
    Command(
        "history",
        "list the latest refreshes and rollbacks, newest first",
        f"{_PACKAGE}.tables.history",
        (ONE_TABLE, LIMIT, *STATE, OUTPUT),
        "List the latest refreshes: what was done and why, how it ended, rows, bytes and seconds of each step.",
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
        "commit what is in quarantine",
        f"{_PACKAGE}.tables.publish_stage",
        (TOKEN, *STATE, OUTPUT),
        "Commit a stage that a tripped fuse put into quarantine. Everything else is checked again; refused when newer data of "
        "the same partitions was committed meanwhile.",
    ),
    Command(
        "abort",
        "delete what is in quarantine",
        f"{_PACKAGE}.tables.abort_stage",
        (TOKEN, *STATE),
        "Delete a stage that a tripped fuse put into quarantine. The table stays as it is.",
    ),
    Command(
        "compact",
        "make few files of many small ones",
        f"{_PACKAGE}.tables.compact_table",
        (
            TABLE,
            Argument(("--dry-run",), "only say how many files each partition has, and which are due", {"action": "store_true"}),
            *STATE,
            OUTPUT,
        ),
        "Make few files of the small ones of a dynamic table where a partition has too many, as gc does. It is no version: rows, "
        "history and what reads the table stay as they are. Prints files and bytes of each partition before and after, and what "
        "stays as it is and why; exits with 1 when something stays that is due. Safe to run at any time.",
    ),
    Command(
        "gc",
        "clean up after refreshes that died, and expire old versions",
        f"{_PACKAGE}.tables.gc",
        (*STATE, OUTPUT),
        "Settle every stage whose owner is gone: complete what landed, delete what did not. Forget versions beyond the retention "
        "of their tables, delete files that nothing refers to, and prune old history. Refreshes that are running are not "
        "touched. Safe to run at any time.",
    ),
    *CATALOG_COMMANDS,
    *SERVING_COMMANDS,
    STATEMENTS_COMMAND,
    SPARK_COMMANDS,
    Group(
        "db",
        "the databases of ledger and catalogs",
        (
            Command(
                "upgrade",
                "create the tables of the databases or bring them up to date",
                f"{_PACKAGE}.tables.upgrade_databases",
                STATE,
                "Create the tables of the ledger and of the `sql` catalogs, or migrate them to this release. The embedded "
                "default does it by itself; run this once per release for PostgreSQL.",
            ),
        ),
    ),
)

COMMANDS: tuple[Command | Group, ...] = tuple(command for section in sections(_ALL).values() for command in section)
"""All commands, in the order of the help."""
