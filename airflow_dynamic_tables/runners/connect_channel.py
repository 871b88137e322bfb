"""The gRPC channel to a Spark Connect server: address, timeouts, and errors without the token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from pyspark.errors import PySparkException
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import DefaultPolicy

from airflow_dynamic_tables.exceptions import ConfigurationError, JobFailedError
from airflow_dynamic_tables.redaction import HIDDEN

_LONGEST_PAUSE_MS = 2_000
"""Longest pause in milliseconds between attempts to reach a server; Spark's own default grows to a minute."""

_ONE_MORE_TRY = 1.0
"""Timeout in seconds of the call that determines why there is no connection."""

_CERTIFICATES = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
"""gRPC's variable for a file of trusted certificates that replaces the public ones."""

_THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]")

_AT_ONCE = ("/Config", "/Interrupt", "/ReleaseSession", "/ReleaseExecute", "/FetchErrorDetails")
"""Calls that a healthy server answers immediately, regardless of its load."""


class ConnectChannel(DefaultChannelBuilder):
    """The channel of one session.

    :param url: ``sc://host:port/;token=...``, as for Spark's own client.
    :param patience: seconds without a response after which the server is considered dead.
    :param target: a Unix socket that leads to the server, in gRPC's format, instead of the address.
    :raises ConfigurationError: when the address is invalid.
    """

    def __init__(self, url: str, patience: float, target: str | None = None) -> None:
        try:
            super().__init__(url)
        except (PySparkException, ValueError):
            # Without the cause: it may quote the address, which contains the token.
            raise ConfigurationError("The address of the Spark Connect server is none; write sc://host:port.") from None
        self.patience = patience
        self._target = target
        self.add_interceptor(_Deadline(patience))
        if self.host in _THIS_MACHINE:
            # A proxy of the environment does not apply to local servers.
            self.setChannelOption("grpc.enable_http_proxy", 0)

    def toChannel(self) -> grpc.Channel:  # noqa: N802 - PySpark's name
        """The channel, once the server has answered.

        :raises JobFailedError: when the server does not answer in time.
        """
        channel = super().toChannel() if self._target is None else self._on_socket(self._target)
        try:
            grpc.channel_ready_future(channel).result(timeout=self.patience)
        except grpc.FutureTimeoutError:
            why = _last_failure(channel)
            channel.close()
            spoken = "with TLS" if self.use_ssl or (self.secure and self.host != "localhost") else "without TLS"
            raise JobFailedError(
                f"The Spark Connect server {self.endpoint} did not answer within {self.patience:g} seconds ({spoken}); check "
                "that it runs, the host, port and use_ssl of the connection, and with TLS that its certificate is known here "
                f"({_CERTIFICATES}). gRPC says: {why}"
            ) from None
        return channel

    def _on_socket(self, target: str) -> grpc.Channel:
        credentials = grpc.local_channel_credentials(grpc.LocalConnectionType.UDS)
        if self.token is not None:
            credentials = grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(self.token))
        return self._secure_channel(target, credentials)

    def retries(self) -> DefaultPolicy:
        """The retry policy of calls while the server does not answer: retries last as long as the patience."""
        tries = max(3, int(self.patience * 1_000 / _LONGEST_PAUSE_MS))
        return DefaultPolicy(max_retries=tries, max_backoff=_LONGEST_PAUSE_MS, max_server_retry_delay=_LONGEST_PAUSE_MS)

    def without_token(self, text: str) -> str:
        """A text without the token."""
        return text.replace(self.token, HIDDEN) if self.token else text


def _last_failure(channel: grpc.Channel) -> str:
    """Why a channel is not connected, in gRPC's words."""
    try:
        channel.unary_unary("/spark.connect.SparkConnectService/Config")(b"", timeout=_ONE_MORE_TRY)
    except grpc.RpcError as error:
        return str(error.details())
    return "it answers now"


class _Deadline(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]  # grpc ships no types
    """Sets a deadline for calls that are answered immediately."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def intercept_unary_unary(self, continuation: Callable[[Any, Any], Any], client_call_details: Any, request: Any) -> Any:
        """Forward a call, with a deadline if it has none."""
        details = client_call_details
        if details.timeout is None and details.method.endswith(_AT_ONCE):
            details = details._replace(timeout=self._seconds)
        return continuation(details, request)
