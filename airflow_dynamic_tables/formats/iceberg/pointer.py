"""Swapping the pointer of an Iceberg table, and what every error says about the outcome."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.table import Table, Transaction

from airflow_dynamic_tables.clients.object_stores import as_os_errors
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.exceptions import CommitRejectedError
from airflow_dynamic_tables.formats.commits import unknown

_NOT_WRITTEN = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}


def swap(transaction: Transaction, path: ObjectPath) -> Table | None:
    """Publish a transaction; ``None`` when somebody else was first.

    :return: the table as it is now, of which nobody has to be asked any more.

    :raises CommitRejectedError: when the new metadata could not be written, which comes before the swap.
    :raises CommitUnknownError: when the answer was lost.
    """
    try:
        return transaction.commit_transaction()
    except (CommitFailedException, TableAlreadyExistsError):
        return None
    except Exception as error:
        if isinstance(error, OSError) and (isinstance(error, PermissionError) or error.errno in _NOT_WRITTEN):
            raise _untouched(path, error) from error
        raise unknown(path, error) from error


@contextmanager
def preparing(path: ObjectPath) -> Iterator[None]:
    """Around everything that is read and written before the swap.

    :raises CommitRejectedError: when that fails.
    """
    try:
        with as_os_errors():
            yield
    except OSError as error:
        raise _untouched(path, error) from error


def _untouched(path: ObjectPath, error: OSError) -> CommitRejectedError:
    todo = "check that the warehouse is a folder with room that this process may write to"
    return CommitRejectedError(f"The metadata of {path} could not be written, its last version is untouched: {error}; {todo}.")
