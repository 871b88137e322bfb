"""Commands and command groups, by subject."""

from __future__ import annotations

from airflow_dynamic_tables.cli import argument_types
from airflow_dynamic_tables.cli.arguments import (
    COMMAND_PACKAGE,
    DEBUG,
    INTO,
    MASTER,
    OUTPUT,
    SCHEDULE_TIME,
    STATE,
    TABLE,
    TABLES,
    WITHOUT_SPARK,
    Argument,
    Command,
    CommandGroup,
)

STATEMENTS_COMMAND = Command(
    "sql",
    "run SQL statements, or open a SQL shell",
    "airflow_dynamic_tables.cli.statements.sql",
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


OF_A_REQUEST = (
    Argument(
        ("--scheduled",),
        "as its schedule would: skipped if no input changed, and five failures in a row suspend the table",
        {"action": "store_true"},
    ),
    Argument(
        ("--token",),
        "unique name of this refresh in the history (default: a random one)",
        {"metavar": "TOKEN", "type": argument_types.token},
    ),
)
"""Options with which a program runs a refresh that was requested elsewhere."""

SERVING_COMMANDS: tuple[Command, ...] = (
    Command(
        "serve",
        "run the REST API without Airflow",
        f"{COMMAND_PACKAGE}.serving.serve_gateway",
        (
            Argument(("--host",), "address to listen on (default: 127.0.0.1, this machine only)", {"default": "127.0.0.1"}),
            Argument(
                ("--port",),
                "the port, or 0 for any that is free (default: 8090)",
                {"type": argument_types.port, "default": 8090, "metavar": "N"},
            ),
            Argument(
                ("--allow-host",),
                "another host name that requests may have, besides localhost and the address; may be repeated",
                {"metavar": "NAME", "action": "append", "dest": "allowed_hosts", "default": []},
            ),
            Argument(
                ("--token-file",),
                "file with the token, which no other user can read (default: the token is in $DYNAMIC_TABLES_TOKEN)",
                {"metavar": "PATH"},
            ),
            Argument(
                ("--jobs",),
                "how many refreshes run at once; others wait (default: 2)",
                {"type": argument_types.positive, "default": 2, "metavar": "N"},
            ),
            Argument(
                ("--patience",),
                "seconds that running refreshes get when the server is stopped; then they are stopped, too (default: 30)",
                {"type": argument_types.positive, "default": 30, "metavar": "N"},
            ),
            *STATE,
        ),
        "Serve the REST gateway: tables, their history and plans, and refreshes as jobs, each in a process that runs the "
        "command refresh. The token gives access to all of it. It prints its address on stderr; SIGTERM or Ctrl-C ends it.",
    ),
)


SPARK_COMMANDS = CommandGroup(
    "spark",
    "a warm Spark server on this machine, and faster starts of Spark",
    (
        Command(
            "start",
            "start the server, or find the running one",
            f"{COMMAND_PACKAGE}.spark.start_server",
            (
                Argument(
                    ("--idle",),
                    "stop it after this time without use, or never (default: 2 hours)",
                    {"metavar": "TIME", "type": argument_types.idle_time, "default": "2 hours"},
                ),
                Argument(
                    ("--master",),
                    "how many cores it uses, e.g. local[2] (default: local[*], all)",
                    {"metavar": "URL", "type": argument_types.local_master, "default": "local[*]"},
                ),
                Argument(("--driver-memory",), "memory of its Java, e.g. 4g (default: Spark's own)", {"metavar": "SIZE"}),
                Argument(
                    ("--jars",), "jars that its queries need, separated by commas, for example JDBC drivers", {"metavar": "FILES"}
                ),
                *STATE,
                OUTPUT,
            ),
            "Start Spark's Connect server for this user and state, or find the running one. Options count when it starts. It "
            "requires a random token, listens on loopback only, and stops after a time without use. A server that hangs is "
            "replaced.",
        ),
        Command(
            "stop",
            "stop the server and everything that it runs",
            f"{COMMAND_PACKAGE}.spark.stop_server",
            STATE,
            "Stop the server and everything that it runs. It is killed if it does not stop within 20 seconds.",
        ),
        Command(
            "status",
            "show whether the server runs, its address, and how long it has been idle",
            f"{COMMAND_PACKAGE}.spark.show_server",
            (*STATE, OUTPUT),
            "Show the server: running, stopped, changing (a command starts or stops it), hung (it does not answer) or died. "
            "Exits with 1 for the last two.",
        ),
        Command(
            "archive",
            "make Spark start faster on this machine: store the classes that Java loads",
            f"{COMMAND_PACKAGE}.spark.store_classes",
            (OUTPUT, DEBUG),
            "Run a small refresh, and store the classes that it loads as Java has them in memory, 170 MB in the user's "
            "folder of caches. Every spark-submit and every Spark server that this package starts uses them from then on. "
            "Needed once for each machine or image, and after an update of Java or Spark: Java ignores what does not fit.",
        ),
    ),
)


DEPLOYMENT_COMMANDS: tuple[Command, ...] = (
    Command(
        "diff",
        "compare what is declared with what is deployed",
        f"{COMMAND_PACKAGE}.deployments.diff",
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
        f"{COMMAND_PACKAGE}.deployments.apply",
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
        f"{COMMAND_PACKAGE}.deployments.export",
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
        f"{COMMAND_PACKAGE}.tables.create_tables",
        (TABLES, *STATE, OUTPUT),
        "Register dynamic tables in their catalogs, or alter them where the definition changed. The first refresh does this "
        "too; no data is written.",
    ),
    Command(
        "adopt",
        "turn an existing Hive table into a dynamic table",
        f"{COMMAND_PACKAGE}.tables.adopt_table",
        (TABLE, *STATE, OUTPUT),
        "Turn an existing table of the Hive metastore into the dynamic table that is defined under its name. Its rows stay, and "
        "every refresh replaces the partitions that it plans. Columns, partition keys and format must be those of the query.",
    ),
)


DEFINITION_COMMANDS: tuple[Command, ...] = (
    Command(
        "init",
        "create a sample project: a table, its source, a DAG file",
        f"{COMMAND_PACKAGE}.definitions.init",
        (INTO, DEBUG),
        "Write a project that runs: a dynamic table and its source as YAML, the catalogs, the DAG file for Airflow, and a week "
        "of data that ends yesterday. Prints the next commands. If one of its files already exists, it writes nothing.",
        is_daily=True,
    ),
    Command(
        "validate",
        "check the definitions and print every mistake",
        f"{COMMAND_PACKAGE}.checking.validate",
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
        f"{COMMAND_PACKAGE}.query_tests.test",
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
        f"{COMMAND_PACKAGE}.definitions.plan",
        (
            TABLES,
            SCHEDULE_TIME,
            Argument(
                ("--compare",),
                "also read the tables: show missed ticks that it would make up for, and warn of changes that it would refuse",
                {"action": argument_types.calling(f"{COMMAND_PACKAGE}.deployments.plan")},
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
        f"{COMMAND_PACKAGE}.schema.schema",
        (DEBUG,),
        "Print the JSON Schema of definition files, for completion and checks in an editor.",
    ),
)


CHANGING_COMMANDS: tuple[Command, ...] = (
    Command(
        "ctas",
        "create a table from a query, once",
        f"{COMMAND_PACKAGE}.ctas.create_table",
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
        f"{COMMAND_PACKAGE}.changing.suspend_table",
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
        f"{COMMAND_PACKAGE}.changing.resume_table",
        (TABLE, *STATE, OUTPUT),
        "Refresh a suspended table again, from the next run of its DAG on. Earlier failures no longer count.",
        is_daily=True,
    ),
    Command(
        "rename",
        "give a dynamic table another name",
        f"{COMMAND_PACKAGE}.changing.rename_table",
        (TABLE, Argument(("new",), "its new name; the database stays", {"metavar": "NEW"}), *STATE, OUTPUT),
        "Give a dynamic table another name within its database; data, versions and history follow. Refused while it is being "
        "refreshed, or when a refresh of it is in quarantine. Change the name in its definition, too: if the former name is "
        "still defined, its next refresh creates a new table of that name.",
    ),
    Command(
        "recover",
        "finish or undo refreshes that were interrupted",
        f"{COMMAND_PACKAGE}.changing.recover_table",
        (TABLE, *STATE, OUTPUT),
        "Finish or undo each refresh of a table whose process is gone, and finish an interrupted rename, as the next refresh "
        "and gc do. Running refreshes are not touched. Prints what was done, and what is left and why; exits with 1 if "
        "something is left. Safe to run at any time.",
    ),
    Command(
        "drop",
        "drop a dynamic table",
        f"{COMMAND_PACKAGE}.changing.drop_table",
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
