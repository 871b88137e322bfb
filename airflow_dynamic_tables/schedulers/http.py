"""JSON over HTTP: the address of a server from an Airflow connection, and requests with a time limit.

Only this module and implementers of a transport depend on httpx.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import httpx
from httpx import BaseTransport as BaseTransport

from airflow_dynamic_tables.clients.connections import Connection
from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.exceptions import ConfigurationError, SchedulerError, SchedulerUnavailableError
from airflow_dynamic_tables.redaction import HIDDEN

_TIMEOUT = 10.0
"""Default timeout of a request in seconds; short, because a command waits for it."""

_LONGEST_TIMEOUT = 300.0
"""Maximum timeout in seconds; a larger value was probably meant as milliseconds."""

_LARGEST_ANSWER = 8 * 2**20
"""Maximum size of an answer in bytes; expected answers have some kilobytes."""


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a server: its URL without a trailing slash and credentials, and the timeout of a request in seconds."""

    called: str
    conn_id: str
    url: str
    timeout: float = _TIMEOUT


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Answer of a server: its status, and its JSON body; ``None`` when the body is not JSON."""

    status: int
    body: Any = field(default=None, repr=False)

    @property
    def said(self) -> str:
        """Return the server's error message on one line; empty when there is none."""
        if not isinstance(self.body, Mapping):
            return ""
        said = self.body.get("detail", self.body.get("msg"))
        # Use only the messages of a list of errors: it also contains the request, and so possibly a password.
        items = said if isinstance(said, list) else [said]
        messages = [item.get("msg") if isinstance(item, Mapping) else item for item in items]
        return " ".join("; ".join(message for message in messages if isinstance(message, str)).split())


def address_of(called: str, conn_id: str, connection: Connection) -> Address:
    """Return the server address of a connection: ``host``, which may be a URL, ``port``, and ``schema``, http or https.

    Airflow's own connections of type ``http`` have the same form. Extra ``timeout`` is the timeout of a request in seconds.

    :param called: name of the server in messages.
    :raises ConfigurationError: when the host is missing, or sending passwords unencrypted is not explicitly allowed.
    """

    def wrong(what: str) -> ConfigurationError:
        return ConfigurationError(f"Connection {conn_id!r}, by which {called} is reached, {what}.")

    if not connection.host:
        raise wrong("has no host; write for example https://example.org:8080")
    bare = f"[{connection.host}]" if connection.host.count(":") > 1 else connection.host
    given = connection.host if "://" in connection.host else f"//{bare}"
    try:
        parts = urlsplit(given)
        port = connection.port or parts.port
    except ValueError:
        raise wrong("has a host that is none; write for example https://example.org:8080") from None
    scheme = parts.scheme or connection.schema or ("http" if _is_here(parts.hostname or "") else "")
    if scheme not in ("http", "https") or not parts.hostname:
        raise wrong("does not say whether to encrypt; set its 'schema' to https, or to http where the network is trusted")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    url = f"{scheme}://{host}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
    return Address(called, conn_id, url, _timeout(connection, wrong("needs a 'timeout' of 1 to 300 seconds")))


def _timeout(connection: Connection, wrong: ConfigurationError) -> float:
    try:
        timeout = float(connection.extra.get("timeout") or _TIMEOUT)
    except ValueError:
        raise wrong from None
    if not 1 <= timeout <= _LONGEST_TIMEOUT:
        raise wrong
    return timeout


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class HttpServer:
    """A server; its connections are kept open until :meth:`close`. Redirects are not followed, to protect credentials.

    :param secrets: are masked in all text from the server.
    :param transport: transport of requests; by default the network.
    """

    def __init__(self, address: Address, secrets: Iterable[str | None] = (), transport: BaseTransport | None = None) -> None:
        self.address = address
        self._secrets = [secret for secret in secrets if secret]
        # No compression, so that the size limit applies to the decoded body.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        self._client = httpx.Client(timeout=address.timeout, headers=headers, transport=transport)

    def let_in(self, header: str, token: str) -> None:
        """Send a token with all further requests, and mask it in all text from the server.

        :raises ConfigurationError: when the token is not a valid header value.
        """
        if not (token.isascii() and token.isprintable()):
            raise ConfigurationError(f"The token of connection {self.address.conn_id!r} has signs that no token has; check it.")
        self._client.headers[header] = token
        self._secrets.append(token.rpartition(" ")[2])

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        form: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        """Send one request and return its answer, whatever its status.

        :param path: below the address, quoted.
        :param body: sent as JSON.
        :param form: sent as form fields.
        :raises SchedulerUnavailableError: when there was no complete answer in time, or the server reports an internal error.
        """
        deadline = time.monotonic() + self.address.timeout
        content: dict[str, Any] = {"params": query or None, "json": body, "data": form}
        with self._reached(), self._client.stream(method, self.address.url + path, **content) as response:
            content_read = bytearray()
            for chunk in response.iter_raw():
                content_read += chunk
                if time.monotonic() > deadline or len(content_read) > _LARGEST_ANSWER:
                    raise self._unavailable("sends an answer without end")
        answer = HttpAnswer(response.status_code, _parsed(bytes(content_read)))
        if answer.status >= 500:
            raise self._unavailable(f"answers with status {answer.status}{self._quoted(answer)}")
        return answer

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def expect(self, answer: HttpAnswer, what: str) -> Any:
        """Return the body of an answer, which must be successful.

        :param what: the request, as a verb with its object: ``pause the DAG x``.
        :raises ConfigurationError: when access or permission is denied.
        :raises SchedulerError: when the server rejects the request.
        """
        called, conn_id = self.address.called, self.address.conn_id
        if answer.status == 401:
            raise ConfigurationError(
                f"{called} does not accept the credentials of connection {conn_id!r}{self._quoted(answer)}; check its login and "
                "password, or the 'token' in its extra."
            )
        if answer.status == 403:
            raise ConfigurationError(
                f"{called} does not let connection {conn_id!r} {what}{self._quoted(answer)}; give its user the right to do so."
            )
        if not 200 <= answer.status < 300:
            raise SchedulerError(f"{called} did not {what}: status {answer.status}{self._quoted(answer)}.")
        return answer.body

    def misunderstood(self, what: str) -> SchedulerError:
        """Return the error for a successful answer with unexpected content."""
        return SchedulerError(
            f"What answers at {self.address.url} did not say {what}; check that connection {self.address.conn_id!r} leads to "
            f"{self.address.called}."
        )

    def _quoted(self, answer: HttpAnswer) -> str:
        """Return the server's message as the end of a clause, with secrets masked."""
        said = answer.said
        for secret in self._secrets:
            said = said.replace(secret, HIDDEN)
        return f": {shown(said)}" if said else ""

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except httpx.TimeoutException:
            raise self._unavailable(f"does not answer within {self.address.timeout:g} seconds") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._unavailable(f"cannot be reached: {shown(str(error)) or type(error).__name__}") from error

    def _unavailable(self, why: str) -> SchedulerUnavailableError:
        return SchedulerUnavailableError(
            f"{self.address.called} at {self.address.url} {why}; check that it runs, and the address in connection "
            f"{self.address.conn_id!r}."
        )


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
