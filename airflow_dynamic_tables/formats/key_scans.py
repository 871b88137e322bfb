"""Keys of rows in Parquet files: those of the rows in which two versions of a table differ, and the partitions that have some.

Only the columns that are compared are read, in batches. Values are compared as they are in the files: those that are equal here
are equal for Spark. A difference without an effect, as between 0.0 and -0.0, counts.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date
from decimal import Decimal, InvalidOperation
from itertools import chain, zip_longest
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_dynamic_tables.clients.files import as_os_errors, open_file
from airflow_dynamic_tables.core.partitions import NULL_PARTITION
from airflow_dynamic_tables.core.refresh.key_joins import Key
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, UnsupportedError
from airflow_dynamic_tables.formats.base import KeyScan, ListedFile, ScanLimitError

_MOST_KEYS = 10_000
"""Limit of the changed keys that are looked for."""

_MOST_ROWS = 1_000_000_000
"""Limit of the rows that a scan reads, some of whose columns it decodes: a minute or two."""

_MOST_BYTES = 256 * 1024 * 1024
"""Limit of the memory for rows of one version that the other one does not have."""

_COMPACT_AFTER = 64 * 1024 * 1024
"""Number of bytes of rows after which equal rows of both versions are removed."""

_BATCH = 65_536
_READERS = 8

_TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}

_INTEGERS = ("tinyint", "smallint", "int")

_REBASED = ("org.apache.spark.legacyDateTime", "org.apache.spark.legacyINT96")
"""Keys in the metadata of files whose dates or times Spark converts from another calendar."""


class ArrowKeyScan(KeyScan):
    """A scan by Arrow, in this process."""

    def __init__(self, most_rows: int = _MOST_ROWS, most_keys: int = _MOST_KEYS) -> None:
        self._most_keys = most_keys
        self._most_rows = most_rows
        self._rows = 0
        self._lock = threading.Lock()

    def changed(
        self, before: Collection[ListedFile], after: Collection[ListedFile], types: Mapping[str, str], keys: Sequence[str]
    ) -> set[Key]:
        schema = _schema(types)
        same = set(map(_content, before)) & set(map(_content, after))
        own, others = ([file for file in files if _content(file) not in same] for files in (before, after))
        differing = _Multiset(schema)
        # A rewritten file mostly has the same rows in the same order, so both versions are read in turns.
        for rows, sign in _in_turns(self._all_rows(own, schema), self._all_rows(others, schema)):
            differing.add(rows, sign)
        found = differing.rows().select(list(keys)).drop_null()
        distinct = found.group_by(list(keys), use_threads=False).aggregate([])
        if distinct.num_rows > self._most_keys:
            raise ScanLimitError(f"{distinct.num_rows:,} keys changed, more than {self._most_keys:,}")
        return set(_keys(distinct.select(list(keys))))

    def holding(
        self, files: Collection[ListedFile], types: Mapping[str, str], wanted: Collection[Key]
    ) -> Mapping[Key, frozenset[str]]:
        # An integer of the dimension may be too large for the type of the fact.
        schema = _schema({name: "bigint" if kind in _INTEGERS else kind for name, kind in types.items()})
        columns = [sorted({key[number] for key in wanted}) for number in range(len(schema))]
        found: dict[Key, set[str]] = {key: set() for key in wanted}
        candidates = [file for file in files if all(map(_may_hold, [file] * len(schema), schema.names, columns))]
        with ThreadPoolExecutor(_READERS, thread_name_prefix="keys") as executor:
            futures = [(file, executor.submit(self._keys_in, file, schema, columns)) for file in candidates]
            try:
                for file, future in futures:
                    for key in future.result() & found.keys():
                        found[key].add(file.partition)
            except BaseException:
                executor.shutdown(cancel_futures=True)
                raise
        return {key: frozenset(partitions) for key, partitions in found.items()}

    def _keys_in(self, file: ListedFile, schema: pa.Schema, wanted: Sequence[Sequence[Any]]) -> set[Key]:
        """Return the keys of a file that are among some, with others of which only the single columns are."""
        found: set[Key] = set()
        values = [pa.array(own, kind) for own, kind in zip(wanted, schema.types, strict=True)]
        # Rows that are deleted may count: then a partition is refreshed in vain.
        for rows in self._rows_of(file, schema):
            mask = None
            for number, own in enumerate(values):
                is_in = pc.is_in(rows.column(number), value_set=own, skip_nulls=True)
                mask = is_in if mask is None else pc.and_(mask, is_in)
            matching = rows.filter(mask)
            if matching.num_rows:
                found.update(_keys(matching.group_by(schema.names, use_threads=False).aggregate([]).select(schema.names)))
        return found

    def _all_rows(self, files: Collection[ListedFile], schema: pa.Schema) -> Iterator[pa.Table]:
        for file in files:
            if "" in (file.values.get(name) for name in schema.names):
                raise UnsupportedError(f"partition {file.partition} has an empty value, which may be null")
            position = 0
            for rows in self._rows_of(file, schema):
                yield _without(rows, file.deleted, position)
                position += rows.num_rows

    def _rows_of(self, file: ListedFile, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows of a file, also deleted ones, in batches.

        :raises CatalogUnavailableError: if it cannot be read.
        """
        with _reading(file.uri), open_file(file.uri) as stream:
            parquet = pq.ParquetFile(stream, pre_buffer=False, coerce_int96_timestamp_unit="us")
            self._count(parquet.metadata.num_rows)
            names = _names_in(parquet.schema_arrow, schema, file)
            if not names:
                for size in _sizes(parquet.metadata.num_rows):
                    yield _table(None, size, names, schema, file)
                return
            for batch in parquet.iter_batches(_BATCH, columns=list(names.values()), use_threads=False):
                yield _table(batch, batch.num_rows, names, schema, file)

    def _count(self, rows: int) -> None:
        with self._lock:
            self._rows += rows
            if self._rows > self._most_rows:
                raise ScanLimitError(f"more than {self._most_rows:,} rows would be read")


class _Multiset:
    """Rows of two versions of a table, of which equal ones of both cancel each other out."""

    def __init__(self, schema: pa.Schema) -> None:
        self._names = list(schema.names)
        self._schema = pa.schema([*(pa.field(each.name, _as_bits(each.type)) for each in schema), pa.field(_COUNT, pa.int64())])
        self._tables: list[pa.Table] = []
        self._bytes = 0
        self._limit = _COMPACT_AFTER

    def add(self, rows: pa.Table, count: int) -> None:
        """Add rows of one version, which has a positive count, or the other one, with a negative count."""
        columns = [_bits(column) for column in rows.columns]
        table = pa.table([*columns, pa.repeat(pa.scalar(count, pa.int64()), rows.num_rows)], schema=self._schema)
        self._tables.append(table)
        self._bytes += table.nbytes
        if self._bytes > self._limit:
            self._compact()
            self._limit = self._bytes + _COMPACT_AFTER
            if self._bytes > _MOST_BYTES:
                raise ScanLimitError(f"the changed rows take more than {_MOST_BYTES // 1024 // 1024} MiB")

    def rows(self) -> pa.Table:
        """Return the distinct rows that one version has more often than the other."""
        return self._compact()

    def _compact(self) -> pa.Table:
        whole = pa.concat_tables(self._tables) if self._tables else self._schema.empty_table()
        summed = whole.group_by(self._names, use_threads=False).aggregate([(_COUNT, "sum")])
        differing = summed.filter(pc.not_equal(summed.column(f"{_COUNT}_sum"), 0))
        table = differing.rename_columns([_COUNT if name == f"{_COUNT}_sum" else name for name in differing.column_names])
        self._tables = [table.select(self._schema.names)]
        self._bytes = self._tables[0].nbytes
        return self._tables[0]


_COUNT = "dynamic-tables.count"
"""Name of a column of rows in memory. No column of a table can have it."""


def _content(file: ListedFile) -> tuple[object, ...]:
    """Return the identity of the rows of a file; data files of tables with versions are immutable."""
    return file.uri, file.deleted, tuple(sorted(file.values.items()))


def _in_turns(before: Iterator[pa.Table], after: Iterator[pa.Table]) -> Iterator[tuple[pa.Table, int]]:
    pairs = zip_longest(((rows, -1) for rows in before), ((rows, 1) for rows in after))
    return (each for each in chain.from_iterable(pairs) if each is not None)


def _schema(types: Mapping[str, str]) -> pa.Schema:
    """Return the Arrow types of columns.

    :raises UnsupportedError: if a column has a type that is not compared.
    """
    return pa.schema([(name, _arrow_type(name, kind)) for name, kind in types.items()])


def _arrow_type(name: str, kind: str) -> pa.DataType:
    base, _, arguments = kind.partition("(")
    if base == "decimal" and arguments:
        precision, scale = map(int, arguments.rstrip(")").split(","))
        return pa.decimal128(precision, scale)
    found = _TYPES.get("string" if base in ("char", "varchar") else kind)
    if found is None:
        raise UnsupportedError(f"column {name} has the type {kind}, whose values are not compared")
    return found


def _names_in(found: pa.Schema, schema: pa.Schema, file: ListedFile) -> dict[str, str]:
    """Return the names of columns in a file, by those in lower case; Spark reads missing ones as nulls."""
    names: dict[str, str] = {}
    for name in found.names:
        if name.lower() in schema.names and name.lower() not in file.values:
            if name.lower() in names or "." in name:
                raise UnsupportedError(f"column {name} of {file.uri} is not certain")
            names[name.lower()] = name
    is_of_time = any(pa.types.is_temporal(kind) for kind in schema.types)
    if is_of_time and any(key.encode() in (found.metadata or {}) for key in _REBASED):
        raise UnsupportedError(f"{file.uri} has times of another calendar")
    return names


def _sizes(rows: int) -> Iterator[int]:
    for start in range(0, rows, _BATCH):
        yield min(_BATCH, rows - start)


def _table(batch: pa.RecordBatch | None, size: int, names: Mapping[str, str], schema: pa.Schema, file: ListedFile) -> pa.Table:
    columns = []
    for field in schema:
        if field.name in file.values:
            columns.append(pa.repeat(_value(file.values[field.name], field.type), size))
        elif batch is not None and field.name in names:
            columns.append(_cast(batch.column(names[field.name]), field.type))
        else:
            columns.append(pa.nulls(size, field.type))
    return pa.table(columns, schema=schema)


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if values.type == kind:
        return values
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(values.type) and (values.type.tz is None) != (kind.tz is None):
        raise UnsupportedError("times with and without time zones are mixed")
    return values.cast(kind)


def _value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Return a partition value.

    :raises UnsupportedError: if it is not certain.
    """
    if text is None or text == NULL_PARTITION:
        return pa.scalar(None, kind)
    try:
        if pa.types.is_string(kind):
            return pa.scalar(text, kind)
        if pa.types.is_date(kind):
            return pa.scalar(date.fromisoformat(text), kind)
        if pa.types.is_integer(kind):
            return pa.scalar(int(text), kind)
        if pa.types.is_decimal(kind):
            return pa.scalar(Decimal(text), kind)
        if pa.types.is_boolean(kind) and text in ("true", "false"):
            return pa.scalar(text == "true", kind)
    except (ValueError, InvalidOperation, pa.ArrowException) as error:
        raise UnsupportedError(f"partition value {text} is not of type {kind}") from error
    raise UnsupportedError(f"partition value {text} of type {kind} is not compared")


def _without(rows: pa.Table, deleted: Sequence[int], start: int) -> pa.Table:
    """Return rows without those that are deleted, by their positions in the file, of which these are from ``start`` on."""
    first, last = bisect_left(deleted, start), bisect_left(deleted, start + rows.num_rows)
    if first == last:
        return rows
    gone = {position - start for position in deleted[first:last]}
    return rows.filter(pa.array([number not in gone for number in range(rows.num_rows)]))


def _may_hold(file: ListedFile, column: str, wanted: Sequence[Any]) -> bool:
    """Return whether a file may have one of some values, which are sorted, in a column."""
    if column in file.values:
        return True  # of a partition key; reading the file is cheap
    known = file.ranges.get(column)
    if known is None:
        return True
    if not known.may_have_values:
        return False
    try:
        first = bisect_left(wanted, known.lower) if known.lower is not None else 0
        return first < len(wanted) and (known.upper is None or bool(wanted[first] <= known.upper))
    except TypeError:
        return True  # the bounds are of another type


def _as_bits(kind: pa.DataType) -> pa.DataType:
    return {pa.float32(): pa.int32(), pa.float64(): pa.int64()}.get(kind, kind)


def _bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with floating-point numbers as their bits, of which NaN equals itself."""
    kind = _as_bits(column.type)
    return column if kind == column.type else pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind)


def _keys(rows: pa.Table) -> Iterator[Key]:
    """Return the rows as keys.

    :raises UnsupportedError: if Python has no such values.
    """
    try:
        return zip(*(column.to_pylist() for column in rows.columns), strict=True)
    except (ValueError, OverflowError) as error:
        raise UnsupportedError(f"a key is not read here: {error}") from error


@contextmanager
def _reading(uri: str) -> Iterator[None]:
    try:
        with as_os_errors():
            yield
    except (OSError, pa.ArrowException, OverflowError) as error:
        raise CatalogUnavailableError(f"{uri} cannot be read: {error}") from error
