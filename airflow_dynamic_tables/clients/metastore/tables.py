"""Tables of a Hive metastore: Hive's column types, Spark's JSON schema stored beside them, and storage formats."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hive_metastore.ttypes import FieldSchema, SerDeInfo, StorageDescriptor, Table

from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.types import (
    Array,
    DataType,
    Field,
    Map,
    Primitive,
    Struct,
    parse_type,
    replace_primitives,
    type_from_json,
)
from airflow_dynamic_tables.exceptions import UnsupportedError

_CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
"""Key of a column's metadata with the type including its length. In Spark's schema itself, char and varchar are strings."""

UNNAMED_SIGNS = ":,<>`"
"""Characters that a nested field's name cannot contain, because Hive's type strings do not quote names."""

_BARE_NAME = re.compile(r"(struct<|,)([^,<:`]+)(?=:)")
"""A field name in a type string, as Spark finds it. Earlier releases of this package quoted names there."""

_HIVES_TIMESTAMP = "timestamp with local time zone"


def hive_type(ddl: str) -> str:
    """Hive's name of a Spark type; Hive's ``timestamp`` has no time zone and is the only timestamp type of old releases.

    :raises UnsupportedError: when the text is not a type, or Hive's type string could not be parsed again.
    """
    return _bare(parse_type(ddl))


def _bare(kind: DataType) -> str:
    """The type string that Hive and Spark exchange: field names are never quoted."""
    match kind:
        case Primitive(name):
            return "timestamp" if name == "timestamp_ntz" else str(kind)
        case Array(element):
            return f"array<{_bare(element)}>"
        case Map(key, value):
            return f"map<{_bare(key)},{_bare(value)}>"
        case Struct(fields):
            return f"struct<{','.join(f'{_bare_name(field.name)}:{_bare(field.type)}' for field in fields)}>"


def _bare_name(name: str) -> str:
    if not name or any(sign in name for sign in UNNAMED_SIGNS):
        signs = " ".join(UNNAMED_SIGNS)
        message = f"A Hive table cannot have a nested field {name!r}: a name is not empty and has none of the signs {signs}."
        raise UnsupportedError(message)
    return name


def spark_type(name: str) -> str:
    """Spark's DDL text of a Hive type; Hive's own name for a type that Spark does not have, such as a union."""
    text = name.replace(_HIVES_TIMESTAMP, "timestamp")
    try:
        return str(parse_type(text if "`" in text else _BARE_NAME.sub(r"\1`\2`", text)))
    except UnsupportedError:
        return name


def same_type(one: str, other: str) -> bool:
    """Return whether two types in Spark's DDL text are the same type in Hive."""
    try:
        return hive_type(one).lower() == hive_type(other).lower()
    except UnsupportedError:
        return one == other


def schema_to_json(columns: Sequence[Column]) -> str:
    """Spark's JSON of a schema.

    :raises UnsupportedError: when the text of a type is invalid.
    """
    return json.dumps({"type": "struct", "fields": [_json_field(column) for column in columns]})


def schema_from_json(schema: str) -> tuple[Column, ...]:
    """The columns of a schema in Spark's JSON.

    :raises UnsupportedError: for a user-defined type.
    """
    return tuple(_column(field) for field in json.loads(schema)["fields"])


def _json_field(column: Column) -> dict[str, Any]:
    kind = parse_type(column.type)
    stored = replace_primitives(kind, lambda part: Primitive("string") if part.name in ("char", "varchar") else part)
    value = Field(column.name, stored, column.nullable, column.comment).as_json()
    if stored != kind:
        value["metadata"][_CHAR_TYPE] = column.type
    return value


def _column(field: Mapping[str, Any]) -> Column:
    metadata = field.get("metadata", {})
    ddl = metadata.get(_CHAR_TYPE) or str(type_from_json(field["type"]))
    return Column(field["name"], ddl, field.get("nullable", True), metadata.get("comment"))


PREFIX = "dynamic-tables."
"""Prefix of this package's own parameters."""

REVISION = f"{PREFIX}revision"
"""Parameter that every change by this package sets to a new value, for compare-and-swap."""

IDENTITY = f"{PREFIX}id"
"""Parameter with the table's permanent identity, independent of its name and metastore."""

KIND = "dynamic_tables_kind"
"""Parameter by which dynamic tables are listed; the metastore's filters support neither dashes nor dots."""

SNAPSHOT = f"{PREFIX}snapshot"
"""Parameter with the id of the current version; set by a commit."""

MAX_PARAMETER = 4000
"""Maximum characters of a parameter in every metastore schema."""

SCHEMA = "spark.sql.sources.schema"
"""Prefix of the parameters in which Spark stores a schema and its partition keys."""

PROVIDER = "spark.sql.sources.provider"
"""Parameter in which Spark stores the format of a non-``hive`` table."""

_KNOWN_BY_LOG = ("delta",)
"""Providers whose tables store their own schema; as in Spark, Hive's columns and partition keys stay empty."""

_HIVE = "org.apache.hadoop.hive"


@dataclass(frozen=True, slots=True)
class Storage:
    """How Hive reads and writes a file format: three Java classes."""

    input_format: str
    output_format: str
    serde: str


STORAGES: Mapping[str, Storage] = {
    "parquet": Storage(
        f"{_HIVE}.ql.io.parquet.MapredParquetInputFormat",
        f"{_HIVE}.ql.io.parquet.MapredParquetOutputFormat",
        f"{_HIVE}.ql.io.parquet.serde.ParquetHiveSerDe",
    ),
    "orc": Storage(f"{_HIVE}.ql.io.orc.OrcInputFormat", f"{_HIVE}.ql.io.orc.OrcOutputFormat", f"{_HIVE}.ql.io.orc.OrcSerde"),
}
"""Formats whose tables Hive reads itself. A table of any other format is registered as Spark does it."""

_OTHER = Storage(
    "org.apache.hadoop.mapred.SequenceFileInputFormat",
    f"{_HIVE}.ql.io.HiveSequenceFileOutputFormat",
    f"{_HIVE}.serde2.lazy.LazySimpleSerDe",
)

_BY_LOG = Storage("org.apache.hadoop.mapred.FileInputFormat", "org.apache.hadoop.mapred.FileOutputFormat", _OTHER.serde)
"""Abstract classes, as in tables of Iceberg's library: Spark can alter such a table, and Hive fails to read it.

With the classes of other providers, Hive would find no files in the table's folder and return no rows. Without classes that
Spark has, it could not alter the table.
"""

_NO_COLUMNS = (FieldSchema("col", "array<string>", "from deserializer"),)
"""Spark's placeholder for columns that only a table's log knows: it alters no table without columns."""

_FORMER_DELTA_CLASS = "io.delta.hive.DeltaInputFormat"
"""Class that Delta tables were registered with before."""


def descriptor(file_format: str, location: str | None) -> StorageDescriptor:
    """The storage descriptor of a table of a format, without columns."""
    storage = _BY_LOG if file_format in _KNOWN_BY_LOG else STORAGES.get(file_format, _OTHER)
    return StorageDescriptor(
        cols=[*_NO_COLUMNS] if file_format in _KNOWN_BY_LOG else [],
        location=location,
        inputFormat=storage.input_format,
        outputFormat=storage.output_format,
        compressed=False,
        numBuckets=-1,
        serdeInfo=SerDeInfo(None, storage.serde, {"serialization.format": "1"}),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )


def has_storage(table: Table, file_format: str) -> bool:
    """Return whether a table is registered as a table of this format."""
    return format_of(table) == file_format and table.sd.inputFormat != _FORMER_DELTA_CLASS


def format_of(table: Table) -> str:
    """The file format of a table: a name that Spark reads (``text`` is Hive's own), otherwise the name of its Java class."""
    parameters = table.parameters or {}
    if parameters.get("table_type", "").upper() == "ICEBERG":
        return "iceberg"
    provider: str = parameters.get(PROVIDER, "hive").lower()
    if provider != "hive":
        return provider
    serde: str = table.sd.serdeInfo.serializationLib or ""
    by_serde = {storage.serde: name for name, storage in STORAGES.items()}
    return by_serde.get(serde) or _TEXT_SERDES.get(serde) or serde


_TEXT_SERDES = {
    f"{_HIVE}.serde2.lazy.LazySimpleSerDe": "text",
    f"{_HIVE}.serde2.OpenCSVSerde": "csv",
    "org.apache.hive.hcatalog.data.JsonSerDe": "json",
    f"{_HIVE}.serde2.JsonSerDe": "json",
}


def file_uri(location: str) -> str:
    """A location with the two slashes that Hadoop omits from ``file:`` URIs."""
    return re.sub(r"^file:/+(?=[^/])", "file:///", location)


def location_of(table: Table) -> str | None:
    """The URI of a table's data; ``None`` for a view."""
    place = table.sd.location
    if PROVIDER in (table.parameters or {}):
        place = (table.sd.serdeInfo.parameters or {}).get("path", place)
    return file_uri(place) if place else None


def is_transactional(table: Table) -> bool:
    """Return whether only Hive can read a table's files, because it stores updated and deleted rows separately."""
    return str((table.parameters or {}).get("transactional", "")).lower() == "true"


def split_parameter(key: str, value: str) -> dict[str, str]:
    """Split a long parameter into several short ones, in the format of Spark's own."""
    if len(value) <= MAX_PARAMETER:
        return {key: value}
    parts = [value[start : start + MAX_PARAMETER] for start in range(0, len(value), MAX_PARAMETER)]
    return {f"{key}.numParts": str(len(parts)), **{f"{key}.part.{number}": part for number, part in enumerate(parts)}}


def joined_parameter(parameters: Mapping[str, str], key: str) -> str | None:
    """Join the parts written by :func:`split_parameter`; ``None`` when any is missing."""
    if key in parameters:
        return parameters[key]
    numbers = range(int(parameters.get(f"{key}.numParts", 0)))
    parts = [parameters[name] for number in numbers if (name := f"{key}.part.{number}") in parameters]
    return "".join(parts) if parts and len(parts) == len(numbers) else None


def set_columns(table: Table, columns: Sequence[Column], partition_keys: Sequence[str]) -> None:
    """Set the columns of a table: Hive's, with partition keys last, and Spark's, with case and nullability.

    A partition key that is not among the columns is a string.

    :raises UnsupportedError: for a type or a set of names that the metastore cannot store.
    """
    by_name = {column.name: column for column in columns}
    keys = [by_name.get(key) or Column(key, "string") for key in partition_keys]
    data = [column for column in columns if column.name not in partition_keys]
    folded = [column.name.lower() for column in (*data, *keys)]
    spark = _spark_parameters([*data, *keys], partition_keys)
    if repeated := sorted({name for name in folded if folded.count(name) > 1}):
        raise UnsupportedError(f"A Hive table cannot have two columns {repeated[0]}: it does not tell cases of letters apart.")
    by_log = (table.parameters or {}).get(PROVIDER) in _KNOWN_BY_LOG
    table.sd.cols = [*_NO_COLUMNS] if by_log else [_field(column) for column in data]
    table.partitionKeys = [] if by_log else [_field(column) for column in keys]
    others = {key: value for key, value in (table.parameters or {}).items() if not key.startswith(SCHEMA)}
    table.parameters = {**others, **spark}


def has_columns(table: Table, columns: Sequence[Column]) -> bool:
    """Return whether a table has these columns, in Hive's definition, too."""
    is_forgotten = not table.sd.cols and len(columns) > len(table.partitionKeys or ())
    return tuple(columns) == columns_of(table) and not is_forgotten


def forget_quoted(table: Table) -> bool:
    """Remove Hive's columns from a table when their types have quoted names, as earlier releases wrote them.

    No other engine can open such a table. The metastore refuses to change a type that it cannot parse, but allows adding columns
    to an empty list. Spark's columns stay, and the next commit restores Hive's.

    :return: whether columns were removed.
    """
    is_quoted = any("`" in field.type for field in table.sd.cols or ())
    if is_quoted:
        table.sd.cols = []
    return is_quoted


def columns_of(table: Table) -> tuple[Column, ...]:
    """The columns of a table, partition keys last; Spark's definition if it matches Hive's."""
    fields = [*(field for field in table.sd.cols or () if field not in _NO_COLUMNS), *(table.partitionKeys or ())]
    native = tuple(Column(field.name, spark_type(field.type), comment=field.comment or None) for field in fields)
    schema = joined_parameter(table.parameters or {}, SCHEMA)
    known = schema_from_json(schema) if schema is not None else native
    is_datasource = format_of(table) not in STORAGES and PROVIDER in (table.parameters or {})
    is_forgotten = not table.sd.cols and len(known) > len(native)  # see forget_quoted
    return known if is_datasource or is_forgotten or _same(known, native) else native


def partition_keys_of(table: Table) -> tuple[str, ...]:
    """The partition keys of a table, in the case of its columns."""
    parameters = table.parameters or {}
    if not table.partitionKeys and PROVIDER in parameters:
        numbers = range(int(parameters.get(f"{SCHEMA}.numPartCols", 0)))
        return tuple(parameters[f"{SCHEMA}.partCol.{number}"] for number in numbers)
    spelled = {column.name.lower(): column.name for column in columns_of(table)}
    return tuple(spelled.get(field.name, field.name) for field in table.partitionKeys or ())


def _field(column: Column) -> FieldSchema:
    return FieldSchema(column.name.lower(), hive_type(column.type), column.comment)


def _same(known: Sequence[Column], native: Sequence[Column]) -> bool:
    """Return whether Spark's columns match Hive's, except for properties that Hive cannot store."""
    return len(known) == len(native) and all(
        column.name.lower() == field.name and same_type(column.type, field.type)
        for column, field in zip(known, native, strict=True)
    )


def _spark_parameters(columns: Sequence[Column], partition_keys: Sequence[str]) -> dict[str, str]:
    schema = split_parameter(SCHEMA, schema_to_json(columns))
    if not partition_keys:
        return schema
    keys = {f"{SCHEMA}.partCol.{number}": key for number, key in enumerate(partition_keys)}
    return {**schema, f"{SCHEMA}.numPartCols": str(len(keys)), **keys}
