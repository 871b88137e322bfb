"""The commands that make definitions, check them and test them."""

from __future__ import annotations

from airflow_dynamic_tables.cli import argument_types
from airflow_dynamic_tables.cli.arguments import (
    DEBUG,
    INTO,
    MASTER,
    OUTPUT,
    SCHEDULE_TIME,
    STATE,
    TABLES,
    WITHOUT_SPARK,
    Argument,
    Command,
)

_PACKAGE = "airflow_dynamic_tables.cli.commands"

DEFINITION_COMMANDS: tuple[Command, ...] = (
    Command(
        "init",
        "create a sample project: a table, its source, a DAG file",
        f"{_PACKAGE}.starting.init",
        (INTO, DEBUG),
        "Write a project that runs: a dynamic table and its source as YAML, the catalogs, the DAG file for Airflow, and a week "
        "of data that ends yesterday. Prints the next commands. If one of its files already exists, it writes nothing.",
        is_daily=True,
    ),
    Command(
        "validate",
        "check the definitions and print every mistake",
        f"{_PACKAGE}.checking.validate",
        (WITHOUT_SPARK, *STATE),
        "Check every definition. Prints every mistake of every file as path:line:column: message, and exits with 1 if there "
        "is one. Needs no catalog, no Spark and no Airflow: right for a pre-commit hook or CI. If PySpark and Java are "
        "installed, Spark checks the syntax of each query once, and the columns of the queries that changed since they were "
        "deployed.",
        is_daily=True,
    ),
    Command(
        "test",
        "run the unit tests of queries",
        f"{_PACKAGE}.query_tests.running.test",
        (
            TABLES,
            Argument(("--junit-xml",), "also write the results to this file, in the format of CI servers", {"metavar": "FILE"}),
            MASTER,
            *STATE,
            OUTPUT,
        ),
        "Run the tests beside the definitions, all in one Spark session: each query reads the rows of its test. No real table "
        "is read or written. Prints missing, extra and changed rows. Exits with 1 unless all tests pass.",
        is_daily=True,
    ),
    Command(
        "plan",
        "show what a scheduled refresh would do",
        f"{_PACKAGE}.definitions.plan",
        (
            TABLES,
            SCHEDULE_TIME,
            Argument(
                ("--compare",),
                "also read the tables: show missed ticks that it would make up for, and warn of changes that it would refuse",
                {"action": argument_types.calling(f"{_PACKAGE}.comparing.plan")},
            ),
            *STATE,
            OUTPUT,
        ),
        "Show what a scheduled refresh would do: refresh mode and why, cron, partitions, upstream tables and the statement. "
        "It needs neither Spark nor Airflow, and a catalog only with --compare. The table output shows the statement of named "
        "tables only.",
        is_daily=True,
    ),
    Command(
        "schema",
        "print the JSON Schema of definition files",
        f"{_PACKAGE}.schema.schema",
        (DEBUG,),
        "Print the JSON Schema of definition files, for completion and checks in an editor.",
    ),
)
