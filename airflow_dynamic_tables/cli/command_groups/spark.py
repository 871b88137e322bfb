"""The commands of the Spark server of this machine."""

from __future__ import annotations

from airflow_dynamic_tables.cli import argument_types
from airflow_dynamic_tables.cli.arguments import DEBUG, OUTPUT, STATE, Argument, Command, Group

_PACKAGE = "airflow_dynamic_tables.cli.commands"

SPARK_COMMANDS = Group(
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
                    "end it after so long without use, or never (default: 2 hours)",
                    {"metavar": "TIME", "type": argument_types.idle_time, "default": "2 hours"},
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
)
