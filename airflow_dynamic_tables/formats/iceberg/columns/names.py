"""Whether the files of an Iceberg table can be read by the names of their columns, which Iceberg itself knows by numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.utils.concurrent import ExecutorFactory

from airflow_dynamic_tables.clients.object_stores import as_os_errors

if TYPE_CHECKING:
    import pyarrow as pa


def unreadable_by_name(table: Table) -> str | None:
    """Why the table's files cannot be read by the names of their columns; ``None`` when they can."""
    names: dict[int, str | None] = {}
    ids: dict[str | None, int] = {}
    for schema in table.schemas().values():
        for field_id in schema.field_ids:
            name = schema.find_column_name(field_id)
            if names.setdefault(field_id, name) != name:
                return f"had column {names[field_id]} renamed"
            if ids.setdefault(name, field_id) != field_id:
                return f"had column {name} dropped and made anew"
            if schema.find_field(field_id).initial_default is not None:
                return f"has a default for column {name}"
    return None


def knows_all_schemas(table: Table) -> bool:
    """Whether the metadata has every schema that the table ever had: their ids are counted from 0."""
    known = table.schemas()
    return len(known) > max(known)


def unreadable_in_files(table: Table, files: Sequence[DataFile]) -> str | None:
    """Why these Parquet files cannot be read by the names of their columns; ``None`` when they can.

    Only the files know that once another engine took schemas out of the metadata, as it may when it expires snapshots.
    """
    if knows_all_schemas(table):
        return None
    schema = table.schema()
    read = ExecutorFactory.get_or_create().map(lambda file: _columns(table.io, file.file_path), files)
    return next((why for file in read for name, number in file if (why := _problem(schema, name, number))), None)


def _problem(schema: Schema, name: str, number: int | None) -> str | None:
    """Why a column of a file cannot be read by its name; ``number`` is its field id, which our own files do not say."""
    current = schema.find_column_name(number) if number is not None else name
    if number is not None and current is None and name in schema.column_names:
        return f"had column {name} dropped and made anew"
    if number is None and name not in schema.column_names:
        return f"had column {name} renamed or dropped"
    return f"had column {name} renamed" if current not in (None, name) else None


@as_os_errors()
def _columns(io: FileIO, path: str) -> list[tuple[str, int | None]]:
    """Names of the columns of a file, and their field ids."""
    import pyarrow.parquet as pq  # for which nobody waits who only looks at tables

    with io.new_input(path).open() as stream:
        schema = pq.read_schema(stream)
    return [numbered for field in schema for numbered in _numbered(field.name, field)]


def _numbered(name: str, field: pa.Field) -> Iterator[tuple[str, int | None]]:
    """A column and its parts, by names as Iceberg has them."""
    number = (field.metadata or {}).get(b"PARQUET:field_id")
    yield name, int(number) if number is not None else None
    for part, inner in _parts(field.type):
        yield from _numbered(f"{name}.{part}", inner)


def _parts(kind: pa.DataType) -> list[tuple[str, pa.Field]]:
    import pyarrow as pa

    match kind:
        case pa.StructType():
            return [(field.name, field) for field in kind]
        case pa.ListType() | pa.LargeListType() | pa.FixedSizeListType():  # large ones are PyIceberg's own
            return [("element", kind.value_field)]
        case pa.MapType():
            return [("key", kind.key_field), ("value", kind.item_field)]
    return []
