"""Snapshots of Delta tables, read by delta-rs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

from airflow_dynamic_tables.clients.delta.log import DeltaLog
from airflow_dynamic_tables.clients.files import FileSystem, file_system, is_object_store
from airflow_dynamic_tables.core.refresh.conditions import ColumnRange
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.types import Array, DataType, Field, Map, Primitive, Struct, parse_type, type_from_json
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, MissingExtraError, UnsupportedError, VersionNotFoundError

if TYPE_CHECKING:
    from deltalake import DeltaTable


WITHOUT_ZONE = "timestamp_ntz"
"""A type that requires the table feature ``timestampNtz`` of readers and writers."""

_PRIMITIVES = {
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal"),
    *("string", "binary", "date", "timestamp", WITHOUT_ZONE),
}


def schema_to_json(columns: Sequence[Column]) -> str:
    """The JSON schema of a Delta table with these columns, all nullable.

    :raises UnsupportedError: names a column whose type Delta does not have.
    """
    return json.dumps({"type": "struct", "fields": [_field(column) for column in columns]})


def schema_from_json(schema: str) -> tuple[Column, ...]:
    """The columns of a schema.

    :raises UnsupportedError: for a type that Spark does not have.
    """
    return tuple(_column(field) for field in json.loads(schema)["fields"])


def has_type(columns: Sequence[Column], name: str) -> bool:
    """Return whether a column's type is, or contains, a type of this name."""
    return any(name in _names(parse_type(column.type)) for column in columns)


def _field(column: Column) -> dict[str, Any]:
    kind = parse_type(column.type)
    if unknown := sorted(_names(kind) - _PRIMITIVES):
        family = unknown[0].split()[0]  # the units of an interval do not matter
        raise UnsupportedError(f"Column {column.name!r}: Delta has no type {family} here; cast it to another type in the query.")
    return Field(column.name, kind, nullable=True, comment=column.comment).as_json()


def _column(field: Mapping[str, Any]) -> Column:
    metadata = field.get("metadata") or {}
    return Column(field["name"], str(type_from_json(field["type"])), field.get("nullable", True), metadata.get("comment"))


def _names(kind: DataType) -> set[str]:
    match kind:
        case Primitive(name):
            return {name}
        case Array(element):
            return _names(element)
        case Map(key, value):
            return _names(key) | _names(value)
        case Struct(fields):
            return set().union(*(_names(field.type) for field in fields))


_T = TypeVar("_T")

NOTHING_YET = "dynamic-tables.no-version-yet"
"""Property of a table that was created before its first version, with a placeholder column because Delta requires one."""


@dataclass(frozen=True, slots=True)
class DeltaFile:
    """One data file of a version.

    ``path`` is the file's URL-encoded path in the log, which identifies it; ``uri`` is its location. ``partition`` has values as
    text, as in the log; ``rows`` is ``None`` when the log has no row count.
    """

    path: str
    uri: str
    partition: Mapping[str, str | None]
    rows: int | None
    bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Protocol:
    """The protocol of readers and writers; ``features`` are listed from reader version 3 and writer version 7 on."""

    reader: int
    writer: int
    reader_features: frozenset[str] = frozenset()
    writer_features: frozenset[str] = frozenset()


class DeltaSnapshot:
    """One version of the table at ``location``; its content is read lazily.

    :ivar version: its number in the log.
    """

    def __init__(self, location: str, table: DeltaTable) -> None:
        self.location = location
        self.version: int = table.version()
        self._table = table

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns, including partition keys at any position.

        :raises UnsupportedError: when a column has a type that Spark does not have.
        """
        return schema_from_json(self.schema)

    @cached_property
    def schema(self) -> str:
        """The schema as stored in the log: Spark's JSON."""
        return str(self._table.schema().to_json())

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """The partition columns of the table."""
        return tuple(self._table.metadata().partition_columns)

    @property
    def id(self) -> str:
        """The unique id of the table, independent of its location."""
        return str(self._table.metadata().id)

    @property
    def comment(self) -> str | None:
        """The description of the table."""
        return self._table.metadata().description

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the table, including Delta's own (``delta.…``)."""
        return dict(self._table.metadata().configuration)

    @property
    def created_ms(self) -> int | None:
        """Creation time of the table, in milliseconds since 1970."""
        return self._table.metadata().created_time

    @property
    def protocol(self) -> Protocol:
        """The protocol that readers and writers must support."""
        told = self._table.protocol()
        return Protocol(
            told.min_reader_version,
            told.min_writer_version,
            frozenset(told.reader_features or ()),
            frozenset(told.writer_features or ()),
        )

    def transaction(self, application: str) -> int | None:
        """The latest number that an application recorded by a ``txn`` action; it survives log cleanup."""
        return self._read(lambda table: table.transaction_version(application))

    @cached_property
    def files(self) -> tuple[DeltaFile, ...]:
        """Every data file of the version."""
        listed = self._read(lambda table: table.get_add_actions(flatten=False))
        columns: dict[str, Any] = {
            name: listed.column(name).to_pylist() if name in listed.schema.names else [None] * listed.num_rows
            for name in _COLUMNS
        }
        keys = self.partition_keys
        return tuple(
            DeltaFile(
                path,
                file_uri(self.location, path),
                {key: _text((values or {}).get(key)) for key in keys},
                rows,
                int(size),
                int(modified),
            )
            for path, size, modified, rows, values in zip(*columns.values(), strict=True)
        )

    def ranges(self, columns: Collection[str]) -> dict[str, dict[str, ColumnRange]]:
        """What the log says about some columns, by names in lower case, of each data file, by its path."""
        known = [each for each in self.columns if each.name.lower() in columns and each.type in _BOUNDED and "." not in each.name]
        listed = self._read(lambda table: table.get_add_actions(flatten=True))

        def values(name: str) -> list[Any]:
            return list(listed.column(name).to_pylist()) if name in listed.schema.names else [None] * listed.num_rows

        ranges: dict[str, dict[str, ColumnRange]] = {path: {} for path in values("path")}
        for each in known:
            told = zip(
                *(values(f"{name}.{each.name}") for name in ("min", "max", "null_count")), values("num_records"), strict=True
            )
            for own, (lower, upper, nulls, rows) in zip(ranges.values(), told, strict=True):
                is_cut = isinstance(upper, str) and len(upper) >= _CUT_AT  # some writers cut it without increasing it
                is_null = nulls is not None and nulls == rows
                own[each.name.lower()] = ColumnRange(
                    lower, None if is_cut else upper, may_have_nulls=nulls != 0, may_have_values=not is_null
                )
        return ranges

    @cached_property
    def hides_rows(self) -> bool:
        """Return whether deletion vectors delete rows of its files; True also when that cannot be determined."""
        from deltalake.exceptions import DeltaError

        if "deletionVectors" not in self.protocol.reader_features:
            return False
        try:
            return any(batch.num_rows for batch in self._table.deletion_vectors())
        except DeltaError:
            return True

    def _read(self, read: Callable[[DeltaTable], _T]) -> _T:
        """Read from the log by delta-rs; when the log was cleaned up meanwhile, reopen the same version and retry."""
        from deltalake.exceptions import DeltaError

        with _reading(self.location):
            try:
                return read(self._table)
            except DeltaError:
                self._table = _opened(self.location, self.version)
                return read(self._table)

    def create_checkpoint(self) -> None:
        """Write a checkpoint of this version, so that readers need not replay the log from its beginning."""
        with _reading(self.location):
            self._table.create_checkpoint()


_COLUMNS = ("path", "size_bytes", "modification_time", "num_records", "partition")

_BOUNDED = frozenset({"string", "date", "tinyint", "smallint", "int", "bigint", "boolean"})
"""Types whose bounds in the log are exact: JSON numbers may round others, and leave out NaN."""

_CUT_AT = 32
"""Number of characters of a text to which writers cut bounds."""

_SIGNS = frozenset("%#?[]\\|^")
"""Characters in a folder name for which delta-rs 1.6 looks in the wrong place or panics."""

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:/", re.IGNORECASE)


def open_snapshot(location: str, version: int | None = None) -> DeltaSnapshot | None:
    """Open a version of the table at a location, the latest by default; ``None`` when there is no Delta table.

    :param location: a URI without a trailing slash; credentials and endpoint are fsspec's, as for all other files.
    :raises VersionNotFoundError: when that version cannot be reconstructed from the log (any more).
    :raises CatalogUnavailableError: when the log cannot be read, or its latest entry is not complete.
    :raises MissingExtraError: when delta-rs is not installed.
    :raises UnsupportedError: when delta-rs cannot handle the location's name.
    """
    try:
        from deltalake.exceptions import DeltaError
    except ModuleNotFoundError as error:
        raise MissingExtraError("delta") from error

    _check_signs(location)
    if version is None and not DeltaLog(location).exists():
        return None
    try:
        with _reading(location):
            snapshot = DeltaSnapshot(location, _opened(location, version))
    except CatalogUnavailableError as error:
        if version is not None and isinstance(error.__cause__, DeltaError):
            raise VersionNotFoundError(f"Version {version} of the log of {location} cannot be read: {_short(error)}") from error
        raise
    if version is None and not is_object_store(location):  # an object store never shows partial entries
        DeltaLog(location).info(snapshot.version)
    return snapshot


def _opened(location: str, version: int | None, attempts: int = 3) -> DeltaTable:
    """Open a table by delta-rs, retrying when a log cleanup deletes entries between its listing and its reads."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        return DeltaTable(_address(location), version=version, storage_options=storage_options(location))
    except DeltaError:
        if version is not None or attempts == 1:
            raise
        return _opened(location, version, attempts - 1)


def _check_signs(location: str) -> None:
    if sign := next((sign for sign in location if sign in _SIGNS), None):
        raise UnsupportedError(
            f"No Delta table can be in {location}: delta-rs does not find folders with {sign!r} in their names."
        )


def storage_options(location: str) -> dict[str, str]:
    """Options by which delta-rs reaches the store of a location, derived from fsspec's configuration or the environment."""
    system, _ = file_system(location)
    options = next((options for scheme, options in _OPTIONS.items() if scheme in system.protocol), None)
    said = options(system) if options is not None else {}
    return {name: str(value) for name, value in said.items() if value}


def _s3_options(system: FileSystem) -> dict[str, Any]:
    client = dict(system.client_kwargs or {})
    endpoint = system.endpoint_url or client.get("endpoint_url")
    return {
        "aws_endpoint_url": endpoint,
        "aws_access_key_id": system.key or client.get("aws_access_key_id"),
        "aws_secret_access_key": system.secret or client.get("aws_secret_access_key"),
        "aws_session_token": system.token or client.get("aws_session_token"),
        "aws_region": client.get("region_name"),
        "aws_skip_signature": "true" if system.anon else None,
        "aws_allow_http": "true" if str(endpoint or "http:").startswith("http:") else None,
    }


def _gcs_options(system: FileSystem) -> dict[str, Any]:
    endpoint = system.storage_options.get("endpoint_url") or os.environ.get("STORAGE_EMULATOR_HOST")
    token = system.storage_options.get("token")
    return {
        "google_base_url": endpoint,
        "google_service_account": token if isinstance(token, str) and token.endswith(".json") else None,
        "google_skip_signature": "true" if endpoint or token == "anon" else None,
        "allow_http": "true" if str(endpoint).startswith("http:") else None,
    }


def _azure_options(system: FileSystem) -> dict[str, Any]:
    service = system.service_client
    settings = dict(part.partition("=")[::2] for part in (system.connection_string or "").split(";"))
    return {
        "azure_storage_account_name": service.account_name,
        "azure_storage_endpoint": service.url.rstrip("/"),
        "azure_storage_account_key": system.account_key or settings.get("AccountKey"),
        "azure_storage_sas_token": system.sas_token or settings.get("SharedAccessSignature"),
        "azure_storage_client_id": system.client_id,
        "azure_storage_client_secret": system.client_secret,
        "azure_storage_tenant_id": system.tenant_id,
        "allow_http": "true" if service.url.startswith("http:") else None,
    }


_OPTIONS: Mapping[str, Callable[[FileSystem], dict[str, Any]]] = {"s3": _s3_options, "gs": _gcs_options, "abfs": _azure_options}
"""Options by a protocol of fsspec's file system."""


def _address(location: str) -> str:
    """A location as delta-rs expects it: URL-encoded, because delta-rs decodes addresses."""
    system, path = file_system(location)
    if "file" in system.protocol:
        return path
    host = urlsplit(location).netloc if "hdfs" in system.protocol else ""  # a bucket begins the path
    return f"{location.partition('://')[0]}://{host}{quote(path)}"


@contextmanager
def _reading(location: str) -> Iterator[None]:
    """Convert the errors of reading by delta-rs."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError, ValueError) as error:
        if "catalog-managed" in str(error):
            raise UnsupportedError(
                f"Delta table {location} is managed by a catalog (feature catalogManaged), which alone knows its latest version; "
                "read a copy of it that no catalog manages."
            ) from error
        raise CatalogUnavailableError(f"The log of Delta table {location} cannot be read: {_short(error)}") from error


def _short(error: BaseException) -> str:
    """An error's message with its causes, without the stack trace that delta-rs appends."""
    first, *others = str(error).split("\n")
    causes = [line.partition("\x1b[0m")[2].strip() for line in others if "↳" in line]
    return ": ".join([first.rstrip("."), *causes])


def file_uri(location: str, path: str) -> str:
    """The URI of a file by its path in the log, which is relative to the table or absolute."""
    plain = unquote(path)
    return plain if _SCHEME.match(plain) else f"{location}/{plain}"


def _text(value: Any) -> str | None:
    """A partition value as spelled in the log."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat(sep=" ")
        case date():
            return value.isoformat()
        case bytes():
            return value.decode("latin-1")
    return str(value)


CLUSTERING = "clustering"
"""The feature of tables whose files another engine clusters (``CLUSTER BY``); writers need not do so."""

NO_TIME_ZONE = "timestampNtz"
"""The feature of tables with timestamps without time zone."""

_KNOWN = {
    *(CLUSTERING, NO_TIME_ZONE, "v2Checkpoint", "vacuumProtocolCheck"),
    # What is left when another feature is dropped from a table, and cannot be dropped itself, or not soon.
    *("checkpointProtection", "domainMetadata", "allowColumnDefaults"),
    # These features only permit what properties of the table or its columns enable; those are checked separately.
    *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "identityColumns", "columnMapping"),
}
_NEWEST_READER = 3
_NEWEST_WRITER = 7

_OF_COLUMNS = {
    "delta.invariants": "invariants of its columns",
    "delta.generationExpression": "generated columns",
    "delta.identity.": "identity columns",
    "CURRENT_DEFAULT": "defaults of columns",
}
"""Markers in the schema of a table whose columns have constraints beyond their types."""

_OF_PROPERTIES = {
    "delta.appendOnly": "it may only be appended to",
    "delta.enableChangeDataFeed": "it keeps a change data feed",
    "delta.enableDeletionVectors": "it keeps deletion vectors",
    "delta.enableRowTracking": "it tracks rows",
    "delta.enableInCommitTimestamps": "it keeps timestamps in commits",
    "delta.enableIcebergCompatV1": "it is to be read as Iceberg",
    "delta.enableIcebergCompatV2": "it is to be read as Iceberg",
}


def protected_before(snapshot: DeltaSnapshot) -> int:
    """Return the version before which the log must not be cut off nor checkpointed, because features were dropped; 0 for none."""
    if "checkpointProtection" not in snapshot.protocol.writer_features:
        return 0
    return int(snapshot.properties.get("delta.requireCheckpointProtectionBeforeVersion", snapshot.version))


def why_unwritable(snapshot: DeltaSnapshot) -> str | None:
    """Return why this package must not add or remove files of a table; ``None`` when it is safe."""
    protocol = snapshot.protocol
    if unknown := sorted((protocol.writer_features | protocol.reader_features) - _KNOWN):
        return f"has the feature {unknown[0]}"
    if protocol.writer > _NEWEST_WRITER or protocol.reader > _NEWEST_READER:
        return f"needs readers of version {protocol.reader} and writers of version {protocol.writer}"
    properties = snapshot.properties
    if (mode := properties.get("delta.columnMapping.mode", "none").lower()) != "none":
        return f"maps its columns by {mode} (delta.columnMapping.mode)"
    for name, what in _OF_PROPERTIES.items():
        if properties.get(name, "").lower() == "true":
            return f"has the property {name}: {what}"
    if constraint := next((name for name in properties if name.startswith("delta.constraints.")), None):
        return f"has the constraint {constraint.removeprefix('delta.constraints.')}"
    return next((f"has {what}" for name, what in _OF_COLUMNS.items() if f'"{name}' in snapshot.schema), None)
