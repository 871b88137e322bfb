"""Spark connections and their targets."""

from __future__ import annotations

from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook, Connection

from airflow_dynamic_tables.exceptions import ConfigurationError

_LOCAL = "local"
"""Host of a connection to the Spark server of this machine, similar to ``local[*]`` for Spark without a server."""


def spark_connection(conn_id: str) -> Connection:
    """Return the connection.

    :raises ConfigurationError: if it does not exist; Airflow's own operator would use YARN instead.
    """
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise ConfigurationError(
            f"Spark connection {conn_id!r} does not exist; create it, for example with: "
            f"airflow connections add {conn_id} --conn-type spark --conn-host 'local[*]'"
        ) from error


def leads_to_server(conn_id: str) -> bool:
    """Return whether a connection is to a Spark Connect server; False if it does not exist."""
    try:
        return bool(BaseHook.get_connection(conn_id).conn_type == SparkConnectHook.conn_type)
    except AirflowNotFoundException:
        return False


def is_local_server(connection: Connection) -> bool:
    """Return whether the connection is to the Spark server of this machine, which is started on demand."""
    return bool(connection.conn_type == SparkConnectHook.conn_type and connection.host == _LOCAL)


def connect_url(connection: Connection) -> str | None:
    """Return the address of a Spark Connect server, including the token; ``None`` for a connection for spark-submit.

    :raises ConfigurationError: if the connection has no host, or settings that are invalid in an address.
    """
    if connection.conn_type != SparkConnectHook.conn_type:
        return None
    conn_id = connection.conn_id
    if not connection.host:
        raise ConfigurationError(f"Spark connection {conn_id!r} has no host; give it the one of the Spark Connect server.")
    try:
        return SparkConnectHook(conn_id).get_connection_url()
    except ValueError:  # without the cause, which may contain the token
        raise ConfigurationError(
            f"Spark connection {conn_id!r} is no address of a Spark Connect server; give it host and port alone, and the token "
            "as its password."
        ) from None
