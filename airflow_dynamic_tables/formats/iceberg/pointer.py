"""The metadata pointer of an Iceberg table: its creation, its swap by a commit, and the outcome implied by each error.

A new table is created empty before anything is staged, in a folder that no other table ever uses. A commit only changes an
existing table. Therefore the first commit can be fenced like any other, and a renamed table never shares its folder with a new
table of the old name.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction

from airflow_dynamic_tables.clients.deleting import delete_folder
from airflow_dynamic_tables.clients.iceberg.catalog import LATEST_VERSION, NEW_TABLE, new_location
from airflow_dynamic_tables.clients.object_stores import as_os_errors
from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.exceptions import AlreadyExistsError, CommitRejectedError
from airflow_dynamic_tables.formats.commits import unknown, until_done
from airflow_dynamic_tables.formats.iceberg import snapshots as tables

_REFUSED = (AuthorizationExpiredError, BadRequestError, ForbiddenError, UnauthorizedError)
"""Server errors that mean that the commit was not made."""

_NOT_WRITTEN = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}


def is_writable(table: Table) -> bool:
    """Return whether PyIceberg can write to the table, not only read it."""
    return table.format_version <= LATEST_VERSION


def check_writable(table: Table, path: ObjectPath) -> None:
    """Check that PyIceberg can write to the table.

    :raises CommitRejectedError: if it can only read it.
    """
    if not is_writable(table):
        raise CommitRejectedError(
            f"{path} has Iceberg's format version {table.format_version}, which another engine gave it: it can be read as a "
            f"source, but commits here write versions up to {LATEST_VERSION}, and no table goes back. Drop it and refresh it "
            "again."
        )


def swap(transaction: Transaction, path: ObjectPath) -> Table | None:
    """Publish a transaction; return ``None`` after a concurrent commit.

    :return: the table after the commit.

    :raises CommitRejectedError: if the new metadata could not be written, which precedes the swap.
    :raises CommitUnknownError: if the response was lost.
    """
    try:
        return transaction.commit_transaction()
    except (CommitFailedException, TableAlreadyExistsError):
        return None
    except _REFUSED as error:
        raise CommitRejectedError(f"The catalog refuses the commit of {path}, its last version is untouched: {error}.") from error
    except Exception as error:
        if isinstance(error, OSError) and (isinstance(error, PermissionError) or error.errno in _NOT_WRITTEN):
            raise _untouched(path, error) from error
        raise unknown(path, error) from error


@contextmanager
def preparing(path: ObjectPath) -> Iterator[None]:
    """Translate errors of the reads and writes that precede the swap.

    :raises CommitRejectedError: if one fails.
    """
    try:
        with as_os_errors():
            yield
    except OSError as error:
        raise _untouched(path, error) from error


def _untouched(path: ObjectPath, error: OSError) -> CommitRejectedError:
    todo = "check that the warehouse is a folder with room that this process may write to"
    return CommitRejectedError(f"The metadata of {path} could not be written, its last version is untouched: {error}; {todo}.")


def load_or_make(store: IcebergStore, path: ObjectPath) -> Table:
    """Load the table, or create an empty one without columns and versions.

    :raises CatalogUnavailableError: if the catalog's database or the table's metadata cannot be reached.
    :raises CommitRejectedError: if its metadata cannot be written.
    """

    def attempt() -> Table | None:
        table = tables.load(store, path)
        if table is None:
            _make(store, path)
            table = tables.load(store, path)
        return table

    return until_done(attempt, path, "being made")


def _make(store: IcebergStore, path: ObjectPath) -> None:
    """Create the table, unless a concurrent process does."""
    with suppress(AlreadyExistsError), store.errors():
        store.tables.create_namespace_if_not_exists((path.database,))
    location: str | None = None
    try:
        with preparing(path), store.errors():
            location = new_location(store.tables, path)
            store.tables.create_table((path.database, path.name), Schema(), location=location, properties=NEW_TABLE)
    except (TableAlreadyExistsError, AlreadyExistsError):
        _forget(location)
    except CommitRejectedError:
        with suppress(OSError):  # the disk may be full
            _forget(location)
        raise


def _forget(location: str | None) -> None:
    """Delete the folder of a table that was not created; a folder chosen by the server is left to the server."""
    if location is not None:
        delete_folder(location.rpartition("/")[0], location)
