"""What is peculiar to object stores: their schemes, and the errors of their clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
"""The extra of this package that brings the client of a scheme."""

_CLIENTS = ("aiohttp", "botocore", "gcsfs")
"""Packages of the clients of object stores, whose errors are no ``OSError``."""


@contextmanager
def as_os_errors() -> Iterator[None]:
    """Around everything that goes through a client of an object store: also what it raises of its own is an ``OSError``.

    :raises OSError: when a connection is lost, above all.
    """
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _CLIENTS or isinstance(error, OSError):
            raise
        raise OSError(str(error).rstrip(".")) from error


def is_object_store(uri: str) -> bool:
    """Whether it lies in an object store, by its scheme."""
    return uri.partition(":")[0] in EXTRAS
