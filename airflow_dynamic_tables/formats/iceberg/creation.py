"""Making Iceberg tables: empty, before anything is staged, each in a folder that no other table ever has.

A commit only changes a table that is there. So the first one can be fenced off like any other, and a table that was renamed and
the new one of its old name share no folder.
"""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties

from airflow_dynamic_tables.clients.deleting import delete_folder
from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath, folder_name
from airflow_dynamic_tables.exceptions import AlreadyExistsError, CommitRejectedError
from airflow_dynamic_tables.formats.commits import until_done
from airflow_dynamic_tables.formats.iceberg import snapshots as tables
from airflow_dynamic_tables.formats.iceberg.pointer import preparing

PREVIOUS_METADATA = {TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "10"}
"""How many earlier metadata files are kept: each is as large as the history of the table, and nobody reads one."""

_PROPERTIES = {
    TableProperties.FORMAT_VERSION: "2",
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    **PREVIOUS_METADATA,
}


def load_or_make(store: IcebergStore, path: ObjectPath) -> Table:
    """The table of the catalog; when there is none, an empty one is made, without columns and without a version.

    :raises CatalogUnavailableError: when the catalog's database or the table's metadata cannot be reached.
    :raises CommitRejectedError: when its metadata cannot be written.
    """

    def attempt() -> Table | None:
        table = tables.load(store, path)
        if table is None:
            _make(store, path)
        return table

    return until_done(attempt, path, "being made", pause=False)


def _make(store: IcebergStore, path: ObjectPath) -> None:
    """Make the table, unless somebody else does at the same moment."""
    with suppress(AlreadyExistsError), store.errors():
        store.tables.create_namespace_if_not_exists((path.database,))
    location = _new_location(store, path)
    try:
        with preparing(path), store.errors():
            store.tables.create_table((path.database, path.name), Schema(), location=location, properties=_PROPERTIES)
    except (TableAlreadyExistsError, AlreadyExistsError):
        delete_folder(_warehouse(store), location)
    except CommitRejectedError:
        with suppress(OSError):  # the disk that was full
            delete_folder(_warehouse(store), location)
        raise


def _new_location(store: IcebergStore, path: ObjectPath) -> str:
    return f"{_warehouse(store)}/{folder_name(path.database)}/{folder_name(path.name)}-{uuid4().hex}"


def _warehouse(store: IcebergStore) -> str:
    return str(store.tables.properties["warehouse"]).rstrip("/")
