"""Hive's own engine, version 2.3, in a process of its own: its driver compiles statements and runs local MapReduce jobs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from tests.support.downloads import jars
from tests.support.metastore import HiveMetastore

_JAVA_OPTIONS = [
    "-Xmx1g",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in (
            *("java.lang", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.text", "java.time"),
            *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "java.util.regex"),
        )
    ),
]


@dataclass(frozen=True)
class HiveEngine:
    """A session of Hive; every statement has a driver of its own, as in HiveServer2."""

    jvm: Any
    conf: Any

    def sql(self, statement: str) -> list[tuple[str | None, ...]]:
        """Run a statement; values come as text, ``NULL`` as none."""
        driver = self.jvm.org.apache.hadoop.hive.ql.Driver(self.conf)
        try:
            done = driver.run(statement)
            assert done.getResponseCode() == 0, done.getErrorMessage()
            if driver.getSchema() is None or not driver.getSchema().getFieldSchemas():
                return []
            lines = self.jvm.java.util.ArrayList()
            driver.getResults(lines)
            return [tuple(None if text == "NULL" else text for text in line.split("\t")) for line in lines]
        finally:
            driver.close()


@contextmanager
def running_hive(metastore: HiveMetastore) -> Iterator[HiveEngine]:
    """Start Hive on a metastore, from PySpark's jars and the classes of LLAP that its registry of functions names."""
    classpath = [*map(str, [*jars("hive-llap-client"), *jars("hive-llap-common")]), f"{Path(pyspark.__file__).parent}/jars/*"]
    port = launch_gateway(classpath=":".join(classpath), javaopts=_JAVA_OPTIONS, die_on_exit=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        with tempfile.TemporaryDirectory() as folder:
            conf = gateway.jvm.org.apache.hadoop.hive.conf.HiveConf()
            for key, value in _settings(metastore, folder).items():
                conf.set(key, value)
            session = gateway.jvm.org.apache.hadoop.hive.ql.session.SessionState(conf)
            gateway.jvm.org.apache.hadoop.hive.ql.session.SessionState.start(session)
            yield HiveEngine(gateway.jvm, conf)
    finally:
        gateway.shutdown()


def _settings(metastore: HiveMetastore, folder: str) -> dict[str, str]:
    return {
        "hive.metastore.uris": metastore.uri,
        "hive.metastore.warehouse.dir": metastore.warehouse,
        "fs.defaultFS": "file:///",
        "hive.exec.scratchdir": f"{folder}/scratch",
        "hive.exec.local.scratchdir": f"{folder}/local",
        "hadoop.tmp.dir": folder,
        "hive.execution.engine": "mr",
        "mapreduce.framework.name": "local",
        "hive.exec.submit.local.task.via.child": "false",
        "hive.exec.dynamic.partition.mode": "nonstrict",
        "hive.cbo.enable": "false",  # no calcite.jar
        "hive.session.history.enabled": "false",
    }
