"""The command of statements."""

from __future__ import annotations

from airflow_dynamic_tables.cli.arguments import MASTER, OUTPUT, STATE, Argument, Command

STATEMENTS_COMMAND = Command(
    "sql",
    "run SQL statements, or open a SQL shell",
    "airflow_dynamic_tables.cli.statements.command.sql",
    (
        Argument(("-f", "--file"), "file of statements, or - for standard input", {"metavar": "FILE"}),
        Argument(("-e", "--execute"), "the statements", {"metavar": "STATEMENTS", "dest": "statements"}),
        MASTER,
        *STATE,
        OUTPUT,
    ),
    "Run statements, separated by semicolons: CREATE, ALTER and DROP DYNAMIC TABLE, SHOW, DESCRIBE, EXPLAIN, SELECT, "
    "USE, CREATE TABLE AS, CREATE and DROP of databases, views and functions. What they declare they write into the "
    "folder of the definitions. Stops at the first that fails, and says which are done; a mistake of grammar anywhere stops "
    "all. Without -f and -e it is a shell on a terminal, and else reads standard input.",
    is_daily=True,
)
