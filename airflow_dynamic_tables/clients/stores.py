"""Stores: locations of tables, passed by a catalog to a format. A format depends on a store but not on the catalog."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from airflow_dynamic_tables.core.identifiers import ObjectPath

if TYPE_CHECKING:  # each is slow to import, and the last two are extras
    from pyiceberg.catalog import Catalog

    from airflow_dynamic_tables.clients.metastore.client import Metastore
    from airflow_dynamic_tables.clients.postgres.server import PostgresServer


@dataclass(frozen=True, slots=True)
class Store:
    """A location of tables in a catalog of that name; ``kind`` is its key in the registry of formats."""

    kind: ClassVar[str]

    reads_as: ClassVar[str | None] = None
    """Format by which its tables without refreshes are read, whatever their files; ``None``: the table's own format."""

    catalog: str

    @property
    def passwords(self) -> Mapping[str, str]:
        """Environment variables that a job requires to read from this store."""
        return {}


@dataclass(frozen=True, slots=True)
class IcebergStore(Store):
    """An Iceberg catalog.

    ``errors`` is a context manager for all calls of the catalog that converts its driver's errors, for example to
    AlreadyExistsError when the same object was created concurrently. ``metadata_in`` returns the files in a folder (a path
    without scheme, with a trailing slash) that are the metadata of a table in this or another catalog.
    """

    kind = "iceberg"

    tables: Catalog
    errors: Callable[[], AbstractContextManager[None]]
    metadata_in: Callable[[str], Collection[str]] = field(default=lambda _: (), repr=False)


@dataclass(frozen=True, slots=True)
class MetastoreStore(Store):
    """A Hive metastore."""

    kind = "metastore"
    reads_as = "hive"

    metastore: Metastore


@dataclass(frozen=True, slots=True)
class FolderStore(Store):
    """A folder, by its URI, with a folder per database that contains a folder per table."""

    kind = "folder"

    warehouse: str


@dataclass(frozen=True, slots=True)
class EntryStore(Store):
    """Table folders, each located by the table's catalog entry.

    ``location`` returns the URI of the folder, without a trailing slash, of a dynamic table of a format; ``None`` when the
    catalog has none of that name and format.
    """

    kind = "entry"

    location: Callable[[ObjectPath, str], str | None] = field(repr=False)


@dataclass(frozen=True, slots=True)
class PostgresStore(Store):
    """A PostgreSQL server, and the environment variable with the password of its user, if any.

    ``warehouse`` is the URI of the folder for the small files of refreshes, ``lock_timeout`` the seconds that a commit waits for
    locks.
    """

    kind = "postgres"
    reads_as = "jdbc"

    server: PostgresServer
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    warehouse: str = ""
    lock_timeout: float = 30.0
