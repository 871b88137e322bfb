"""What a catalog offers the formats: where its tables can lie. A format works on a store and never sees the catalog."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from airflow_dynamic_tables.core.identifiers import ObjectPath

if TYPE_CHECKING:  # each takes long to import, and the last two are extras
    from pyiceberg.catalog import Catalog

    from airflow_dynamic_tables.clients.metastore.client import Metastore
    from airflow_dynamic_tables.clients.postgres.server import PostgresServer


@dataclass(frozen=True, slots=True)
class Store:
    """A place for tables, of the catalog of that name; ``kind`` is what the registry of formats knows it by."""

    kind: ClassVar[str]

    reads_as: ClassVar[str | None] = None
    """Format as which its tables are read that nobody here refreshes, whatever their files are; ``None``: as these."""

    catalog: str

    @property
    def passwords(self) -> Mapping[str, str]:
        """Environment variables without which a job cannot read from here."""
        return {}


@dataclass(frozen=True, slots=True)
class IcebergStore(Store):
    """An Iceberg catalog.

    ``errors`` goes around everything that asks it: it turns the errors of its driver into this package's, among them
    AlreadyExistsError when somebody else made the same thing at the same moment. ``metadata_in`` tells which files in a folder
    (its path without a scheme, with a slash at its end) are the metadata of some table, of this catalog or beside it.
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
    """A folder, by its URI: each database is a folder in it, each table one in that."""

    kind = "folder"

    warehouse: str


@dataclass(frozen=True, slots=True)
class EntryStore(Store):
    """Folders of tables, each where the entry of its table says.

    ``location`` gives the URI of the folder, without a slash at its end, of a table of ours of some format; ``None`` when the
    catalog has none of that name and format.
    """

    kind = "entry"

    location: Callable[[ObjectPath, str], str | None] = field(repr=False)


@dataclass(frozen=True, slots=True)
class PostgresStore(Store):
    """A PostgreSQL server, and in which environment variable a job finds the password of its user, if there is one.

    ``warehouse`` is the URI of the folder for the small files of refreshes, ``lock_timeout`` the seconds for which a commit waits
    for what others have locked.
    """

    kind = "postgres"
    reads_as = "jdbc"

    server: PostgresServer
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    warehouse: str = ""
    lock_timeout: float = 30.0
