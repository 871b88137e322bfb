"""A HiveServer2 of version 2.3, in a process of its own: it compiles statements and runs local MapReduce jobs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError

from tests.support.java import running_java
from tests.support.metastore import HiveMetastore
from tests.support.ports import free_port

_JARS = ("hive-exec", "hive-service", "hive-llap-client", "hive-llap-common")
"""What PySpark's jars lack: the engine with all that it was built with, the server, and classes that its functions name."""


@dataclass(frozen=True)
class HiveEngine:
    """A connection to the server by Hive's JDBC driver."""

    connection: Any

    def sql(self, statement: str) -> list[tuple[str | None, ...]]:
        """Run a statement; values come as text."""
        opened = self.connection.createStatement()
        try:
            if not opened.execute(statement):
                return []
            found = opened.getResultSet()
            columns = range(1, found.getMetaData().getColumnCount() + 1)
            rows: list[tuple[str | None, ...]] = []
            while found.next():
                rows.append(tuple(map(found.getString, columns)))
            return rows
        except Py4JJavaError as error:
            raise AssertionError(error.java_exception.getMessage()) from error
        finally:
            opened.close()


@contextmanager
def running_hive(metastore: HiveMetastore) -> Iterator[HiveEngine]:
    """Start the server on a metastore, with PySpark's jars after its own."""
    with running_java(*_JARS) as java, tempfile.TemporaryDirectory() as folder:
        conf, port = java.jvm.org.apache.hadoop.hive.conf.HiveConf(), free_port()
        for key, value in _settings(metastore, folder, port).items():
            conf.set(key, value)
        server = java.jvm.org.apache.hive.service.server.HiveServer2()
        server.init(conf)
        server.start()
        url = f"jdbc:hive2://127.0.0.1:{port}/default"
        connection = java.jvm.org.apache.hive.jdbc.HiveDriver().connect(url, java.jvm.java.util.Properties())
        yield HiveEngine(connection)
        connection.close()


def _settings(metastore: HiveMetastore, folder: str, port: int) -> dict[str, str]:
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
        "hive.cbo.enable": "false",  # which needs more of Calcite
        "hive.server2.thrift.bind.host": "127.0.0.1",
        "hive.server2.thrift.port": str(port),
        "hive.server2.webui.port": "0",
        "hive.server2.enable.doAs": "false",
        "hive.server2.logging.operation.enabled": "false",
    }
