"""Registry of table formats by format and store kind; implementations are imported lazily.

PyIceberg, pyarrow and Thrift take seconds to import, and Airflow imports the services whenever it parses a DAG file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TypeVar

from airflow_dynamic_tables.clients.connections import Connection
from airflow_dynamic_tables.clients.stores import Store
from airflow_dynamic_tables.core.formats import DEFAULT_FORMAT, FORMATS
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.exceptions import ConfigurationError, MissingExtraError, UnsupportedError
from airflow_dynamic_tables.formats.base import NO_VERSIONS, ChangedFiles, Increment, KeyScan, LakeTable, ListedFile

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Module:
    """An implementation as ``package.module:name``, and the extra that installs its libraries."""

    place: str
    extra: str | None = None

    def load(self) -> Callable[..., object]:
        """Import the implementation.

        :raises MissingExtraError: if a library is not installed.
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
_FOLDER = Module(f"{_HERE}.folder:FolderTable")
_PLAIN = Module(f"{_HERE}.plain:bind")
_DELTA_SOURCE = f"{_HERE}.delta.table"

ANYWHERE = ""
"""Store kind of sources with a location in their definition."""

TABLES: dict[tuple[str, str], Module] = {
    ("iceberg", "iceberg"): Module(f"{_HERE}.iceberg.table:IcebergTable"),
    ("parquet", "metastore"): _HIVE,
    ("orc", "metastore"): _HIVE,
    ("parquet", "folder"): _FOLDER,
    ("orc", "folder"): _FOLDER,
    ("jdbc", "postgres"): Module(f"{_HERE}.postgres.table:JdbcTable", "postgres"),
    ("delta", "entry"): Module(f"{_HERE}.delta.table:DeltaLakeTable", "delta"),
}
"""Tables that are refreshed here, by format and store kind: :class:`~airflow_dynamic_tables.formats.base.LakeTable` classes."""

SOURCES: dict[tuple[str, str], Module] = {
    **{(name, ANYWHERE): _PLAIN for name, traits in FORMATS.items() if traits.has_path},
    ("delta", ANYWHERE): Module(f"{_DELTA_SOURCE}:bind", "delta"),
    ("hive", "metastore"): Module(f"{_HERE}.hive.table:bind", "hive"),
    ("jdbc", "postgres"): Module(f"{_HERE}.postgres.table:bind", "postgres"),
}
"""Binding functions of sources. Sources of other formats are read as tables that are refreshed here."""

PAST_SOURCES: dict[tuple[str, str], Module] = {("delta", ANYWHERE): Module(f"{_DELTA_SOURCE}:bind_at", "delta")}
"""Functions that bind sources to an earlier version."""

READ_CHECKS: dict[tuple[str, str], Module] = {("jdbc", "postgres"): Module(f"{_HERE}.postgres.table:check_read", "postgres")}
"""Functions that check that a job read the bound version of a source, where reading another one is no error."""

COUNTERS: dict[tuple[str, str], Module] = {
    **dict.fromkeys((("parquet", ANYWHERE), ("orc", ANYWHERE)), Module(f"{_HERE}.plain:count")),
    ("delta", ANYWHERE): Module(f"{_DELTA_SOURCE}:count", "delta"),
    ("jdbc", "postgres"): Module(f"{_HERE}.postgres.table:count", "postgres"),
}
"""Functions that count the rows of sources without reading all data."""


INCREMENTAL_SCANS: dict[tuple[str, str], Module] = {
    ("delta", ANYWHERE): Module(f"{_DELTA_SOURCE}:added_since", "delta"),
    ("hive", "metastore"): Module(f"{_HERE}.hive.table:added_since", "hive"),
    ("iceberg", "iceberg"): Module(f"{_HERE}.iceberg.reading:added_since"),
}
"""Functions that return the changes of a table for streams, by format and store kind."""

ADDED_FILES: dict[tuple[str, str], Module] = {
    **{(name, ANYWHERE): Module(f"{_HERE}.plain:files_since") for name, traits in FORMATS.items() if traits.is_folder},
    ("hive", "metastore"): Module(f"{_HERE}.hive.table:files_since", "hive"),
}
"""Functions that return the files added to a source that keeps no earlier versions."""

CHANGED_FILES: dict[tuple[str, str], Module] = {("delta", ANYWHERE): Module(f"{_DELTA_SOURCE}:changed_files", "delta")}
"""Functions that return which files of a source differ between two states."""

FILE_LISTS: dict[tuple[str, str], Module] = {
    ("delta", ANYWHERE): Module(f"{_DELTA_SOURCE}:list_files", "delta"),
    ("parquet", ANYWHERE): Module(f"{_HERE}.plain:list_files_at"),
}
"""Functions that return the Parquet files of a version of a source."""

_KEY_SCAN = Module(f"{_HERE}.key_scans:ArrowKeyScan")

CONNECTIONS: dict[str, Module] = {"kafka": Module("airflow_dynamic_tables.clients.kafka:connector_options")}
"""Functions that convert an Airflow connection to options of Spark's reader, by source format."""


def default_format(stores: Sequence[Store]) -> str:
    """Return the default table format: the only one these stores support, or else the general default."""
    kinds = {store.kind for store in stores}
    possible = [table_format for table_format, kind in TABLES if kind in kinds]
    return possible[0] if len(possible) == 1 else DEFAULT_FORMAT


def open_table(identifier: TableIdentifier, table_format: str, stores: Sequence[Store], atomicity: str) -> LakeTable:
    """Return a table of that name and format; reads and writes nothing yet.

    :param atomicity: ``staged`` rejects formats that cannot commit atomically in the store.
    :raises UnsupportedError: if no store supports the format with this atomicity.
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
    """Check that a catalog supports tables of a format, without imports.

    :param stores: the stores of the catalog; a catalog without stores only has entries, of any format.
    :raises UnsupportedError: if no store supports the format.
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
    """Return whether :func:`bind` applies to a source; others are read as tables that are refreshed here."""
    return any(source.format == name for name, _ in SOURCES)


def bind(source: Source, stores: Sequence[Store], view: str, conf: Mapping[str, str] | None = None) -> SourceBinding:
    """Bind a source to its current version; a refresh reads it as ``view``.

    :param conf: the configuration of Spark, which may include libraries for the format.
    :raises ConfigurationError: if there is nothing to read, or its catalog has another type.
    :raises TableNotFoundError: if it is not in its catalog.
    :raises UnsupportedError: if Spark cannot read it.
    """
    return _answer(SourceBinding, SOURCES, source, stores, view, conf or {})


def bind_at(source: Source, stores: Sequence[Store], view: str, conf: Mapping[str, str] | None, version: str) -> SourceBinding:
    """Bind a source to an earlier version; otherwise like :func:`bind`.

    :raises VersionNotFoundError: if that version is no longer known.
    :raises UnsupportedError: if its format keeps no earlier versions.
    """
    if not any(source.format == name for name, _ in PAST_SOURCES):
        raise UnsupportedError(f"{source.identifier} changed, and no earlier version of it can be read")
    return _answer(SourceBinding, PAST_SOURCES, source, stores, view, conf or {}, version)


def needs_read_check(source_format: str) -> bool:
    """Return whether a job may read another version of a source of a format than the bound one without an error."""
    return any(source_format == name for name, _ in READ_CHECKS)


def check_read(binding: SourceBinding, stores: Sequence[Store]) -> None:
    """Check that a job that has ended read the bound version of a source.

    :raises CommitRejectedError: if it may have read other rows.
    """
    for store in stores:
        if module := READ_CHECKS.get((binding.format, store.kind)):
            module.load()(binding, store)


def tells_news(table_format: str) -> bool:
    """Return whether streams support tables of a format."""
    return any(table_format == name for name, _ in INCREMENTAL_SCANS)


def added_since(source: Source, stores: Sequence[Store], view: str, since: SourceState | None) -> Increment:
    """Return the rows added to a table since it was last read; initially all rows, even if there are none.

    :param since: the state of the previous binding; ``None`` initially.
    :raises TableNotFoundError: if it is not in its catalog, or has no version yet.
    :raises UnsupportedError: if Spark cannot read it.
    """
    return _answer(Increment, INCREMENTAL_SCANS, source, stores, view, since)


def files_since(source: Source, stores: Sequence[Store], view: str, since: SourceState) -> Increment:
    """Return the files added to a source that keeps no earlier versions, unless others were changed or removed.

    :param since: an earlier state, with its partitions.
    :raises UnsupportedError: if its rows are not in files alone.
    """
    if not any(source.format == name for name, _ in ADDED_FILES):
        raise UnsupportedError(NO_VERSIONS)
    return _answer(Increment, ADDED_FILES, source, stores, view, since)


def changed_files(
    source: Source, stores: Sequence[Store], columns: Collection[str], since: SourceState, now: SourceState
) -> ChangedFiles:
    """Return the files of a source that differ between two states, with what their statistics say about some columns.

    :param columns: names in lower case.
    :param since: the earlier state, with its partitions.
    :raises VersionNotFoundError: if the earlier state is no longer known.
    :raises UnsupportedError: if its format keeps no earlier versions, or its changes are not in its files alone.
    """
    if not any(source.format == name for name, _ in CHANGED_FILES):
        raise UnsupportedError(NO_VERSIONS)
    return _answer(dict, CHANGED_FILES, source, stores, columns, since, now)


def list_files(source: Source, stores: Sequence[Store], columns: Collection[str], state: SourceState) -> list[ListedFile]:
    """Return the Parquet files of a version of a source, with what their statistics say about some columns, if there are any.

    :param columns: names in lower case.
    :param state: of the version, with its partitions.
    :raises VersionNotFoundError: if the version is not known any more.
    :raises UnsupportedError: if its rows are not in Parquet files alone.
    """
    if not any(source.format == name for name, _ in FILE_LISTS):
        raise UnsupportedError(f"it has the format {source.format}, whose files are not read here")
    return _answer(list, FILE_LISTS, source, stores, columns, state)


def key_scan() -> KeyScan:
    """Return a new scan of keys in data files."""
    scan = _KEY_SCAN.load()()
    if not isinstance(scan, KeyScan):
        raise TypeError(f"{_KEY_SCAN.place} is no KeyScan")
    return scan


def count_rows(source: Source, stores: Sequence[Store], partition: Mapping[str, str], least: int) -> int:
    """Count the rows of a source, optionally with given partition values, at least up to ``least``.

    :raises ConfigurationError: if its catalog has another type, or it has no such key.
    :raises TableNotFoundError: if it does not exist.
    :raises CatalogUnavailableError: if the count cannot be determined.
    """
    return _answer(int, COUNTERS, source, stores, partition, least)


def connection_options(source_format: str, conn_id: str, connection: Connection) -> dict[str, str]:
    """Return options of Spark's reader, including secrets, from an Airflow connection.

    :raises ConfigurationError: if the connection lacks required settings.
    """
    options = CONNECTIONS[source_format].load()(conn_id, connection)
    if not isinstance(options, dict):
        raise TypeError(f"{CONNECTIONS[source_format].place} gives no options")
    return options


def _answer(
    kind: type[_T], modules: Mapping[tuple[str, str], Module], source: Source, stores: Sequence[Store], *arguments: object
) -> _T:
    """Call the function for the format of a source and the store where it is."""
    for store in (None, *stores):
        module = modules.get((source.format, store.kind if store is not None else ANYWHERE))
        if module is not None:
            answer = module.load()(source, store, *arguments)
            if not isinstance(answer, kind):
                raise TypeError(f"{module.place} returns no {kind.__name__}")
            return answer
    catalog = source.identifier.catalog
    raise ConfigurationError(
        f"Source {source.identifier} has format {source.format}, but catalog {catalog} is not of type {source.format}."
    )
