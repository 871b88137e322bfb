"""The commands of the Spark server of this machine."""

from __future__ import annotations

from airflow_dynamic_tables.cli import argument_types
from airflow_dynamic_tables.cli.arguments import DEBUG, OUTPUT, STATE, Argument, Command, CommandGroup

_PACKAGE = "airflow_dynamic_tables.cli.commands"

SPARK_COMMANDS = CommandGroup(
    "spark",
    "a warm Spark server on this machine, and faster starts of Spark",
    (
        Command(
            "start",
            "start the server, or find the running one",
            f"{_PACKAGE}.spark.start_server",
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
            f"{_PACKAGE}.spark.stop_server",
            STATE,
            "Stop the server and everything that it runs. It is killed if it does not stop within 20 seconds.",
        ),
        Command(
            "status",
            "show whether the server runs, its address, and how long it has been idle",
            f"{_PACKAGE}.spark.show_server",
            (*STATE, OUTPUT),
            "Show the server: running, stopped, changing (a command starts or stops it), hung (it does not answer) or died. "
            "Exits with 1 for the last two.",
        ),
        Command(
            "archive",
            "make Spark start faster on this machine: store the classes that Java loads",
            f"{_PACKAGE}.spark.store_classes",
            (OUTPUT, DEBUG),
            "Run a small refresh, and store the classes that it loads as Java has them in memory, 170 MB in the user's "
            "folder of caches. Every spark-submit and every Spark server that this package starts uses them from then on. "
            "Needed once for each machine or image, and after an update of Java or Spark: Java ignores what does not fit.",
        ),
    ),
)
