"""HDFS and YARN on loopback: a name node, a data node, a resource manager and two node managers as processes of this machine."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import psutil
import pyspark

from tests.support.downloads import jars
from tests.support.ports import free_port
from tests.support.processes import command_line, descendants, kill_tree, wait_until

_YARN = "yarn.server"
_PREEMPTION = "yarn.resourcemanager.monitor.capacity.preemption"
_AT_ONCE = {
    "monitoring_interval": 1000,
    "max_wait_before_kill": 1000,
    "total_preemption_per_round": 1.0,
    "natural_termination_factor": 1.0,
}
"""A queue gets what is its own within seconds, from those that use more than their own."""

_BY_NAME = "dfs.namenode.datanode.registration.ip-hostname-check"


@dataclass
class YarnCluster:
    """The folder with configuration, data and logs; the ports of HDFS, and of the REST APIs of both managers."""

    folder: Path
    hdfs_port: int = field(default_factory=free_port)
    rest_port: int = field(default_factory=free_port)
    names_port: int = field(default_factory=free_port)
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _node: subprocess.Popen[bytes] = field(init=False, repr=False)

    @property
    def hdfs(self) -> str:
        """The root of HDFS."""
        return f"hdfs://127.0.0.1:{self.hdfs_port}"

    @property
    def environment(self) -> dict[str, str]:
        """What clients of the cluster need; all are its one user."""
        return {"HADOOP_CONF_DIR": str(self.folder), "HADOOP_USER_NAME": "tester"}

    def start_hdfs(self) -> None:
        """Write the configuration, and start the daemons of HDFS."""
        self._configure()
        self._run("hdfs.server.namenode.NameNode", "-format", "-nonInteractive").wait()
        for daemon in ("namenode.NameNode", "datanode.DataNode"):
            self._processes.append(self._run(f"hdfs.server.{daemon}"))

    def start_yarn(self) -> None:
        """Start the daemons of YARN, after those of HDFS."""
        self._processes.append(self._run(f"{_YARN}.resourcemanager.ResourceManager"))
        for node in ("first", "second"):
            self._start_node(node)

    def wait(self, nodes: int) -> None:
        """Wait until HDFS takes files, and YARN has as many nodes."""
        try:
            wait_until(
                lambda: self._has_room() and (not nodes or len(self._nodes()) == nodes), f"HDFS, and YARN with {nodes} nodes"
            )
        except AssertionError as error:
            error.add_note((self.folder / "log").read_text(errors="replace")[-4000:])
            raise

    def lose_node(self) -> None:
        """Kill a node manager with all its containers."""
        kill_tree(self._node)

    def restart_node(self) -> None:
        """Start the node that was lost, as another one."""
        self._processes.remove(self._node)
        self._start_node("third")
        self.wait(2)

    def _start_node(self, name: str) -> None:
        self._processes.append(self._run(f"{_YARN}.nodemanager.NodeManager", node=name))
        self._node = self._processes[-1]

    def application(self, application_id: str) -> dict[str, Any]:
        """Return the report on an application, with its ``state`` and ``finalStatus``."""
        return dict(self._get(f"apps/{application_id}")["app"])

    def running_applications(self) -> list[str]:
        """Ids of the applications that have not ended."""
        apps = self._get("apps?states=NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING")["apps"] or {"app": []}
        return [str(app["id"]) for app in apps["app"]]

    def containers(self, command: str) -> list[psutil.Process]:
        """The processes of containers with this text in their command line."""
        started = [child for process in self._processes for child in descendants(process.pid)]
        return [child for child in started if _is_java(child) and command in command_line(child)]

    def stop(self) -> None:
        """End the daemons, and the containers that they started."""
        for process in self._processes:
            kill_tree(process)

    def _nodes(self) -> list[Any]:
        with suppress(httpx.TransportError):
            found = self._get("nodes")["nodes"] or {"node": []}
            return [node for node in found["node"] if node["state"] == "RUNNING"]
        return []

    def _get(self, path: str) -> dict[str, Any]:
        address = f"http://127.0.0.1:{self.rest_port}/ws/v1/cluster/{path}"
        return dict(httpx.get(address, headers={"accept": "application/json"}, timeout=60).json())

    def _run(self, daemon: str, *arguments: str, node: str = "node") -> subprocess.Popen[bytes]:
        sparks = Path(pyspark.__file__).with_name("jars") / "*"  # the same Hadoop, and what writes logs
        command = [
            *("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true"),
            *("--add-opens=java.base/java.lang=ALL-UNNAMED", f"-Dhadoop.home.dir={self.folder}", f"-Dnode={self.folder / node}"),
            *(
                "-cp",
                os.pathsep.join(map(str, (self.folder, sparks, *jars("hadoop")))),
                f"org.apache.hadoop.{daemon}",
                *arguments,
            ),
        ]
        with (self.folder / "log").open("ab") as log:
            environment = {**os.environ, **self.environment}
            return subprocess.Popen(command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _configure(self) -> None:
        local, any_port = "127.0.0.1", "127.0.0.1:0"
        manager = {
            name: f"{local}:{free_port()}"
            for name in ("address", "scheduler.address", "resource-tracker.address", "admin.address")
        }
        self._write("core-site.xml", {"fs.defaultFS": self.hdfs, "hadoop.tmp.dir": f"{self.folder}/tmp"})
        data = {"dfs.namenode.name.dir": f"file://{self.folder}/names", "dfs.datanode.data.dir": f"file://{self.folder}/blocks"}
        names = f"{local}:{self.names_port}"
        addresses = ("datanode.address", "datanode.http.address", "datanode.ipc.address")
        self._write(
            "hdfs-site.xml",
            {
                **data,
                "dfs.replication": 1,
                _BY_NAME: "false",
                "dfs.permissions.enabled": "false",  # a metastore that runs already has another user
                "dfs.namenode.http-address": names,
                **{f"dfs.{name}": any_port for name in addresses},
            },
        )
        scheduler = "yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler"
        settings = {
            "yarn.resourcemanager.hostname": local,
            "yarn.resourcemanager.scheduler.class": f"org.apache.hadoop.{scheduler}",
            "yarn.resourcemanager.webapp.address": f"{local}:{self.rest_port}",
            **{f"yarn.resourcemanager.{name}": address for name, address in manager.items()},
            "yarn.nodemanager.hostname": local,
            **{f"yarn.nodemanager.{name}": any_port for name in ("address", "localizer.address", "webapp.address")},
            "yarn.nodemanager.local-dirs": "${node}/local",
            "yarn.nodemanager.log-dirs": "${node}/logs",
            "yarn.nodemanager.delete.debug-delay-sec": 3600,
            "yarn.nodemanager.resource.memory-mb": 2560,  # three executors leave a node room for the master of another queue
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 99.9,
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.scheduler.minimum-allocation-mb": 128,
            "yarn.nm.liveness-monitor.expiry-interval-ms": 60_000,
            "yarn.am.liveness-monitor.expiry-interval-ms": 60_000,
            "yarn.resourcemanager.scheduler.monitor.enable": "true",
            **{f"{_PREEMPTION}.{name}": value for name, value in _AT_ONCE.items()},
        }
        self._write("yarn-site.xml", settings)
        queues = {
            "queues": "default,urgent",
            "default.capacity": 40,
            "default.user-limit-factor": 3,  # of its capacity: what is idle is for the one user, too
            "urgent.capacity": 60,
        }
        share = {"yarn.scheduler.capacity.maximum-am-resource-percent": 0.9}
        self._write("capacity-scheduler.xml", share | {f"yarn.scheduler.capacity.root.{name}": queues[name] for name in queues})

    def _write(self, name: str, settings: Mapping[str, object]) -> None:
        root = ElementTree.Element("configuration")
        for key, value in settings.items():
            found = ElementTree.SubElement(root, "property")
            ElementTree.SubElement(found, "name").text = key
            ElementTree.SubElement(found, "value").text = str(value)
        ElementTree.ElementTree(root).write(self.folder / name)

    def _has_room(self) -> bool:
        page = f"http://127.0.0.1:{self.names_port}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        with suppress(httpx.TransportError):
            return any(state["NumLiveDataNodes"] == 1 for state in httpx.get(page, timeout=60).json()["beans"])
        return False


@contextmanager
def running_hdfs(*, with_yarn: bool = False) -> Iterator[YarnCluster]:
    """Start HDFS, and YARN with two nodes if wanted; they are gone afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        cluster = YarnCluster(Path(folder))
        try:
            cluster.start_hdfs()
            if with_yarn:
                cluster.start_yarn()
            cluster.wait(2 if with_yarn else 0)
            yield cluster
        finally:
            cluster.stop()


def _is_java(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return bool(process.name() == "java")
    return False
