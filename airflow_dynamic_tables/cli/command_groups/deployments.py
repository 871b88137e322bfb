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
            Argument(("--exit-code",), "exit with 1 when a table differs, too", {"action": "store_true"}),
            *STATE,
            OUTPUT,
        ),
        "Compare the definitions with what is deployed, without Spark: what changes of each table (nothing, metadata, new "
        "nullable columns, the data, or all of it), how its query differs, which columns of which tables read it, and how much "
        "is to be computed again. Tables that nobody declares any more are told, too. Exits with 1 when something is wrong: a "
        "definition, a catalog that does not answer, two deployments that claim one table.",
    ),
    Command(
        "apply",
        "deploy what is declared: register new tables, alter those that changed",
        f"{_COMMANDS}.applying.apply",
        (
            TABLES,
            Argument(
                ("--refresh",),
                "also make the rows of tables that mean other ones now, all of them anew; a rebuild takes this",
                {"action": "store_true"},
            ),
            Argument(("--without-spark",), "do not ask Spark which columns the changed queries return", {"action": "store_true"}),
            Argument(("--take-over",), "take tables that another deployment has declared", {"action": "store_true"}),
            MASTER,
            *STATE,
            OUTPUT,
        ),
        "Carry out what diff shows. Tables that are unchanged are left alone, and so is whatever refreshes them. New rows are "
        "left to refreshes, unless --refresh makes them; a rebuild is not begun without it. Tables that nobody declares any "
        "more keep their data until drop. Exits with 1 when something was not done.",
    ),
    Command(
        "export",
        "export deployed tables as YAML or SQL definitions",
        f"{_COMMANDS}.deployments.export",
        (
            TABLES,
            Argument(
                ("--as",),
                "what to write: yaml (default) or sql, the statements of dynamic-tables sql",
                {"choices": ("yaml", "sql"), "default": "yaml", "dest": "form"},
            ),
            *STATE,
        ),
        "Print what catalogs hold of dynamic tables as a file of definitions. Reading it gives the same tables, in a folder that "
        "sets no defaults and has their sources. Queries have all names in full, and views of definitions written out.",
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
        "make a dynamic table of a Hive table that is there already",
        f"{_COMMANDS}.tables.adopt_table",
        (TABLE, *STATE, OUTPUT),
        "Make the defined table of a table of the same name that is in the Hive metastore already. Its rows stay where they are, "
        "and every refresh replaces the partitions that it plans. Columns, partition keys and format must be those of the query.",
    ),
)
