"""The command that becomes a local server: its settings, its class path, and how its jobs share the cores."""

from __future__ import annotations

from pathlib import Path

from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.runners.local.folder import Server, ServerFolder

CONF = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # Spark listens for itself, too, and other users of this machine must not be heard.
    "spark.authenticate": "true",
    "spark.sql.catalogImplementation": "in-memory",
    # Tables of one refresh do not wait for the tasks of another.
    "spark.scheduler.mode": "FAIR",
    # A worker that was killed leaves its query behind; nobody but its own client, which comes back at once, wants it.
    "spark.connect.execute.manager.detachedTimeout": "60s",
    # A task that does not end when it is cancelled holds a core for ever; what this says of one is heard by the watcher.
    "spark.task.reaper.enabled": "true",
    "spark.task.reaper.killTimeout": "60s",
    "spark.log.level": "WARN",
    # What a page would show of what has ended, and nobody has that page: by default it fills hundreds of megabytes within hours.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.connect.ui.retainedSessions": "20",
    "spark.connect.ui.retainedStatements": "20",
}
"""Settings of every local server."""

POOLS = '<allocations><pool name="default"><schedulingMode>FAIR</schedulingMode></pool></allocations>\n'
"""All jobs of a server are in one pool, whose jobs would wait for the first one of them, also where pools share fairly."""


def pools_file(folder: ServerFolder) -> Path:
    """Where the server finds :data:`POOLS`."""
    return folder.work / "pools.xml"


def arguments_of(folder: ServerFolder, server: Server) -> list[str]:
    """What spark-submit is told. No secret: everybody on this machine can read it.

    :raises ConfigurationError: when a jar is missing.
    """
    options, work = server.options, folder.work
    conf = CONF | {
        "spark.connect.grpc.binding.port": str(server.port),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.local.dir": str(work / "blocks"),
        "spark.scheduler.allocation.file": pools_file(folder).as_uri(),
    }
    # Artifacts of clients go into Java's temporary folder, which else is open to everybody.
    temporary = f'"-Djava.io.tmpdir={work}"'
    memory = () if options.driver_memory is None else ("--driver-memory", options.driver_memory)
    jars = () if options.jars is None else ("--jars", _found(options.jars))
    return [
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--name", "dynamic-tables"),
        *("--master", options.master, "--driver-java-options", temporary, *memory, *jars),
        *(text for key, value in conf.items() for text in ("--conf", f"{key}={value}")),
        "spark-internal",
    ]


def _found(jars: str) -> str:
    """Jars, those of this machine with their whole path: Spark runs in another folder, and leaves out what it does not find.

    :raises ConfigurationError: when one is missing; names it.
    """
    paths = []
    for jar in jars.split(","):
        path = jar.strip() if ":/" in jar else str(Path(jar.strip()).absolute())
        if path.startswith("/") and not Path(path).is_file():
            raise ConfigurationError(f"There is no jar {path}; the Spark server was not started.")
        paths.append(path)
    return ",".join(paths)
