"""SQLAlchemy databases: URLs, engines, and descriptions of errors."""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL, Engine, NullPool, create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, NotSupportedError

from airflow_dynamic_tables.exceptions import ConfigurationError, MissingExtraError
from airflow_dynamic_tables.redaction import without_secrets

_CONNECT_TIMEOUT = 10
"""Connect timeout of PostgreSQL in seconds."""

_PING_TIMEOUT = 3
"""Timeout in seconds of the check whether a server runs, after a connection failed."""

_POSTGRES = {
    "connect_timeout": str(_CONNECT_TIMEOUT),
    # A dead connection fails within about a minute; the kernel's default is more than two hours.
    "keepalives": "1",
    "keepalives_idle": "30",  # seconds of idle time before the first probe
    "keepalives_interval": "10",  # seconds between probes
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",  # milliseconds that sent data may remain unacknowledged
}
"""Default connection parameters of PostgreSQL; parameters of a URL take precedence."""


def parse_url(url: str, called: str) -> URL:
    """Parse a URL of a database; psycopg is always used for PostgreSQL, whatever driver the URL names.

    :raises ConfigurationError: when the URL is malformed.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # Without the cause, whose message may contain the password.
        raise ConfigurationError(f"{called} is malformed; write for example postgresql://user@host/name.") from None
    if parsed.get_backend_name() not in ("postgresql", "postgres"):
        return parsed
    # libpq and JDBC also accept credentials in the query, where they would be displayed and written into plans.
    credentials = parsed.normalized_query
    others = {name: value for name, value in parsed.query.items() if name not in ("user", "password")}
    return URL.create(
        "postgresql+psycopg",
        username=credentials.get("user", (parsed.username,))[-1],
        password=credentials.get("password", (parsed.password,))[-1],
        host=parsed.host,
        port=parsed.port,
        database=parsed.database,
        query=others,
    )


def shown(url: URL) -> str:
    """A URL without secrets, including those in its parameters."""
    return without_secrets(url.render_as_string(hide_password=True))


def make_engine(url: URL, connect_args: dict[str, Any]) -> Engine:
    """Create an engine; no connection is opened.

    :raises MissingExtraError: when the driver is not installed.
    """
    try:
        # In the URL, from which PyIceberg creates its own connections.
        if url.get_backend_name() == "postgresql":
            url = url.set(query={**_POSTGRES, **url.query})
        # No pool: Airflow forks its task processes, and two processes must never share a connection.
        return create_engine(url, poolclass=NullPool, connect_args=connect_args)
    except ModuleNotFoundError as error:
        raise MissingExtraError("postgres") from error


def advice(url: URL, error: DBAPIError) -> str:
    """Advice for a PostgreSQL server that refused or closed a connection, as the end of a message; otherwise empty.

    A failed connection has no SQLSTATE, and a server's messages are localized, so a ping checks whether it runs.

    :param url: of the server, as returned by :func:`parse_url`.
    """
    if getattr(error.orig, "sqlstate", None) is not None and not error.connection_invalidated:
        return ""  # the server has answered
    if isinstance(error, DataError | NotSupportedError):
        return ""  # the driver does not support a value
    if error.connection_invalidated or not _runs(url):
        return "; check that it runs and accepts connections"
    return "; the server runs, so check the user, the password and the name of the database"


def _runs(url: URL) -> bool:
    from psycopg import conninfo, pq  # an extra; installed, because the error is its own

    _, arguments = url.get_dialect()().create_connect_args(url)
    asked = conninfo.make_conninfo("", **{**arguments, "connect_timeout": _PING_TIMEOUT})
    return pq.PGconn.ping(asked.encode()) == pq.Ping.OK


def reason(error: DBAPIError) -> str:
    """The driver's message in one line."""
    return " ".join(str(error.orig).split()) or type(error.orig).__name__
