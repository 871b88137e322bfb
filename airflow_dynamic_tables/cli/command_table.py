"""The one table of commands, as neutral values.

``cli.main`` builds argparse from it, ``plugins`` builds Airflow's ``airflow dynamic-tables`` from it. Functions are named by
dotted path, so that nothing is imported before a command runs; they take the parsed arguments and return an exit code.
"""

from __future__ import annotations

from airflow_dynamic_tables.cli import argument_types
from airflow_dynamic_tables.cli.arguments import (
    DEBUG,
    DEFINITIONS,
    INTO,
    LIMIT,
    MASTER,
    ONE_TABLE,
    OUTPUT,
    PARTITION,
    SCHEDULE_TIME,
    STATE,
    TABLE,
    TABLES,
    TOKEN,
    WITHOUT_SPARK,
    Argument,
    Command,
    Group,
)
from airflow_dynamic_tables.cli.catalog_command_table import CATALOG_COMMANDS

SUMMARY = "Tables that keep themselves fresh: SQL plus a freshness in YAML, refreshed atomically."

_PACKAGE = "airflow_dynamic_tables.cli.commands"

COMMANDS: tuple[Command | Group, ...] = (
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
        f"{_PACKAGE}.definitions.validate",
        (DEFINITIONS, WITHOUT_SPARK, DEBUG),
        "Check every definition. Prints every mistake of every file as path:line:column: message, and exits with 1 if there "
        "is one. Needs no catalog, no Spark and no Airflow: right for a pre-commit hook or CI. Where PySpark and Java are "
        "installed, Spark's own parser says what is SQL; queries it has seen before are not parsed again.",
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
    Command(
        "list",
        "list dynamic tables: version, freshness, last refresh",
        f"{_PACKAGE}.tables.list_tables",
        (*STATE, OUTPUT),
        "List the defined dynamic tables, and those that their catalogs still hold but nobody defines any more.",
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
    ),
    Command(
        "history",
        "list the latest refreshes and rollbacks, newest first",
        f"{_PACKAGE}.tables.history",
        (ONE_TABLE, LIMIT, *STATE, OUTPUT),
        "List the latest refreshes: what was done and why, how it ended, rows, bytes and seconds of each step.",
    ),
    Command(
        "create",
        "register defined tables in their catalogs",
        f"{_PACKAGE}.tables.create_tables",
        (TABLES, *STATE, OUTPUT),
        "Register dynamic tables in their catalogs, or alter them where the definition changed. The first refresh does this "
        "too; no data is written.",
    ),
    Command(
        "adopt",
        "make a dynamic table of a Hive table that is there already",
        f"{_PACKAGE}.tables.adopt_table",
        (TABLE, *STATE, OUTPUT),
        "Make the defined table of a table of the same name that is in the Hive metastore already. Its rows stay where they are, "
        "and every refresh replaces the partitions that it plans. Columns, partition keys and format must be those of the query.",
    ),
    Command(
        "refresh",
        "run one refresh now, without Airflow",
        f"{_PACKAGE}.refresh.refresh",
        (
            TABLE,
            SCHEDULE_TIME,
            PARTITION,
            Argument(("--full-refresh",), "replace the whole table, whatever its partitions", {"action": "store_true"}),
            MASTER,
            *STATE,
            OUTPUT,
        ),
        "Run one refresh with spark-submit and commit it. Nothing is visible to readers until everything succeeded; Ctrl-C "
        "or a failure leaves the last version as it is.",
    ),
    Command(
        "suspend",
        "let a table be refreshed no more",
        f"{_PACKAGE}.tables.suspend_table",
        (TABLE, *STATE, OUTPUT),
        "Let no refresh of a table begin any more, by schedule, by hand or all the time; one that runs goes on to its end. "
        "Versions, history and readers stay.",
    ),
    Command(
        "resume",
        "let a suspended table be refreshed again",
        f"{_PACKAGE}.tables.resume_table",
        (TABLE, *STATE, OUTPUT),
        "Let a suspended table be refreshed again, by the next run of its DAG.",
    ),
    Command(
        "rollback",
        "make an earlier version current again",
        f"{_PACKAGE}.tables.rollback_table",
        (
            TABLE,
            Argument(
                ("--to",), "the version to restore", {"type": argument_types.positive, "metavar": "VERSION", "required": True}
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
        "drop",
        "drop a dynamic table",
        f"{_PACKAGE}.tables.drop_table",
        (
            TABLE,
            Argument(("--yes",), "do it; without this, only check that it could be done", {"action": "store_true"}),
            *STATE,
            OUTPUT,
        ),
        "Drop a dynamic table from its catalog, with all its versions. Refused while it is being refreshed, or when a refresh of "
        "it is in quarantine. Data files stay, and so does its history; while it is defined, its next refresh makes it anew.",
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
    Group(
        "spark",
        "a Spark server on this machine that stays warm between refreshes, and faster starts without one",
        (
            Command(
                "start",
                "start it, or find the one that runs",
                f"{_PACKAGE}.spark.start_server",
                (
                    Argument(
                        ("--idle",),
                        "end it after so long without use, or never (default: 15 minutes)",
                        {"metavar": "TIME", "type": argument_types.idle_time, "default": "15 minutes"},
                    ),
                    Argument(
                        ("--master",),
                        "how many cores it takes, e.g. local[2] (default: local[*], all)",
                        {"metavar": "URL", "type": argument_types.local_master, "default": "local[*]"},
                    ),
                    Argument(("--driver-memory",), "memory of its Java, e.g. 4g (default: Spark's own)", {"metavar": "SIZE"}),
                    Argument(("--jars",), "jars that its queries need, with commas between: JDBC drivers", {"metavar": "FILES"}),
                    *STATE,
                    OUTPUT,
                ),
                "Start Spark's Connect server for this user and state, or find the one that runs. Options count when it starts. "
                "It asks for a random token, listens on loopback only, and ends when unused for long. One that hangs is ended.",
            ),
            Command(
                "stop",
                "end it with everything that it runs",
                f"{_PACKAGE}.spark.stop_server",
                STATE,
                "End the server with everything that it runs; killed when it does not end by itself within 20 seconds.",
            ),
            Command(
                "status",
                "show whether it runs, where, and since when nobody uses it",
                f"{_PACKAGE}.spark.show_server",
                (*STATE, OUTPUT),
                "Show the server: running, stopped, changing (somebody starts or stops it), hung (it does not answer) or died. "
                "Exits with 1 for the last two.",
            ),
            Command(
                "archive",
                "make Spark start faster on this machine, once: store the classes that Java loads",
                f"{_PACKAGE}.spark.store_classes",
                (OUTPUT, DEBUG),
                "Run a small refresh, and store the classes that it loads as Java has them in memory, 170 MB in the user's "
                "folder of caches. Every spark-submit and every Spark server that this package starts uses them from then on. "
                "Needed once for each machine or image, and after an update of Java or Spark: Java ignores what does not fit.",
            ),
        ),
    ),
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
