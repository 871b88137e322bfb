"""Conversion of Iceberg tables to and from catalog values, with their partitions and statistics."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.io import FSSPEC_FILE_IO, PY_IO_IMPL
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField, PrimitiveType

from airflow_dynamic_tables.catalog.base import CatalogEntry, absolute_uri
from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDynamicTable,
    CatalogPartition,
    CatalogTable,
    CatalogView,
    ColumnStatistics,
    TableStatistics,
    decode_text,
    encode,
)
from airflow_dynamic_tables.clients.iceberg.catalog import LATEST_VERSION, file_io
from airflow_dynamic_tables.clients.iceberg.revisions import data_files, has_delete_files, key_columns, partition
from airflow_dynamic_tables.clients.iceberg.schemas import are_known, columns_of, keys_of
from airflow_dynamic_tables.clients.iceberg.servers import KINDS, IcebergServer
from airflow_dynamic_tables.core.formats import DEFAULT_FORMAT
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import NULL_PARTITION
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import ConfigurationError, UnsupportedError
from airflow_dynamic_tables.redaction import has_password, without_secrets

_FREQUENT = ("type", "uri", "warehouse", "credential", "token", "scope", "audience", "resource", "prefix", "oauth2-server-uri")
"""Properties checked for misspelling; all others are passed to PyIceberg unchecked."""


def server_of(entry: CatalogEntry) -> IcebergServer:
    """Return the Iceberg catalog that an entry declares; connects to nothing.

    :raises ConfigurationError: when a parameter is missing or wrong; the message names it.
    """
    for name in entry.params:
        if name not in _FREQUENT and (near := get_close_matches(name, _FREQUENT, 1, 0.8)):
            raise ConfigurationError(f"unknown connection parameter {name!r}; did you mean {near[0]!r}?")
    if "py-catalog-impl" in entry.params:
        raise ConfigurationError(f"'py-catalog-impl' is not supported; use one of the types {', '.join(KINDS)}.")
    kind = _kind(entry)
    properties = {name: value for name, value in entry.params.items() if name != "type"}
    if KINDS[kind].schemes:
        properties["uri"] = _uri(entry, kind)
    if warehouse := _warehouse(entry, kind):
        properties["warehouse"] = warehouse
    if implementation := FSSPEC_FILE_IO if kind == "glue" else file_io(warehouse or ""):
        properties.setdefault(PY_IO_IMPL, implementation)
    if kind == "rest" and {"credential", "token"} & properties.keys():
        # PyIceberg's default, set explicitly because PyIceberg warns when it falls back to it.
        properties.setdefault("oauth2-server-uri", f"{properties['uri']}/v1/oauth/tokens")
    return IcebergServer(entry.name, kind, properties)


def _kind(entry: CatalogEntry) -> str:
    if (kind := entry.params.get("type")) is not None:
        if kind not in KINDS:
            raise ConfigurationError(f"an Iceberg catalog of type {kind!r} is not supported; use one of {', '.join(KINDS)}.")
        return kind
    if "uri" not in entry.params:
        raise ConfigurationError(
            "needs connection parameter 'uri' (https://… of a REST catalog, thrift://… of a Hive metastore, postgresql://… or "
            "sqlite:///… of a database) or 'type: glue', or a 'conn-id' whose connection has a host."
        )
    scheme = _scheme(entry.params["uri"])
    kinds = [name for name, one in KINDS.items() if scheme in one.schemes]
    if not kinds:
        raise ConfigurationError(
            f"'uri' {without_secrets(entry.params['uri'])} is of no Iceberg catalog; it begins with one of "
            f"{', '.join(f'{known}:' for one in KINDS.values() for known in one.schemes)}."
        )
    return kinds[0]


def _uri(entry: CatalogEntry, kind: str) -> str:
    if "uri" not in entry.params:
        raise ConfigurationError(
            f"an Iceberg catalog of type {kind} needs connection parameter 'uri', e.g. {KINDS[kind].example}."
        )
    uri = entry.params["uri"].rstrip("/")
    if _scheme(uri) not in KINDS[kind].schemes:
        raise ConfigurationError(
            f"'uri' {without_secrets(uri)} is none of type {kind}; one is {KINDS[kind].example}, or leave 'type' out."
        )
    if kind == "rest" and has_password(uri):
        raise ConfigurationError(
            "'uri' holds a password; say 'credential: <id>:<secret>' instead, or give a connection login and password."
        )
    if uri.startswith("sqlite:///"):
        return f"sqlite:///{(entry.base / uri.removeprefix('sqlite:///')).resolve()}"
    return uri


def _warehouse(entry: CatalogEntry, kind: str) -> str | None:
    """Return the location of new tables; a REST catalog may use its own identifiers for it."""
    named = entry.params.get("warehouse")
    if kind == "sql" and not named:
        raise ConfigurationError("an Iceberg catalog of type sql needs connection parameter 'warehouse', a folder or its URI.")
    if named is None or kind == "rest":
        return named
    return absolute_uri(named, entry.base)


def _scheme(uri: str) -> str:
    return uri.partition(":")[0].partition("+")[0].lower()


_PREFIX = "dynamic-tables."
_VALUE = f"{_PREFIX}value"
_TECHNICAL = ("write.", "commit.", "history.", "gc.", "read.", "schema.", "engine.", "format-version", "created-at")
"""Prefixes of properties that configure how a table is written, and belong to the user only when explicitly set."""


def check_kind(catalog: str, path: ObjectPath, table: AnyTable) -> CatalogTable | CatalogDynamicTable:
    """Check that an Iceberg catalog can hold a table.

    :raises UnsupportedError: with the reason, when it cannot.
    """
    if isinstance(table, CatalogView):
        raise UnsupportedError(f"Catalog {catalog} is an Iceberg catalog, which keeps no views; make {path} in another catalog.")
    if table.format != DEFAULT_FORMAT:
        raise UnsupportedError(
            f"Catalog {catalog} is an Iceberg catalog and keeps no {table.format} tables; {path} needs format: {DEFAULT_FORMAT}."
        )
    if isinstance(table, CatalogTable) and table.options:
        raise UnsupportedError(f"{path}: an Iceberg table has no options of Spark's reader.")
    if taken := sorted(name for name in table.properties if _is_own(name)):
        raise UnsupportedError(f"An Iceberg table uses the property {taken[0]} itself; give yours another name.")
    return table


def check_kept(catalog: str, metadata: TableMetadata) -> None:
    """Check that the catalog preserved the properties of a table that was just created.

    :raises UnsupportedError: when it drops unknown properties.
    """
    if _VALUE not in metadata.properties:
        raise UnsupportedError(
            f"Catalog {catalog} leaves out properties of tables, such as {_VALUE}, in which dynamic tables are kept; use another "
            "catalog."
        )


def properties_of(table: CatalogTable | CatalogDynamicTable) -> dict[str, str]:
    """Return the properties of the Iceberg table for a value, without a revision."""
    value = encode(table)
    comment = {"comment": table.comment} if table.comment is not None else {}
    return {**table.properties, **comment, _VALUE: json.dumps(value, sort_keys=True)}


def removed(before: Mapping[str, str], value: AnyTable, after: Mapping[str, str]) -> set[str]:
    """Return the properties to remove from a table when its value changes."""
    own = {key for key in before if key == "comment" or key in value.properties}
    return own - after.keys()


def is_dynamic(metadata: TableMetadata) -> bool:
    """Return whether a table is a dynamic table."""
    return isinstance(_stored(metadata), CatalogDynamicTable)


def from_iceberg(table: Table, version: str | None = None) -> AnyTable | None:
    """Return the value of an Iceberg table; ``None`` when it has no such version.

    :raises UnsupportedError: when a column has a type that Spark does not support.
    """
    stored = _stored(table.metadata)
    if stored is None:
        seen = as_stored(None, table, version)
        return replace(seen, properties=_foreign(seen.properties, {})) if seen is not None else None

    known = replace(
        stored,
        comment=table.properties.get("comment"),
        properties=_foreign(table.properties, stored.properties),
    )
    if not table.schema().fields and version is None:
        return known  # nothing was committed yet
    seen = as_stored(known, table, version)
    if isinstance(seen, CatalogTable):
        return replace(seen, partition_keys=table_of(table).partition_keys, location=stored.location and seen.location)
    return seen


def adopted(catalog: str, path: ObjectPath, physical: Table, table: CatalogDynamicTable) -> CatalogDynamicTable:
    """Return the dynamic table for an existing Iceberg table, which keeps its rows.

    :raises UnsupportedError: when its rows cannot be replaced as the definition requires.
    """
    keys = keys_of(physical.spec(), physical.schema())
    version = physical.format_version
    obstacles = {
        f"its format is iceberg and not {table.format}": table.format != DEFAULT_FORMAT,
        f"its format version is {version}, and commits here write versions up to {LATEST_VERSION}": version > LATEST_VERSION,
        "it is partitioned by what only another engine computes": not are_known(physical.spec()),
        f"its partition keys are {keys or 'none'} and not {table.partition_keys or 'none'}": keys != table.partition_keys,
    }
    if reasons := [reason for reason, stands in obstacles.items() if stands]:
        raise UnsupportedError(f"{path} in catalog {catalog} cannot be adopted: {reasons[0]}.")
    before = from_iceberg(physical)
    if before is None:
        raise TypeError("a table without a current state")
    return replace(table, comment=table.comment or before.comment, properties=dict(before.properties))


def _stored(metadata: TableMetadata) -> CatalogTable | CatalogDynamicTable | None:
    if (text := metadata.properties.get(_VALUE)) is None:
        return None
    value = decode_text(text, f"the table at {metadata.location}")
    return value if isinstance(value, CatalogTable | CatalogDynamicTable) else None


def _foreign(properties: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of the user, and descriptive properties of other engines."""
    return {key: text for key, text in properties.items() if key in own or not (_is_own(key) or key.startswith(_TECHNICAL))}


def _is_own(name: str) -> bool:
    return name == "comment" or name.startswith(_PREFIX)


def as_stored(entry: AnyTable | None, physical: Table, version: str | None) -> AnyTable | None:
    """Return the entry updated from the physical table, as of a version; ``None`` when there is no such version.

    :raises UnsupportedError: when a column has a type that Spark does not support.
    """
    as_of = _columns_as_of(physical, version)
    if as_of is None:
        return None
    columns, snapshot = as_of
    if isinstance(entry, CatalogDynamicTable):
        # Until a full refresh recreates the table, its partitioning is unchanged, whatever its definition states.
        keys = tuple(key_columns(physical.spec(), physical.schema()).values()) if columns else entry.partition_keys
        return replace(entry, columns=columns, partition_keys=keys, location=physical.location(), snapshot=snapshot)
    if isinstance(entry, CatalogTable):
        keys = tuple(key_columns(physical.spec(), physical.schema()).values()) if columns else entry.partition_keys
        comment = physical.properties.get("comment", entry.comment)
        return replace(entry, columns=columns, partition_keys=keys, comment=comment, location=physical.location())
    return replace(table_of(physical), columns=columns)


def table_of(physical: Table) -> CatalogTable:
    """Return a table that only Iceberg knows.

    :raises UnsupportedError: when a column has a type that Spark does not support.
    """
    return CatalogTable(
        columns_of(physical.schema()),
        comment=physical.properties.get("comment"),
        partition_keys=tuple(key_columns(physical.spec(), physical.schema()).values()),
        location=physical.location(),
        properties=dict(physical.properties),
    )


def _columns_as_of(table: Table, version: str | None) -> tuple[tuple[Column, ...], str | None] | None:
    """Return columns and snapshot of a version, by default the current one; ``None`` when there is no such version."""
    snapshots = {str(snapshot.snapshot_id): snapshot for snapshot in table.snapshots()}
    if version is None:
        current = table.current_snapshot()
        return columns_of(table.schema()), str(current.snapshot_id) if current else None
    if version not in snapshots:
        return None
    schema_id = snapshots[version].schema_id
    return columns_of(table.schema() if schema_id is None else table.schemas()[schema_id]), version


def partitions_of(table: Table, keys: tuple[str, ...], wanted: Mapping[str, str]) -> list[CatalogPartition]:
    """Return the partitions that contain files and match ``wanted``, ordered by their values."""
    schema = table.schema()
    uncounted = has_delete_files(table)
    columns = {number: key_columns(spec, schema) for number, spec in table.specs().items()}
    files_by_values: dict[tuple[str, ...], list[DataFile]] = {}
    for file, spec in data_files(table):
        values = partition(file, spec, schema)
        named = {column: values[field] for field, column in columns[spec.spec_id].items()}
        full = {key: NULL_PARTITION if (value := named.get(key)) is None else value for key in keys}
        if wanted.items() <= full.items():
            files_by_values.setdefault(tuple(full.values()), []).append(file)
    return [
        CatalogPartition(dict(zip(keys, values, strict=True)), statistics=_size(files, uncounted=uncounted))
        for values, files in sorted(files_by_values.items())
    ]


def statistics_of(table: Table) -> TableStatistics:
    """Return the size of the current version; the number of rows is unknown when there are delete files."""
    return _size([file for file, _ in data_files(table)], uncounted=has_delete_files(table))


def _size(files: list[DataFile], *, uncounted: bool) -> TableStatistics:
    rows = None if uncounted else sum(file.record_count for file in files)
    return TableStatistics(rows, sum(file.file_size_in_bytes for file in files), len(files))


def column_statistics_of(table: Table) -> dict[str, ColumnStatistics]:
    """Return nulls, minimum and maximum of the columns for which every file has them in the metadata of the commit.

    Iceberg truncates long strings, so that minimum and maximum of such columns are bounds and may not be actual values.
    """
    files = [file for file, _ in data_files(table)]
    if not files or has_delete_files(table):
        return {}
    fields = (field for field in table.schema().fields if isinstance(field.field_type, PrimitiveType))
    by_column = {field.name: _column(field, files) for field in fields}
    return {name: statistics for name, statistics in by_column.items() if statistics != ColumnStatistics()}


def _column(field: NestedField, files: list[DataFile]) -> ColumnStatistics:
    nulls = [(file.null_value_counts or {}).get(field.field_id) for file in files]
    # A file with only nulls has no bounds and needs none.
    bounded = [file for file, count in zip(files, nulls, strict=True) if count != file.record_count]
    return ColumnStatistics(
        nulls=None if None in nulls else sum(count or 0 for count in nulls),
        minimum=_text(field, min, (file.lower_bounds for file in bounded)),
        maximum=_text(field, max, (file.upper_bounds for file in bounded)),
    )


def _text(field: NestedField, choose: Any, bounds: Iterator[Mapping[int, bytes] | None]) -> str | None:
    """Return the smallest or largest bound as a string; ``None`` when a file has none."""
    encoded = [(bound or {}).get(field.field_id) for bound in bounds]
    if not encoded or None in encoded or not isinstance(field.field_type, PrimitiveType):
        return None
    values = [from_bytes(field.field_type, value) for value in encoded if value is not None]
    return IdentityTransform[Any]().to_human_string(field.field_type, choose(values))
