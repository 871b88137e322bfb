"""A Thrift client of a Hive metastore: pooled connections, calls, and compare-and-swap of tables."""

from __future__ import annotations

import socket
import threading
from typing import Any
from urllib.parse import urlsplit

from airflow_dynamic_tables.clients.retrying import after_refusals
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConfigurationError, ConflictError, MissingExtraError

try:
    from hive_metastore import ThriftHiveMetastore
    from hive_metastore.ttypes import EnvironmentContext, MetaException, Table
    from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
    from thrift.Thrift import TApplicationException
    from thrift.transport.TSocket import TSocket
    from thrift.transport.TTransport import TBufferedTransport, TTransportException
except ImportError as missing:
    raise MissingExtraError("hive") from missing

_NO_STATISTICS = {"DO_NOT_UPDATE_STATS": "true"}
"""Without it the metastore would list every folder that an alteration names."""

_COMPARISON_FAILED = "has been modified"
"""The metastore's message when a parameter has another value than expected; there is no dedicated exception."""

_DEFAULT_PORT = 9083
"""Port of a metastore whose address has none."""

_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 60_000}
"""Seconds before the first probe and between probes, number of probes, and milliseconds without acknowledgement."""

TYPES_STAY = "hive.metastore.disallow.incompatible.col.type.changes"
"""Setting of a metastore, true by default: it refuses types to which Hive cannot convert the old type of the same position."""

_TRIES = 6
"""Attempts when the metastore's database fails: of two concurrent accesses to the same rows, it may abort either."""

_FIRST_PAUSE = 0.1
"""Seconds before the second attempt; each later pause is twice as long."""


class Metastore:
    """Connections to one metastore, shared by all threads; each call uses one exclusively.

    :param uri: as ``hive.metastore.uris``: ``thrift://host:port``, several separated by commas.
    :param timeout: seconds to wait for a response.
    """

    def __init__(self, uri: str, timeout: float = 600) -> None:
        self.uri = uri
        self._addresses = [_address(part.strip()) for part in uri.split(",")]
        self._timeout = timeout
        self._idle: list[tuple[ThriftHiveMetastore.Client, TBufferedTransport]] = []
        self._lock = threading.Lock()

    def call(self, method: str, *arguments: Any) -> Any:
        """One Thrift call, e.g. ``call("get_table", "sales", "revenue")``.

        The metastore's declared exceptions (``hive_metastore.ttypes``: NoSuchObjectException, …) are raised unchanged.

        :raises CatalogUnavailableError: when the connection failed; whether a change was applied is then unknown.
        """
        client, transport = self._take()
        try:
            answer = getattr(client, method)(*arguments)
        except (TTransportException, TApplicationException, OSError) as error:
            transport.close()
            raise self._unavailable(error) from error
        except BaseException as error:
            # After a declared exception, the connection is at a message boundary; after any other error it may not be.
            if type(error).__module__ == "hive_metastore.ttypes":
                self._give_back(client, transport)
            else:
                transport.close()
            raise
        self._give_back(client, transport)
        return answer

    def ask(self, method: str, *arguments: Any) -> Any:
        """An idempotent call, retried when the metastore fails, e.g. because the object was being dropped.

        :raises CatalogUnavailableError: when there is no connection, or all attempts failed.
        """
        try:
            return after_refusals(MetaException, _TRIES, _FIRST_PAUSE)(self.call, method, *arguments)
        except MetaException as error:
            message = f"The Hive metastore at {self.uri} does not answer {method}: {error.message}; try again."
            raise CatalogUnavailableError(message) from error

    def alter_table(self, table: Table, key: str, expected: str | None) -> None:
        """Replace a table's definition if its parameter ``key`` still has the ``expected`` value.

        The new definition must set that parameter to another value, or concurrent writers would not detect the change.

        :param expected: ``None`` for a table that never had the parameter; nothing is then compared.
        :raises ConflictError: when the table was changed concurrently; nothing was written.
        :raises CatalogUnavailableError: when the response was lost.
        """
        comparison = {} if expected is None else {"expected_parameter_key": key, "expected_parameter_value": expected}
        context = {**_NO_STATISTICS, **comparison}
        try:
            self.call("alter_table_with_environment_context", table.dbName, table.tableName, table, EnvironmentContext(context))
        except MetaException as error:
            if _COMPARISON_FAILED in str(error.message):
                raise ConflictError(f"Table {table.dbName}.{table.tableName} was changed by others meanwhile.") from error
            raise

    def lets_types_change(self) -> bool:
        """Return whether the metastore permits any change of column types.

        :raises CatalogUnavailableError: when there is no connection.
        """
        return str(self.ask("get_config_value", TYPES_STAY, "true")).lower() == "false"

    def alter_partitions(self, database: str, table: str, partitions: list[Any]) -> None:
        """Alter existing partitions atomically.

        :raises CatalogUnavailableError: when the response was lost.
        """
        self.call("alter_partitions_with_environment_context", database, table, partitions, EnvironmentContext(_NO_STATISTICS))

    def close(self) -> None:
        """Close idle connections; idempotent."""
        with self._lock:
            idle = self._idle
            self._idle = []
        for _, transport in idle:
            transport.close()

    def _take(self) -> tuple[ThriftHiveMetastore.Client, TBufferedTransport]:
        while True:
            with self._lock:
                if not self._idle:
                    break
                client, transport = self._idle.pop()
            if transport.isOpen():  # checks whether the metastore closed it
                return client, transport
        return self._connect()

    def _give_back(self, client: ThriftHiveMetastore.Client, transport: TBufferedTransport) -> None:
        with self._lock:
            self._idle.append((client, transport))

    def _connect(self) -> tuple[ThriftHiveMetastore.Client, TBufferedTransport]:
        errors: list[TTransportException] = []
        for host, port in self._addresses:
            wire = TSocket(host, port)
            wire.setTimeout(self._timeout * 1000)
            transport = TBufferedTransport(wire)
            try:
                transport.open()
            except TTransportException as error:
                errors.append(error)
                continue
            _keep_alive(wire.handle)
            return ThriftHiveMetastore.Client(TBinaryProtocolAccelerated(transport)), transport
        raise self._unavailable(errors[-1]) from errors[-1]

    def _unavailable(self, error: Exception) -> CatalogUnavailableError:
        words = getattr(error, "message", None) or str(error) or type(error).__name__
        return CatalogUnavailableError(f"Cannot reach the Hive metastore at {self.uri}: {words}")


def _keep_alive(handle: socket.socket) -> None:
    """Enable TCP keep-alive, so that a dead peer is detected while waiting for a response, which may take the full timeout."""
    handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        if hasattr(socket, option):  # all are available on Linux
            handle.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _address(uri: str) -> tuple[str, int]:
    parts = urlsplit(uri)
    try:
        port = parts.port or _DEFAULT_PORT
    except ValueError:  # the port is not a number
        port = None
    if parts.scheme != "thrift" or not parts.hostname or port is None:
        raise ConfigurationError(f"{uri!r} is no address of a Hive metastore; write thrift://host:port.")
    return parts.hostname, port
