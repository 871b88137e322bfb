"""The commands that make, suspend, resume, rename, drop and recover dynamic tables."""

from __future__ import annotations

from airflow_dynamic_tables.cli import argument_types
from airflow_dynamic_tables.cli.arguments import MASTER, OUTPUT, STATE, TABLE, Argument, Command

_PACKAGE = "airflow_dynamic_tables.cli.commands.changing"

CHANGING_COMMANDS: tuple[Command, ...] = (
    Command(
        "ctas",
        "create a table from a query, once",
        "airflow_dynamic_tables.cli.commands.one_off.ctas.create_table",
        (
            Argument(("table",), "its name: catalog.database.table, or less", {"metavar": "NAME"}),
            Argument(("--query",), "the query that returns its rows", {"metavar": "SQL"}),
            Argument(("--query-file",), "a file with the query", {"metavar": "PATH"}),
            Argument(("--if-not-exists",), "keep an existing table; this is no error", {"action": "store_true"}),
            Argument(("--replace",), "replace the rows of a table that ctas created", {"action": "store_true"}),
            Argument(("--format",), "format of the table (default: iceberg, or as it was)", {"metavar": "FORMAT"}),
            Argument(
                ("--partitioned-by",),
                "its partition keys, separated by commas: columns, or transforms such as day(ts), bucket(16, id)",
                {"metavar": "KEYS"},
            ),
            Argument(("--comment",), "its description", {"metavar": "TEXT"}),
            Argument(("--timezone",), "time zone of the query (default: UTC)", {"metavar": "ZONE", "default": "UTC"}),
            Argument(
                ("--conf",),
                "a setting of Spark; may be repeated",
                {"metavar": "KEY=VALUE", "type": argument_types.key_value, "action": "append"},
            ),
            Argument(("--token",), "unique name of this try", {"metavar": "TOKEN", "type": argument_types.token}),
            Argument(("--dry-run",), "only print what it would do, or why it would refuse", {"action": "store_true"}),
            MASTER,
            *STATE,
            OUTPUT,
        ),
        "CREATE TABLE AS: run a query and create a table from its rows, in one step. Readers see the table only when it is "
        "complete. Ctrl-C or a failure leaves no table, or with --replace the previous one.",
    ),
    Command(
        "suspend",
        "stop refreshing a table",
        f"{_PACKAGE}.suspend_table",
        (
            TABLE,
            Argument(("--reason",), "the reason, which the history and list show", {"metavar": "TEXT", "default": ""}),
            *STATE,
            OUTPUT,
        ),
        "Stop refreshing a table, by schedule, by hand and in continuous mode. A running refresh is completed. Versions and "
        "history stay, and readers are not affected. Five failures of scheduled refreshes in a row do the same.",
        is_daily=True,
    ),
    Command(
        "resume",
        "refresh a suspended table again",
        f"{_PACKAGE}.resume_table",
        (TABLE, *STATE, OUTPUT),
        "Refresh a suspended table again, from the next run of its DAG on. Earlier failures no longer count.",
        is_daily=True,
    ),
    Command(
        "rename",
        "give a dynamic table another name",
        f"{_PACKAGE}.rename_table",
        (TABLE, Argument(("new",), "its new name; the database stays", {"metavar": "NEW"}), *STATE, OUTPUT),
        "Give a dynamic table another name within its database; data, versions and history follow. Refused while it is being "
        "refreshed, or when a refresh of it is in quarantine. Change the name in its definition, too: if the former name is "
        "still defined, its next refresh creates a new table of that name.",
    ),
    Command(
        "recover",
        "finish or undo refreshes that were interrupted",
        f"{_PACKAGE}.recover_table",
        (TABLE, *STATE, OUTPUT),
        "Finish or undo each refresh of a table whose process is gone, and finish an interrupted rename, as the next refresh "
        "and gc do. Running refreshes are not touched. Prints what was done, and what is left and why; exits with 1 if "
        "something is left. Safe to run at any time.",
    ),
    Command(
        "drop",
        "drop a dynamic table",
        f"{_PACKAGE}.drop_table",
        (
            TABLE,
            Argument(("--yes",), "drop it; without this, only check that it could be dropped", {"action": "store_true"}),
            Argument(("--if-exists",), "a missing table is no error", {"action": "store_true"}),
            Argument(("--purge",), "also delete its files", {"action": "store_true"}),
            *STATE,
            OUTPUT,
        ),
        "Drop a dynamic table from its catalog, with all its versions. Refused while it is being refreshed, or when a refresh of "
        "it is in quarantine. Data files stay without --purge, its history in any case. If it is still defined, its next "
        "refresh creates it again.",
    ),
)
