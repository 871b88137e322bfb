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
    "USE, CREATE TABLE AS, CREATE and DROP of databases, views and functions. Declarations are written to the folder of the "
    "definitions. It stops at the first statement that fails and names those that ran; after a syntax error no statement runs. "
    "Without -f and -e it opens a shell on a terminal, or reads standard input.",
    is_daily=True,
)
