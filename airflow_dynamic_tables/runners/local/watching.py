"""The command line of a local server: settings, class path and fair scheduling; and the scripts that launch and watch it."""

from __future__ import annotations

from pathlib import Path

from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.runners.local.folder import Server, ServerFolder

CONF = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # Spark also opens ports of its own, which must reject other users of this machine.
    "spark.authenticate": "true",
    "spark.sql.catalogImplementation": "in-memory",
    # Tasks of concurrent refreshes share the cores.
    "spark.scheduler.mode": "FAIR",
    # A killed worker leaves its query behind; only its own client could resume it, and would reconnect immediately.
    "spark.connect.execute.manager.detachedTimeout": "60s",
    # A cancelled task that does not end holds a core forever; the watcher reads the reaper's message about it.
    "spark.task.reaper.enabled": "true",
    "spark.task.reaper.killTimeout": "60s",
    "spark.log.level": "WARN",
    # History for the web UI, which is disabled; the defaults take hundreds of megabytes within hours.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.connect.ui.retainedSessions": "20",
    "spark.connect.ui.retainedStatements": "20",
}

POOLS = '<allocations><pool name="default"><schedulingMode>FAIR</schedulingMode></pool></allocations>\n'
"""All jobs of a server share one pool, whose jobs would run in FIFO order even if pools share fairly."""


def pools_file(folder: ServerFolder) -> Path:
    """Path of :data:`POOLS` for the server."""
    return folder.work / "pools.xml"


def arguments_of(folder: ServerFolder, server: Server) -> list[str]:
    """Arguments of spark-submit, without secrets, because all users of this machine can read them.

    :raises ConfigurationError: when a jar is missing.
    """
    options, work = server.options, folder.work
    conf = CONF | {
        "spark.connect.grpc.binding.port": str(server.port),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.local.dir": str(work / "blocks"),
        "spark.scheduler.allocation.file": pools_file(folder).as_uri(),
    }
    # Clients' artifacts are stored in Java's temporary folder, which by default is accessible to all users.
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
    """Jars with absolute local paths: Spark runs in another folder and ignores missing files."""
    paths = []
    for jar in jars.split(","):
        path = jar.strip() if ":/" in jar else str(Path(jar.strip()).absolute())
        if path.startswith("/") and not Path(path).is_file():
            raise ConfigurationError(f"There is no jar {path}; the Spark server was not started.")
        paths.append(path)
    return ",".join(paths)


LAUNCH = """\
umask 077
read -r stat < "/proc/$$/stat" && echo "$stat" > process.writing && mv process.writing process || exit 1
watch=$1 port=$2 limit=$3
shift 3
sh -c "$watch" watch "$port" "$limit" &
cd work && exec "$@"
"""
"""Becomes the server. Arguments: the watch script, the port in hexadecimal, idle seconds or ``never``, then the command.

The process first records its identity atomically in the file ``process``, because the process that started it may die at any
moment.
"""

WATCH = """\
port=$1 limit=$2
read -r stat < "/proc/$$/stat" && echo "$stat" > watcher.writing && mv watcher.writing watcher

start() {
  set -- ${stat##*) }
  case $1 in Z | X) return 1 ;; esac
  shift 19
  echo "$1"
}

read -r stat < process || exit 1
pid=${stat%% *}
ours=$(start) || exit 1

runs() {
  { read -r stat < "/proc/$pid/stat"; } 2> /dev/null && [ "$(start)" = "$ours" ]
}

connected() {
  for table in /proc/net/tcp /proc/net/tcp6; do
    [ -r "$table" ] || continue
    while read -r _ local _ state _; do
      case $local:$state in *:"$port":01) return 0 ;; esac
    done < "$table"
  done
  return 1
}

end() {
  kill -TERM "$pid"
  left=20
  while runs && [ "$left" -gt 0 ]; do
    sleep 1
    left=$((left - 1))
  done
  if runs; then kill -KILL "$pid"; fi
  rm -rf ended.json process watcher work
  exit 0
}

step=5
[ "$limit" = never ] || [ "$limit" -ge "$step" ] || step=$limit
idle=0
while sleep "$step" && runs; do
  if grep -qsF "not killing JVM because we are running in local mode" server.log; then
    echo "dynamic-tables: ended, because a task that was cancelled did not end"
    end
  fi
  if [ "$limit" = never ] || [ -s used ] || connected; then
    : > used
    idle=0
    continue
  fi
  idle=$((idle + step))
  [ "$idle" -ge "$limit" ] || continue
  # A client that arrived at the last moment wrote into `used` before it looked for the file.
  mv server.json ended.json || exit 1
  if [ -s used ]; then mv ended.json server.json; else end; fi
done
"""
"""Ends a server without connections for the idle time. Arguments: its port in hexadecimal, seconds or ``never``.

A client that waits for its job is connected; a killed one is not, because the kernel closes its sockets. The script also ends a
server whose cores are held by cancelled tasks. Spark would then end itself, but in local mode it only logs that line. Other
clients fail and find a new server instead of waiting forever.
"""
