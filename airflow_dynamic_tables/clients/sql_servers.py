"""What every database has in common that SQLAlchemy connects to: its URL, its engine, what went wrong with it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL, Engine, NullPool, create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, NotSupportedError

from airflow_dynamic_tables.exceptions import ConfigurationError, MissingExtraError
from airflow_dynamic_tables.redaction import without_secrets

_CONNECT_TIMEOUT = 10
"""Seconds after which a PostgreSQL server that does not answer is down."""

_PING_TIMEOUT = 3
"""Seconds that a server has to say that it runs, after it was asked in vain for a connection."""

_POSTGRES = {
    "connect_timeout": str(_CONNECT_TIMEOUT),
    # A wire that fell silent is given up within about a minute; the kernel alone would wait for more than two hours.
    "keepalives": "1",
    "keepalives_idle": "30",  # seconds without a word until it is asked whether the other side is there
    "keepalives_interval": "10",  # seconds between two of these questions
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",  # milliseconds that what was sent may stay unacknowledged
}
"""How PostgreSQL is connected to; what a URL says goes before it."""


def parse_url(url: str, called: str) -> URL:
    """Parse a URL of a database; PostgreSQL is always spoken to through psycopg, whatever driver the URL names.

    :param called: what a message calls the URL.
    :raises ConfigurationError: when the URL is malformed.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # Without its cause, whose text may hold the password.
        raise ConfigurationError(f"{called} is malformed; write for example postgresql://user@host/name.") from None
    if parsed.get_backend_name() not in ("postgresql", "postgres"):
        return parsed
    # libpq and JDBC take both from the query, too, where they would be shown and written into plans.
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
    """A URL as it may be shown: without secrets, also those that are parameters."""
    return without_secrets(url.render_as_string(hide_password=True))


def make_engine(url: URL, connect_args: dict[str, Any]) -> Engine:
    """An engine that has connected to nothing yet.

    :param connect_args: arguments of the driver.
    :raises MissingExtraError: when the driver is not installed.
    """
    try:
        # In the URL, from which PyIceberg makes connections of its own.
        if url.get_backend_name() == "postgresql":
            url = url.set(query={**_POSTGRES, **url.query})
        # No pool: Airflow forks its task processes, and a connection must never be shared by two.
        return create_engine(url, poolclass=NullPool, connect_args=connect_args)
    except ModuleNotFoundError as error:
        raise MissingExtraError("postgres") from error


def advice(url: URL, error: DBAPIError) -> str:
    """What to do about a PostgreSQL server that gave no connection or broke it off, as the end of a message; else nothing.

    A connection that fails has no SQLSTATE, and the words of a server are in its own language. So it is asked whether it runs.

    :param url: of the server, as :func:`parse_url` gives it.
    """
    if getattr(error.orig, "sqlstate", None) is not None and not error.connection_invalidated:
        return ""  # it has answered
    if isinstance(error, DataError | NotSupportedError):
        return ""  # it is the driver that does not know what to do with a value
    if error.connection_invalidated or not _runs(url):
        return "; check that it runs and accepts connections"
    return "; the server runs, so check the user, the password and the name of the database"


def _runs(url: URL) -> bool:
    """Whether a PostgreSQL server accepts connections, if not this one."""
    from psycopg import conninfo, pq  # an extra, which whoever got an error of it has

    _, arguments = url.get_dialect()().create_connect_args(url)
    asked = conninfo.make_conninfo("", **{**arguments, "connect_timeout": _PING_TIMEOUT})
    return pq.PGconn.ping(asked.encode()) == pq.Ping.OK


def reason(error: DBAPIError) -> str:
    """What the driver said, in one line."""
    return " ".join(str(error.orig).split()) or type(error.orig).__name__
