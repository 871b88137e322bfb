"""The commands of the table that look at and change what catalogs hold."""

from __future__ import annotations

from airflow_dynamic_tables.cli import argument_types
from airflow_dynamic_tables.cli.arguments import OUTPUT, STATE, TABLE, Argument, Command

_MODULE = "airflow_dynamic_tables.cli.commands.catalogs"
_COMMON = (*STATE, OUTPUT)

_CATALOG = Argument(("catalog",), "a catalog (default: the default catalog)", {"metavar": "CATALOG", "nargs": "?"})
_DATABASE = Argument(
    ("database",), "a database: catalog.database or database (default: the default one)", {"metavar": "DATABASE", "nargs": "?"}
)
_NAME = Argument(
    ("name",), "its name; a shorter name than the full one is in the default catalog and database", {"metavar": "NAME"}
)
_COMMENT = Argument(("--comment",), "its description", {"metavar": "TEXT"})
_PROPERTY = Argument(
    ("--property",),
    "a property; may be repeated",
    {"metavar": "KEY=VALUE", "type": argument_types.key_value, "action": "append", "dest": "properties"},
)
_REPLACE = Argument(("--replace",), "replace an existing one of this name", {"action": "store_true"})
_IF_EXISTS = Argument(("--if-exists",), "do nothing when it is missing", {"action": "store_true"})
_IF_NOT_EXISTS = Argument(("--if-not-exists",), "do nothing when the name is taken", {"action": "store_true"})


CATALOG_COMMANDS: tuple[Command, ...] = (
    Command(
        "catalogs",
        "list the catalogs",
        f"{_MODULE}.list_catalogs",
        _COMMON,
        "List the catalogs that the catalogs file names or, without one, that the definitions mention. Connects to none.",
    ),
    Command(
        "databases",
        "list the databases of a catalog",
        f"{_MODULE}.list_databases",
        (_CATALOG, *_COMMON),
        "List the databases of a catalog.",
    ),
    Command(
        "tables",
        "list the tables, dynamic tables and views of a database",
        f"{_MODULE}.list_tables",
        (_DATABASE, *_COMMON),
        "List everything in a database that can be read as a table, of any engine.",
    ),
    Command(
        "views", "list the views of a database", f"{_MODULE}.list_views", (_DATABASE, *_COMMON), "List the views of a database."
    ),
    Command(
        "functions",
        "list the functions of a database",
        f"{_MODULE}.list_functions",
        (_DATABASE, *_COMMON),
        "List the functions of a database.",
    ),
    Command(
        "partitions",
        "list the partitions of a table: rows, bytes, files",
        f"{_MODULE}.list_partitions",
        (
            TABLE,
            Argument(
                ("--partition",),
                "only those that agree with this spec, e.g. ds=2024-01-01",
                {"metavar": "SPEC", "type": argument_types.partition},
            ),
            *_COMMON,
        ),
        "List the partitions of a table with their sizes, as the table's own metadata or its catalog has them.",
    ),
    Command(
        "describe",
        "show a table, view, function or database in full",
        f"{_MODULE}.describe",
        (_NAME, *_COMMON),
        "Show the table, dynamic table, view, function or database of that name, the first that exists, with its statistics.",
    ),
    Command(
        "create-database",
        "create a database",
        f"{_MODULE}.create_database",
        (_NAME, _COMMENT, _PROPERTY, _IF_NOT_EXISTS, *_COMMON),
        "Create a database in a catalog.",
    ),
    Command(
        "drop-database",
        "drop a database",
        f"{_MODULE}.drop_database",
        (
            _NAME,
            Argument(("--cascade",), "drop what it holds, too; data files stay", {"action": "store_true"}),
            _IF_EXISTS,
            *_COMMON,
        ),
        "Drop a database that is empty or, with --cascade, with everything in it. Data files are not deleted.",
    ),
    Command(
        "create-view",
        "create a view that definitions can read",
        f"{_MODULE}.create_view",
        (
            _NAME,
            Argument(("--query",), "the SELECT", {"metavar": "SQL"}),
            Argument(("-f", "--file"), "file with the SELECT", {"metavar": "FILE"}),
            _COMMENT,
            _REPLACE,
            *_COMMON,
        ),
        "Create a view. Short names in its query mean tables and functions of the view's own database. Definitions read it as a "
        "source of format 'view'.",
    ),
    Command("drop-view", "drop a view", f"{_MODULE}.drop_view", (_NAME, _IF_EXISTS, *_COMMON), "Drop a view, and nothing else."),
    Command(
        "create-function",
        "create a function that queries can call",
        f"{_MODULE}.create_function",
        (
            _NAME,
            Argument(("--language",), "what it is written in", {"choices": ("python", "java"), "required": True}),
            Argument(
                ("--as",), "module:callable (python) or class (java)", {"metavar": "CODE", "required": True, "dest": "code"}
            ),
            Argument(("--returns",), "type of its result as Spark DDL; python needs it", {"metavar": "TYPE"}),
            Argument(
                ("--property",),
                "a property; py_files and jars name the code by URIs, separated by commas; may be repeated",
                {"metavar": "KEY=VALUE", "type": argument_types.key_value, "action": "append", "dest": "properties"},
            ),
            _REPLACE,
            *_COMMON,
        ),
        "Create a function. A refresh whose query calls it registers it in its Spark session.",
    ),
    Command(
        "drop-function",
        "drop a function",
        f"{_MODULE}.drop_function",
        (_NAME, _IF_EXISTS, *_COMMON),
        "Drop a function.",
    ),
)
