"""Which module knows what to do with a table of some format in some kind of store. Each is imported when it is first used.

PyIceberg, pyarrow and Thrift take seconds to import, and Airflow imports the services whenever it parses a file of DAGs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from airflow_dynamic_tables.clients.connections import Connection
from airflow_dynamic_tables.clients.stores import Store
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.tables.formats import DEFAULT_FORMAT, FORMATS
from airflow_dynamic_tables.exceptions import ConfigurationError, MissingExtraError, UnsupportedError
from airflow_dynamic_tables.formats.base import LakeTable
from airflow_dynamic_tables.formats.news import News


@dataclass(frozen=True, slots=True)
class Module:
    """Where something is: ``package.module:name``, and the extra that brings the libraries it needs."""

    place: str
    extra: str | None = None

    def load(self) -> Callable[..., object]:
        """Import it.

        :raises MissingExtraError: when a library is not installed.
        """
        module, _, name = self.place.partition(":")
        try:
            implementation: Callable[..., object] = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if self.extra is None:
                raise
            raise MissingExtraError(self.extra) from error
        return implementation


_HERE = "airflow_dynamic_tables.formats"
_HIVE = Module(f"{_HERE}.hive.table:HiveTable", "hive")
_FOLDER = Module(f"{_HERE}.folder.table:FolderTable")
_PLAIN = Module(f"{_HERE}.plain.source:bind")
_DELTA_SOURCE = f"{_HERE}.delta.source"

ANYWHERE = ""
"""Kind of store of sources whose definitions say where they lie."""

TABLES: dict[tuple[str, str], Module] = {
    ("iceberg", "iceberg"): Module(f"{_HERE}.iceberg.table:IcebergTable"),
    ("parquet", "metastore"): _HIVE,
    ("orc", "metastore"): _HIVE,
    ("parquet", "folder"): _FOLDER,
    ("orc", "folder"): _FOLDER,
    ("jdbc", "postgres"): Module(f"{_HERE}.jdbc.table:JdbcTable", "postgres"),
    ("delta", "entry"): Module(f"{_HERE}.delta.table:DeltaLakeTable", "delta"),
}
"""Tables that are refreshed here, by format and kind of store: a :class:`~airflow_dynamic_tables.formats.base.LakeTable` each."""

SOURCES: dict[tuple[str, str], Module] = {
    **{(name, ANYWHERE): _PLAIN for name, traits in FORMATS.items() if traits.has_path},
    ("delta", ANYWHERE): Module(f"{_DELTA_SOURCE}:bind", "delta"),
    ("hive", "metastore"): Module(f"{_HERE}.hive.source:bind", "hive"),
    ("jdbc", "postgres"): Module(f"{_HERE}.jdbc.source:bind", "postgres"),
}
"""How tables are bound that nobody here refreshes. A format that is not here is read as a table that is refreshed here."""

COUNTERS: dict[tuple[str, str], Module] = {
    **dict.fromkeys((("parquet", ANYWHERE), ("orc", ANYWHERE)), Module(f"{_HERE}.plain.counting:count")),
    ("delta", ANYWHERE): Module(f"{_DELTA_SOURCE}:count", "delta"),
    ("jdbc", "postgres"): Module(f"{_HERE}.jdbc.source:count", "postgres"),
}
"""How rows of tables are counted that nobody here refreshes, without reading them all."""


NEWS: dict[tuple[str, str], Module] = {
    ("delta", ANYWHERE): Module(f"{_DELTA_SOURCE}:news", "delta"),
    ("hive", "metastore"): Module(f"{_HERE}.hive.source:news", "hive"),
    ("iceberg", "iceberg"): Module(f"{_HERE}.iceberg.reading:news"),
}
"""How a stream hears what is new in a table, by its format and kind of store."""

CONNECTIONS: dict[str, Module] = {"kafka": Module("airflow_dynamic_tables.clients.kafka:connector_options")}
"""How an Airflow connection says where sources of a format are, by options of Spark's reader."""


def default_format(stores: Sequence[Store]) -> str:
    """The format of tables that do not say: the only one that these stores can hold, else the one that most have."""
    kinds = {store.kind for store in stores}
    possible = [table_format for table_format, kind in TABLES if kind in kinds]
    return possible[0] if len(possible) == 1 else DEFAULT_FORMAT


def open_table(identifier: TableIdentifier, table_format: str, stores: Sequence[Store], atomicity: str) -> LakeTable:
    """A table of that name and format; touches nothing yet.

    :param stores: what its catalog offers.
    :param atomicity: ``staged`` refuses a format that cannot commit there in one step.
    :raises UnsupportedError: when none of the stores can hold the format, or not as atomically as asked for.
    """
    store = _store_of(identifier, table_format, stores)
    module = TABLES[table_format, store.kind]
    table = module.load()(store, identifier.path, FORMATS[table_format].file_format)
    if not isinstance(table, LakeTable):
        raise TypeError(f"{module.place} is no LakeTable")
    if atomicity != "none" and not table.is_atomic:
        raise UnsupportedError(
            f"{identifier}: catalog {identifier.catalog} cannot replace {table_format} files in one step; use format: "
            f"{DEFAULT_FORMAT}, or accept with atomicity: none that readers may see a part of a refresh."
        )
    return table


def check_held(identifier: TableIdentifier, table_format: str, stores: Sequence[Store]) -> None:
    """Check that a catalog can hold tables of a format; imports nothing.

    :param stores: what the catalog offers; one that offers nothing keeps entries alone, of any format.
    :raises UnsupportedError: when none of them can.
    """
    if stores:
        _store_of(identifier, table_format, stores)


def _store_of(identifier: TableIdentifier, table_format: str, stores: Sequence[Store]) -> Store:
    for store in stores:
        if (table_format, store.kind) in TABLES:
            return store
    kinds = [store.kind for store in stores]
    known = [name for name, kind in TABLES if kind in kinds]
    use = f"; use format {' | '.join(known)}, or another catalog" if known else ""
    raise UnsupportedError(f"{identifier}: catalog {identifier.catalog} cannot hold {table_format} tables{use}.")


def is_bound(source: Source) -> bool:
    """Whether a source is bound by :func:`bind`; others are read as tables that are refreshed here."""
    return any(source.format == name for name, _ in SOURCES)


def bind(source: Source, stores: Sequence[Store], view: str, conf: Mapping[str, str] | None = None) -> SourceBinding:
    """Bind a source to the version that it has now; a refresh reads it as ``view``.

    :param stores: what its catalog offers.
    :param conf: how the Spark that reads it is configured, which may have libraries for the format.
    :raises ConfigurationError: when there is nothing to read, or its catalog is of another type.
    :raises TableNotFoundError: when its catalog does not have it.
    :raises UnsupportedError: when Spark cannot read it.
    """
    module, store = _at_home(SOURCES, source, stores)
    binding = module.load()(source, store, view, conf or {})
    if not isinstance(binding, SourceBinding):
        raise TypeError(f"{module.place} gives no SourceBinding")
    return binding


def tells_news(table_format: str) -> bool:
    """Whether a stream can hear what is new in tables of a format."""
    return any(table_format == name for name, _ in NEWS)


def news(source: Source, stores: Sequence[Store], view: str, since: SourceState | None) -> News:
    """What came into a table since somebody read it; all that it has when nobody did, also when that is nothing.

    :param stores: what its catalog offers.
    :param view: what a stream reads it as.
    :param since: what was read, the state of the binding of earlier news.
    :raises TableNotFoundError: when its catalog does not have it, or it has no version yet.
    :raises UnsupportedError: when Spark cannot read it.
    """
    module, store = _at_home(NEWS, source, stores)
    told = module.load()(source, store, view, since)
    if not isinstance(told, News):
        raise TypeError(f"{module.place} gives no news")
    return told


def count_rows(source: Source, stores: Sequence[Store], partition: Mapping[str, str], least: int) -> int:
    """Rows that a source has now, or those with some values of partition keys; counting may end at ``least``.

    :param stores: what its catalog offers.
    :raises ConfigurationError: when its catalog is of another type, or it has no such key.
    :raises TableNotFoundError: when it is not there.
    :raises CatalogUnavailableError: when nobody can tell.
    """
    module, store = _at_home(COUNTERS, source, stores)
    rows = module.load()(source, store, partition, least)
    if not isinstance(rows, int):
        raise TypeError(f"{module.place} gives no number of rows")
    return rows


def connection_options(source_format: str, conn_id: str, connection: Connection) -> dict[str, str]:
    """Options of Spark's reader, among them secrets, that a connection says for sources of a format.

    :raises ConfigurationError: when it does not say what is needed.
    """
    options = CONNECTIONS[source_format].load()(conn_id, connection)
    if not isinstance(options, dict):
        raise TypeError(f"{CONNECTIONS[source_format].place} gives no options")
    return options


def _at_home(modules: Mapping[tuple[str, str], Module], source: Source, stores: Sequence[Store]) -> tuple[Module, Store | None]:
    for store in (None, *stores):
        module = modules.get((source.format, store.kind if store is not None else ANYWHERE))
        if module is not None:
            return module, store
    catalog = source.identifier.catalog
    raise ConfigurationError(
        f"Source {source.identifier} has format {source.format}, but catalog {catalog} is not of type {source.format}."
    )
