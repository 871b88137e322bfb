"""Where the Spark connection of a table leads to."""

from __future__ import annotations

from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook, Connection

from airflow_dynamic_tables.exceptions import ConfigurationError

_LOCAL = "local"
"""The host of a connection to the Spark server of this machine, as ``local[*]`` is that of one to a Spark without server."""


def spark_connection(conn_id: str) -> Connection:
    """The connection.

    :raises ConfigurationError: when there is none; Airflow's own operator would go on with YARN.
    """
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise ConfigurationError(
            f"Spark connection {conn_id!r} does not exist; create it, for example with: "
            f"airflow connections add {conn_id} --conn-type spark --conn-host 'local[*]'"
        ) from error


def leads_to_server(conn_id: str) -> bool:
    """Whether a connection is one to a Spark Connect server; one that does not exist is none."""
    try:
        return bool(BaseHook.get_connection(conn_id).conn_type == SparkConnectHook.conn_type)
    except AirflowNotFoundException:
        return False


def is_local_server(connection: Connection) -> bool:
    """Whether it leads to the Spark server of this machine, which is started when it does not run."""
    return bool(connection.conn_type == SparkConnectHook.conn_type and connection.host == _LOCAL)


def connect_url(connection: Connection) -> str | None:
    """The address of a Spark Connect server, token and all; ``None`` for a connection that spark-submit takes.

    :raises ConfigurationError: when the connection has no host, or something else that no address has.
    """
    if connection.conn_type != SparkConnectHook.conn_type:
        return None
    conn_id = connection.conn_id
    if not connection.host:
        raise ConfigurationError(f"Spark connection {conn_id!r} has no host; give it the one of the Spark Connect server.")
    try:
        return SparkConnectHook(conn_id).get_connection_url()
    except ValueError:  # without the cause, which may hold the token
        raise ConfigurationError(
            f"Spark connection {conn_id!r} is no address of a Spark Connect server; give it host and port alone, and the token "
            "as its password."
        ) from None
