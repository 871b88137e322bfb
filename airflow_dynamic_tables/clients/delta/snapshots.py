"""One version of a Delta table: its columns, its files, and what somebody has to know to read or write it. delta-rs reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote

from airflow_dynamic_tables.clients.delta.log import DeltaLog
from airflow_dynamic_tables.clients.delta.types import schema_from_json
from airflow_dynamic_tables.clients.files import file_system
from airflow_dynamic_tables.clients.object_stores import is_object_store
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, MissingExtraError, UnsupportedError, VersionNotFoundError

if TYPE_CHECKING:
    from deltalake import DeltaTable


_T = TypeVar("_T")

NOTHING_YET = "dynamic-tables.no-version-yet"
"""Property of a table that was made before its first version: its column only stands there because there has to be one."""


@dataclass(frozen=True, slots=True)
class DeltaFile:
    """One data file of a version.

    ``path`` is as the log spells it, URL-encoded, which is what tells it from others; ``uri`` is where it is. ``partition`` has
    values as text, as the log does; ``rows`` is ``None`` when nobody counted them.
    """

    path: str
    uri: str
    partition: Mapping[str, str | None]
    rows: int | None
    bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Protocol:
    """What readers and writers have to know; ``features`` are named from reader version 3 and writer version 7 on."""

    reader: int
    writer: int
    reader_features: frozenset[str] = frozenset()
    writer_features: frozenset[str] = frozenset()


class DeltaSnapshot:
    """One version of the table at ``location``; what is asked for is read then.

    :ivar version: its number in the log.
    """

    def __init__(self, location: str, table: DeltaTable) -> None:
        self.location = location
        self.version: int = table.version()
        self._table = table

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns, partition keys among them wherever they stand.

        :raises UnsupportedError: when one has a type that Spark does not have.
        """
        return schema_from_json(self.schema)

    @cached_property
    def schema(self) -> str:
        """The schema as the log has it: Spark's JSON."""
        return str(self._table.schema().to_json())

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """The columns that the table is partitioned by."""
        return tuple(self._table.metadata().partition_columns)

    @property
    def id(self) -> str:
        """What tells the table from any other, wherever it lies."""
        return str(self._table.metadata().id)

    @property
    def comment(self) -> str | None:
        """The description of the table."""
        return self._table.metadata().description

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the table, Delta's own (``delta.…``) among them."""
        return dict(self._table.metadata().configuration)

    @property
    def created_ms(self) -> int | None:
        """When the table was made, in milliseconds since 1970."""
        return self._table.metadata().created_time

    @property
    def protocol(self) -> Protocol:
        """What readers and writers have to know."""
        told = self._table.protocol()
        return Protocol(
            told.min_reader_version,
            told.min_writer_version,
            frozenset(told.reader_features or ()),
            frozenset(told.writer_features or ()),
        )

    def transaction(self, application: str) -> int | None:
        """The last number that an application noted in the table, see the ``txn`` action; it outlives clean-ups of the log."""
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

    @cached_property
    def hides_rows(self) -> bool:
        """Whether rows of its files are deleted by deletion vectors, or that cannot be told."""
        from deltalake.exceptions import DeltaError

        if "deletionVectors" not in self.protocol.reader_features:
            return False
        try:
            return any(batch.num_rows for batch in self._table.deletion_vectors())
        except DeltaError:
            return True

    def _read(self, read: Callable[[DeltaTable], _T]) -> _T:
        """What delta-rs reads in the log only now: when somebody has cut that off since, the same version is opened again."""
        from deltalake.exceptions import DeltaError

        with _reading(self.location):
            try:
                return read(self._table)
            except DeltaError:
                self._table = _opened(self.location, self.version)
                return read(self._table)

    def create_checkpoint(self) -> None:
        """Write a checkpoint of this version, so that its readers need not read the log from its beginning."""
        with _reading(self.location):
            self._table.create_checkpoint()


_COLUMNS = ("path", "size_bytes", "modification_time", "num_records", "partition")

_SIGNS = frozenset("%#?[]\\|^")
"""Signs in the name of a folder for which delta-rs 1.6 looks elsewhere, or panics."""

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:/", re.IGNORECASE)


def open_snapshot(location: str, version: int | None = None) -> DeltaSnapshot | None:
    """A version of the table at a location, the latest by default; ``None`` when there is no Delta table.

    :param location: a URI, without a slash at its end; credentials and endpoint are those that all other files are read with.
    :raises VersionNotFoundError: when the log does not lead to that version (any more).
    :raises CatalogUnavailableError: when the log cannot be read, or its latest entry is not written yet.
    :raises MissingExtraError: when delta-rs is not installed.
    :raises UnsupportedError: when delta-rs looks elsewhere for such a location.
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
    if version is None and not is_object_store(location):  # there, an entry is whole as soon as it is there
        DeltaLog(location).info(snapshot.version)
    return snapshot


def _opened(location: str, version: int | None, attempts: int = 3) -> DeltaTable:
    """What delta-rs opens. It lists the log before it reads it, and meanwhile somebody may cut that off: then it lists again."""
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
    """How delta-rs reaches the store of a location: as fsspec does, by what fsspec's configuration or the environment says."""
    system, _ = file_system(location)
    if "s3" not in system.protocol:
        return {}
    client = dict(system.client_kwargs or {})
    endpoint = system.endpoint_url or client.get("endpoint_url")
    said = {
        "aws_endpoint_url": endpoint,
        "aws_access_key_id": system.key or client.get("aws_access_key_id"),
        "aws_secret_access_key": system.secret or client.get("aws_secret_access_key"),
        "aws_session_token": system.token or client.get("aws_session_token"),
        "aws_region": client.get("region_name"),
        "aws_skip_signature": "true" if system.anon else None,
        "aws_allow_http": "true" if str(endpoint or "http:").startswith("http:") else None,
    }
    return {name: str(value) for name, value in said.items() if value}


def _address(location: str) -> str:
    """A location as delta-rs takes it: it decodes what is in an address, which here is a path as it is."""
    system, path = file_system(location)
    return path if "file" in system.protocol else f"{location.partition('://')[0]}://{quote(path)}"


@contextmanager
def _reading(location: str) -> Iterator[None]:
    """Around everything that delta-rs reads."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError, ValueError) as error:
        raise CatalogUnavailableError(f"The log of Delta table {location} cannot be read: {_short(error)}") from error


def _short(error: BaseException) -> str:
    """What an error says, without the stack that delta-rs hangs on."""
    return str(error).split("\n", 1)[0].rstrip(".")


def file_uri(location: str, path: str) -> str:
    """Where a file is, by its path in the log: relative to the table, or an address of its own."""
    plain = unquote(path)
    return plain if _SCHEME.match(plain) else f"{location}/{plain}"


def _text(value: Any) -> str | None:
    """The value of a partition key as the log spells it."""
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
