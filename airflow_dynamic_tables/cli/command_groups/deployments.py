"""The commands that compare what is declared with what is deployed, and deploy it."""

from __future__ import annotations

from airflow_dynamic_tables.cli.arguments import MASTER, OUTPUT, STATE, TABLE, TABLES, Argument, Command

_COMMANDS = "airflow_dynamic_tables.cli.commands"

DEPLOYMENT_COMMANDS: tuple[Command, ...] = (
    Command(
        "diff",
        "compare what is declared with what is deployed",
        f"{_COMMANDS}.deployments.diff",
        (
            TABLES,
            Argument(("--exit-code",), "also exit with 1 if a table differs", {"action": "store_true"}),
            *STATE,
            OUTPUT,
        ),
        "Compare the definitions with what is deployed, without Spark: what changes of each table (nothing, metadata, new "
        "nullable columns, the data, or all of it), how its query differs, which columns of other tables read it, and how much "
        "must be computed again. It also names tables that are no longer declared. Exits with 1 on a wrong definition, a "
        "catalog that does not answer, or two deployments that claim one table.",
        is_daily=True,
    ),
    Command(
        "apply",
        "deploy the definitions: register new tables, alter changed ones",
        f"{_COMMANDS}.applying.apply",
        (
            TABLES,
            Argument(
                ("--refresh",),
                "also recompute all rows of tables whose query changed; a rebuild needs this",
                {"action": "store_true"},
            ),
            Argument(("--without-spark",), "do not ask Spark which columns the changed queries return", {"action": "store_true"}),
            Argument(("--take-over",), "take over tables that another deployment has declared", {"action": "store_true"}),
            MASTER,
            *STATE,
            OUTPUT,
        ),
        "Apply the differences that diff shows. Unchanged tables and their DAGs are not touched. Rows are recomputed by later "
        "refreshes, or at once with --refresh; a rebuild needs --refresh. Tables that are no longer declared keep their data "
        "until drop. Exits with 1 if a change was not applied.",
        is_daily=True,
    ),
    Command(
        "export",
        "export deployed tables as YAML or SQL definitions",
        f"{_COMMANDS}.deployments.export",
        (
            TABLES,
            Argument(
                ("--as",),
                "output language: yaml (default) or sql, the statements of dynamic-tables sql",
                {"choices": ("yaml", "sql"), "default": "yaml", "dest": "form"},
            ),
            *STATE,
        ),
        "Print the deployed dynamic tables as a file of definitions. Loading it gives the same tables, in a folder without "
        "defaults that has their sources. Queries have full names, and views of the definitions are written out.",
    ),
    Command(
        "create",
        "register defined tables in their catalogs",
        f"{_COMMANDS}.tables.create_tables",
        (TABLES, *STATE, OUTPUT),
        "Register dynamic tables in their catalogs, or alter them where the definition changed. The first refresh does this "
        "too; no data is written.",
    ),
    Command(
        "adopt",
        "turn an existing Hive table into a dynamic table",
        f"{_COMMANDS}.tables.adopt_table",
        (TABLE, *STATE, OUTPUT),
        "Turn an existing table of the Hive metastore into the dynamic table that is defined under its name. Its rows stay, and "
        "every refresh replaces the partitions that it plans. Columns, partition keys and format must be those of the query.",
    ),
)
