"""The commands that make, suspend, resume, rename, drop and recover dynamic tables."""

from __future__ import annotations

from airflow_dynamic_tables.cli import argument_types
from airflow_dynamic_tables.cli.arguments import MASTER, OUTPUT, STATE, TABLE, Argument, Command

_PACKAGE = "airflow_dynamic_tables.cli.commands.changing"

CHANGING_COMMANDS: tuple[Command, ...] = (
    Command(
        "ctas",
        "make a table of a query, once",
        "airflow_dynamic_tables.cli.commands.one_off.ctas.create_table",
        (
            Argument(("table",), "its name: catalog.database.table, or less", {"metavar": "NAME"}),
            Argument(("--query",), "the query that returns its rows", {"metavar": "SQL"}),
            Argument(("--query-file",), "a file with the query", {"metavar": "PATH"}),
            Argument(("--if-not-exists",), "a table that is there stays, and is no error", {"action": "store_true"}),
            Argument(("--replace",), "replace the rows of a table that was made so", {"action": "store_true"}),
            Argument(("--format",), "format of the table (default: iceberg, or as it was)", {"metavar": "FORMAT"}),
            Argument(
                ("--partitioned-by",),
                "its partition keys, separated by commas: columns, or of them day(ts), bucket(16, id)",
                {"metavar": "KEYS"},
            ),
            Argument(("--comment",), "what people read about it", {"metavar": "TEXT"}),
            Argument(("--timezone",), "time zone of the query (default: UTC)", {"metavar": "ZONE", "default": "UTC"}),
            Argument(
                ("--conf",),
                "a setting of Spark; may be repeated",
                {"metavar": "KEY=VALUE", "type": argument_types.key_value, "action": "append"},
            ),
            Argument(("--token",), "name of this try, new for every one", {"metavar": "TOKEN", "type": argument_types.token}),
            Argument(("--dry-run",), "only say what would be done, or why it is refused", {"action": "store_true"}),
            MASTER,
            *STATE,
            OUTPUT,
        ),
        "CREATE TABLE AS: run a query and make a table of what it returns, in one step. Nobody sees it before it is whole; "
        "Ctrl-C or a failure leaves none, or with --replace the one that was there.",
    ),
    Command(
        "suspend",
        "stop refreshing a table",
        f"{_PACKAGE}.suspend_table",
        (
            TABLE,
            Argument(("--reason",), "why, for whoever finds it suspended", {"metavar": "TEXT", "default": ""}),
            *STATE,
            OUTPUT,
        ),
        "Let no refresh of a table begin any more, by schedule, by hand or all the time; one that runs goes on to its end. "
        "Versions, history and readers stay. Five scheduled refreshes that fail in a row do the same.",
        is_daily=True,
    ),
    Command(
        "resume",
        "let a suspended table be refreshed again",
        f"{_PACKAGE}.resume_table",
        (TABLE, *STATE, OUTPUT),
        "Let a suspended table be refreshed again, by the next run of its DAG. Failures before that count no more.",
        is_daily=True,
    ),
    Command(
        "rename",
        "give a dynamic table another name",
        f"{_PACKAGE}.rename_table",
        (TABLE, Argument(("new",), "its new name; the database stays", {"metavar": "NEW"}), *STATE, OUTPUT),
        "Give a dynamic table another name within its database; data, versions and history follow. Refused while it is being "
        "refreshed, or when a refresh of it is in quarantine. Change the name in its definition, too: while the former name is "
        "defined, its next refresh makes a new table of that name.",
    ),
    Command(
        "recover",
        "finish or undo refreshes that were interrupted",
        f"{_PACKAGE}.recover_table",
        (TABLE, *STATE, OUTPUT),
        "End every refresh of a table whose owner is gone, complete those that landed, and finish a rename that was cut off, as "
        "the next refresh and gc do. Refreshes that are running are not touched. Prints what was done, and what is left and why; "
        "exits with 1 when something is. Safe to run at any time.",
    ),
    Command(
        "drop",
        "drop a dynamic table",
        f"{_PACKAGE}.drop_table",
        (
            TABLE,
            Argument(("--yes",), "do it; without this, only check that it could be done", {"action": "store_true"}),
            Argument(("--if-exists",), "a table that is not there is no error", {"action": "store_true"}),
            Argument(("--purge",), "also delete its files", {"action": "store_true"}),
            *STATE,
            OUTPUT,
        ),
        "Drop a dynamic table from its catalog, with all its versions. Refused while it is being refreshed, or when a refresh of "
        "it is in quarantine. Data files stay without --purge, its history in any case; while it is defined, its next refresh "
        "makes it anew.",
    ),
)
