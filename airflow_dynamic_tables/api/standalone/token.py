"""The token of a server of its own: whoever has it may do everything, so it comes from a private file or the environment."""

from __future__ import annotations

import hmac
import os
import re
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from starlette.requests import Request

from airflow_dynamic_tables.api.access import Access, Caller, GuardedTable, Right
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import ConfigurationError, UnauthenticatedError

VARIABLE = "DYNAMIC_TABLES_TOKEN"
"""The variable of the environment that may hold it."""

_LEAST = 20
"""Characters below which a token can be guessed."""

_MOST_BYTES = 4096
"""A file that is longer is none of a token."""

_HOW = "make one: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"


class TokenAccess(Access):
    """Whoever has the token may do everything."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    @property
    def security_schemes(self) -> Mapping[str, Mapping[str, Any]]:
        """A bearer token."""
        return {"token": {"type": "http", "scheme": "bearer", "description": "The token that the server was started with."}}

    async def caller(self, request: Request) -> Caller:
        """Whoever has the token.

        :raises UnauthenticatedError: when there is none in the request, or another one.
        """
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not given:
            raise UnauthenticatedError("Send the header Authorization: Bearer TOKEN, with the token of the server.")
        if not hmac.compare_digest(given.strip().encode(), self._token):
            raise UnauthenticatedError("That is not the token of this server.")
        return Caller("token")

    def allowed(self, caller: Caller, right: Right, tables: Collection[GuardedTable]) -> set[TableIdentifier]:  # noqa: ARG002
        """All of them."""
        return {table.identifier for table in tables}


def read_token(file: Path | None, environ: Mapping[str, str]) -> str:
    """The token: of the file, or else of the environment.

    :raises ConfigurationError: when there is none, when others may read it, or when it can be guessed.
    """
    where = str(file) if file is not None else VARIABLE
    token = (_private_text(file) if file is not None else environ.get(VARIABLE, "")).strip()
    if not token:
        raise ConfigurationError(f"No token in {where}; name its file with --token-file, or set {VARIABLE}; {_HOW}.")
    if len(token) < _LEAST or not re.fullmatch(r"[\x21-\x7e]+", token):
        raise ConfigurationError(f"The token in {where} is no word of {_LEAST} ASCII characters or more; {_HOW}.")
    return token


def _private_text(file: Path) -> str:
    """The text of a file that nobody else may read or write.

    :raises ConfigurationError: when others may.
    """
    try:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or status.st_uid not in (os.getuid(), 0):
                raise ConfigurationError(f"{file} may be read by others; make it yours alone: chmod 600 {file}.")
            return opened.read(_MOST_BYTES).decode("ascii", "replace")
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be read ({error.strerror}); name the file of the token.") from error
