"""Object stores: their schemes, and conversion of their clients' errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
"""The extra of this package with the client of a scheme."""

_CLIENTS = ("aiohttp", "botocore", "gcsfs")
"""Packages of object store clients, whose errors are not ``OSError``."""


@contextmanager
def as_os_errors() -> Iterator[None]:
    """Convert errors of object store clients to ``OSError``.

    :raises OSError: in particular when a connection is lost.
    """
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _CLIENTS or isinstance(error, OSError):
            raise
        raise OSError(str(error).rstrip(".")) from error


def is_object_store(uri: str) -> bool:
    """Return whether a URI is in an object store, by its scheme."""
    return uri.partition(":")[0] in EXTRAS
