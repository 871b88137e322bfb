"""Flink with Iceberg's own library: a cluster in one process, and SQL that runs on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError

from tests.support.java import running_java
from tests.support.postgres import DRIVER

_SETTINGS = {
    "execution.attached": "true",
    "parallelism.default": "1",
    "rest.address": "127.0.0.1",
    "rest.bind-address": "127.0.0.1",
    "rest.port": "0",
    # A busy machine answers late.
    "client.timeout": "10 min",
    "heartbeat.timeout": "10 min",
    "pekko.ask.timeout": "5 min",
    "web.timeout": "300000",
    "table.dml-sync": "true",
    "table.local-time-zone": "UTC",
    "taskmanager.memory.network.max": "64mb",
}

_JDBC = "org.apache.iceberg.jdbc.JdbcCatalog"


@dataclass(frozen=True)
class Flink:
    """A session; each test has catalogs of its own in it, here by name with their properties."""

    jvm: Any
    conf: Any
    session: Any
    catalogs: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def connect(self, properties: Mapping[str, str], name: str) -> str:
        """Open a catalog by the properties of Iceberg's own library, and return its name."""
        kind = properties["type"]
        found_by = {"catalog-impl": _JDBC} if kind == "jdbc" else {"catalog-type": kind}
        opened = {**properties, "type": "iceberg", "cache-enabled": "false", **found_by}
        options = ", ".join(f"'{key}' = '{value}'" for key, value in opened.items())
        self.sql(f"CREATE CATALOG {name} WITH ({options})")
        self.catalogs[name] = properties
        return name

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """Run a statement to its end; dates, times and nested values come as text."""
        result = self.session.executeSql(statement)
        names = list(result.getResolvedSchema().getColumnNames())
        rows, found = result.collect(), []
        while rows.hasNext():
            row = rows.next()
            found.append({name: _plain(row.getField(place)) for place, name in enumerate(names)})
        return found

    def upsert(
        self, catalog: str, table: tuple[str, str], keys: Sequence[str], changes: Sequence[tuple[str, Sequence[Any]]]
    ) -> None:
        """Let the sink for upserts write rows of strings and long integers into a table in a JDBC catalog of Iceberg.

        :param keys: columns by whose values the sink deletes the earlier row.
        :param changes: ``+`` or ``-`` with each row.
        """
        flink, iceberg = self.jvm.org.apache.flink, self.jvm.org.apache.iceberg
        properties = {key: value for key, value in self.catalogs[catalog].items() if key != "type"}
        hadoop = self.jvm.org.apache.hadoop.conf.Configuration()
        loaded = iceberg.flink.CatalogLoader.custom(catalog, properties, hadoop, _JDBC)
        loader = iceberg.flink.TableLoader.fromCatalog(loaded, iceberg.catalog.TableIdentifier.of(self._strings(table)))
        loader.open()
        rows = flink.table.runtime.typeutils.InternalTypeInfo.of(
            iceberg.flink.FlinkSchemaUtil.convert(loader.loadTable().schema())
        )
        environment = flink.streaming.api.environment.StreamExecutionEnvironment(self.conf)
        stream = environment.fromData(self.jvm.java.util.ArrayList([self._row(*change) for change in changes]), rows)
        sink = iceberg.flink.sink.FlinkSink.forRowData(stream).tableLoader(loader)
        sink.equalityFieldColumns(list(keys)).upsert(True).append()
        environment.execute()

    def _row(self, change: str, values: Sequence[Any]) -> Any:
        """Return a binary row; in another one, small numbers would arrive as integers."""
        data = self.jvm.org.apache.flink.table.data
        row = data.binary.BinaryRowData(len(values))
        writer = data.writer.BinaryRowWriter(row)
        for place, value in enumerate(values):
            if isinstance(value, str):
                writer.writeString(place, data.StringData.fromString(value))
            else:
                writer.writeLong(place, value)
        writer.complete()
        kinds = self.jvm.org.apache.flink.types.RowKind
        row.setRowKind(kinds.DELETE if change == "-" else kinds.INSERT)
        return row

    def _strings(self, texts: Sequence[str]) -> Any:
        array = self.jvm.java.lang.reflect.Array.newInstance(self.jvm.java.lang.Class.forName("java.lang.String"), len(texts))
        for place, text in enumerate(texts):
            array[place] = text
        return array


@contextmanager
def running_flink() -> Iterator[Flink]:
    """Start it for batch jobs; it is gone afterwards."""
    used = ("flink-2.1", "iceberg-flink-2.1", "sqlite-jdbc")
    with running_java(*used, more=(DRIVER,)) as java, running_cluster(java.jvm) as settings:
        api, conf = java.jvm.org.apache.flink.table.api, configuration(java.jvm, settings)
        batch = api.EnvironmentSettings.newInstance().inBatchMode().withConfiguration(conf).build()
        yield Flink(java.jvm, conf, api.TableEnvironment.create(batch))


@contextmanager
def running_cluster(jvm: Any) -> Iterator[dict[str, str]]:
    """Start a cluster with two slots in a process of Java; gives the settings of its clients."""
    flink = jvm.org.apache.flink.runtime.minicluster
    builder = flink.MiniClusterConfiguration.Builder().setConfiguration(configuration(jvm, _SETTINGS))
    cluster = flink.MiniCluster(builder.setNumTaskManagers(1).setNumSlotsPerTaskManager(2).build())
    cluster.start()
    try:
        yield {**_SETTINGS, "execution.target": "remote", "rest.port": str(cluster.getRestAddress().get().getPort())}
    finally:
        with suppress(Py4JError):  # a test may have killed it
            cluster.close()


def configuration(jvm: Any, settings: Mapping[str, str]) -> Any:
    conf = jvm.org.apache.flink.configuration.Configuration()
    for key, value in settings.items():
        conf.setString(key, value)
    return conf


def _plain(value: Any) -> Any:
    return value.toString() if isinstance(value, JavaObject) else value
