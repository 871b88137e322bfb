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
        "write a project to begin with: a table, its source, a DAG file",
        f"{_PACKAGE}.starting.init",
        (INTO, DEBUG),
        "Write a project that runs: a dynamic table and its source as YAML, the catalogs, the DAG file for Airflow, and a week "
        "of data that ends yesterday. Prints what to type next. When one of its files exists already, it writes nothing.",
    ),
    Command(
        "validate",
        "check the definitions and print every mistake",
        f"{_PACKAGE}.checking.validate",
        (WITHOUT_SPARK, *STATE),
        "Check every definition. Prints every mistake of every file as path:line:column: message, and exits with 1 if there "
        "is one. Needs no catalog, no Spark and no Airflow: right for a pre-commit hook or CI. Where PySpark and Java are "
        "installed, Spark says what is SQL, and which columns the queries return that changed since they were deployed; "
        "queries it has seen before are not read again.",
    ),
    Command(
        "test",
        "run the unit tests of queries",
        f"{_PACKAGE}.query_tests.running.test",
        (
            TABLES,
            Argument(("--junit-xml",), "also write the results into this file, as CI servers read them", {"metavar": "FILE"}),
            MASTER,
            *STATE,
            OUTPUT,
        ),
        "Run the tests that stand beside the definitions, all in one Spark: every query over rows that its tests give; "
        "nothing real is read or written. Prints the rows that are missing, extra or changed; exits with 1 unless all pass.",
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
                "look at the tables, too, and warn of changes that a refresh would refuse",
                {"action": argument_types.calling(f"{_PACKAGE}.comparing.plan")},
            ),
            *STATE,
            OUTPUT,
        ),
        "Show what a scheduled refresh would do: refresh mode and why, cron, partitions, upstream tables and the statement. "
        "Without --compare it needs no catalog; in any case no Spark and no Airflow. As a table, the statement is shown for "
        "tables that are named.",
    ),
    Command(
        "schema",
        "print the JSON Schema of definition files",
        f"{_PACKAGE}.definitions.schema",
        (DEBUG,),
        "Print the JSON Schema of definition files, for completion and checks in an editor.",
    ),
)
