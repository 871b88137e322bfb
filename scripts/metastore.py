"""A Hive metastore from PySpark's own jars, on the loopback interface: ``metastore.py FOLDER PORT [JDBC-URL [KEY=VALUE…]]``.

Hive's own launcher binds every interface whatever its settings say, so its parts are put together here, over Py4J. Without a
JDBC URL the metastore keeps its state in an embedded Derby database in the folder. It serves until it is killed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

JARS = Path(pyspark.__file__).parent / "jars"
JDBC_DRIVERS = "/usr/share/java/postgresql.jar"  # Debian's libpostgresql-jdbc-java
CLASSPATH = ":".join((f"{JARS}/*", JDBC_DRIVERS, os.environ.get("HADOOP_CLASSPATH", "")))
JAVA_OPTIONS = [
    "-Xmx512m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.lang", "java.net", "java.util")),
]


def main() -> None:
    """Create the schema if needed, and serve."""
    folder, port = Path(sys.argv[1]).absolute(), int(sys.argv[2])
    url = sys.argv[3] if len(sys.argv) > 3 else f"jdbc:derby:;databaseName={folder}/metastore;create=true"
    folder.mkdir(parents=True, exist_ok=True)
    if url.startswith("jdbc:postgresql:"):
        create_schema(url)
    asked = dict(setting.split("=", 1) for setting in sys.argv[4:])
    serve({**settings(folder, url), **asked}, folder, port)


def settings(folder: Path, url: str) -> dict[str, str]:
    """Settings of the metastore; two of them only say that two jars are not there."""
    return {
        **connection(url),
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": f"file://{folder}/warehouse",
        "hive.metastore.event.db.notification.api.auth": "false",
        "hive.async.log.enabled": "false",  # no disruptor.jar
        "datanucleus.connectionPoolingType": "HikariCP",  # no BoneCP.jar
    }


def connection(url: str) -> dict[str, str]:
    """How DataNucleus connects."""
    is_derby = url.startswith("jdbc:derby:")
    return {
        "javax.jdo.option.ConnectionURL": url,
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver" if is_derby else "org.postgresql.Driver",
        "datanucleus.schema.autoCreateAll": "true" if is_derby else "false",
    }


def create_schema(url: str) -> None:
    """On PostgreSQL the schema must be there first: made on the way, DataNucleus waits for itself for ever."""
    with tempfile.TemporaryDirectory() as folder:
        (metastore,) = JARS.glob("hive-metastore-*.jar")
        model = zipfile.ZipFile(metastore).extract("package.jdo", folder)
        properties = {
            **connection(url),
            "javax.jdo.PersistenceManagerFactoryClass": "org.datanucleus.api.jdo.JDOPersistenceManagerFactory",
            "datanucleus.rdbms.useLegacyNativeValueStrategy": "true",
            "datanucleus.identifierFactory": "datanucleus1",
            "datanucleus.schema.autoCreateAll": "true",
        }
        file = Path(folder, "datanucleus.properties")
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        tool = ["org.datanucleus.store.schema.SchemaTool", "-create", "-api", "JDO", "-props", str(file), model]
        subprocess.run(["java", *JAVA_OPTIONS, "-cp", CLASSPATH, *tool], check=True)


def serve(conf: dict[str, str], folder: Path, port: int) -> None:
    """Hive's ``HiveMetaStore.startMetaStore``, with an address to bind."""
    (gateway_jar,) = JARS.glob("py4j*.jar")
    gateway_port = launch_gateway(
        jarpath=str(gateway_jar),
        classpath=CLASSPATH,
        javaopts=[*JAVA_OPTIONS, f"-Dderby.stream.error.file={folder}/derby.log"],
        die_on_exit=True,
        redirect_stdout=sys.stdout,
        redirect_stderr=sys.stderr,
    )
    java = JavaGateway(gateway_parameters=GatewayParameters(port=gateway_port)).jvm
    hive, thrift = java.org.apache.hadoop.hive, java.org.apache.thrift
    configuration = hive.conf.HiveConf()
    for key, value in conf.items():
        configuration.set(key, value)
    handler = hive.metastore.HiveMetaStore.HMSHandler("metastore", configuration, False)
    handler = hive.metastore.HiveMetaStore.newRetryingHMSHandler(handler, configuration)
    handler.get_all_databases()  # creates Derby's schema before anybody connects
    socket = thrift.transport.TServerSocket(java.java.net.InetSocketAddress("127.0.0.1", port))
    arguments = (
        thrift.server.TThreadPoolServer.Args(socket)
        .processor(hive.metastore.TUGIBasedProcessor(handler))
        .transportFactory(hive.thrift.TUGIContainingTransport.Factory())
        .protocolFactory(thrift.protocol.TBinaryProtocol.Factory())
        .minWorkerThreads(8)
        .maxWorkerThreads(200)
    )
    thrift.server.TThreadPoolServer(arguments).serve()


if __name__ == "__main__":
    main()
