"""Airflow connections as values that do not require Airflow."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from airflow_dynamic_tables.exceptions import ConfigurationError


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection; ``schema`` is the database, ``extra`` holds everything without a field of its own."""

    host: str | None = None
    port: int | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    schema: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict, repr=False)

    def url(self, scheme: str) -> str:
        """The connection as a URL, e.g. ``postgresql://me:secret@host:5432/db``."""
        user = ":".join(quote(part, safe="") for part in (self.login, self.password) if part)
        host = f"[{self.host}]" if self.host and ":" in self.host else self.host or ""
        port = f":{self.port}" if self.port else ""
        return f"{scheme}://{user}{'@' if user else ''}{host}{port}/{quote(self.schema or '', safe='')}"


Connections = Callable[[str], Connection]
"""Function that finds a connection by its id; raises ConfigurationError when it does not exist."""


def environment_connections(environ: Mapping[str, str]) -> Connections:
    """Connections from Airflow's variables ``AIRFLOW_CONN_<ID>``: a URI or JSON. The only ones available without Airflow."""

    def find(conn_id: str) -> Connection:
        name = f"AIRFLOW_CONN_{conn_id.upper()}"
        text = environ.get(name)
        if text is None:
            raise ConfigurationError(
                f"Airflow connection {conn_id!r} is not set; set {name}, or run the command as "
                "'airflow dynamic-tables ...', which also finds the connections that Airflow keeps."
            )
        try:
            return _from_json(text) if text.lstrip().startswith("{") else _from_uri(text)
        except (ValueError, TypeError):
            # Without the cause, whose message may contain the password.
            raise ConfigurationError(f"{name} is neither a URI nor JSON as Airflow writes connections.") from None

    return find


def _from_json(text: str) -> Connection:
    values = json.loads(text)
    extra = values.get("extra") or {}
    extra = json.loads(extra) if isinstance(extra, str) else extra
    port = values.get("port")
    fields = {name: values.get(name) for name in ("host", "login", "password", "schema")}
    return Connection(**fields, port=int(port) if port else None, extra={key: str(value) for key, value in extra.items()})


def _from_uri(text: str) -> Connection:
    parts = urlsplit(text)
    extra = dict(parse_qsl(parts.query, keep_blank_values=True))
    if "__extra__" in extra:
        extra = {key: str(value) for key, value in json.loads(extra["__extra__"]).items()}
    return Connection(
        host=unquote(parts.hostname) if parts.hostname else None,
        port=parts.port,
        login=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        schema=unquote(parts.path.removeprefix("/")) or None,
        extra=extra,
    )
