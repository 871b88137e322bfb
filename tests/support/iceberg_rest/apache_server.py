"""Iceberg's own REST catalog on the loopback interface: ``apache_server.py FOLDER PORT JAR…``.

The servlet is the one that Iceberg's tests use, over Iceberg's JDBC catalog in SQLite. It serves until it is killed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

_SPARK = Path(pyspark.__file__).parent / "jars"  # Hadoop's and what logs


def main() -> None:
    """Start the gateway and the server, and wait for its end."""
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    (gateway_jar,) = _SPARK.glob("py4j*.jar")
    gateway_port = launch_gateway(
        jarpath=str(gateway_jar),
        classpath=":".join([*sys.argv[3:], f"{_SPARK}/*"]),
        javaopts=["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"],
        die_on_exit=True,
        redirect_stdout=sys.stdout,
        redirect_stderr=sys.stderr,
    )
    java = JavaGateway(gateway_parameters=GatewayParameters(port=gateway_port, auto_convert=True)).jvm
    properties = {
        "uri": f"jdbc:sqlite:{folder}/catalog.db",
        "warehouse": f"file://{folder}/warehouse",
        "jdbc.schema-version": "V1",
        "clients": "1",
    }
    iceberg, jetty = java.org.apache.iceberg, java.org.eclipse.jetty
    catalog = iceberg.jdbc.JdbcCatalog()
    catalog.setConf(java.org.apache.hadoop.conf.Configuration())
    catalog.initialize("served", properties)
    servlet = iceberg.rest.RESTCatalogServlet(iceberg.rest.RESTCatalogAdapter(catalog))
    handler = jetty.servlet.ServletContextHandler()
    handler.addServlet(jetty.servlet.ServletHolder(servlet), "/*")
    server = jetty.server.Server(java.java.net.InetSocketAddress("127.0.0.1", port))
    server.setHandler(handler)
    server.start()
    server.join()


if __name__ == "__main__":
    main()
