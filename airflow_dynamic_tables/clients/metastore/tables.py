"""Hive tables as the metastore has them: storage by file format, and columns the way Spark keeps them beside Hive's own.

The metastore folds column names to lower case and knows no nullability. Spark therefore repeats the schema as JSON in table
parameters, and uses it as long as it agrees with Hive's columns; so does this module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hive_metastore.ttypes import FieldSchema, SerDeInfo, StorageDescriptor, Table

from airflow_dynamic_tables.clients.metastore.types import hive_type, same_type, schema_from_json, schema_to_json, spark_type
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.exceptions import UnsupportedError

PREFIX = "dynamic-tables."
"""How the names of this package's own parameters begin."""

REVISION = f"{PREFIX}revision"
"""Parameter that every change made by this package gives a new value: what compare-and-swap compares."""

IDENTITY = f"{PREFIX}id"
"""Parameter that is given once and says which table this is, whatever its name and its metastore."""

KIND = "dynamic_tables_kind"
"""Parameter by which dynamic tables are listed; the metastore's filters know neither dash nor dot."""

SNAPSHOT = f"{PREFIX}snapshot"
"""Parameter with the id of the current version; a commit sets it."""

MAX_PARAMETER = 4000
"""Characters of a parameter that every metastore schema can hold."""

SCHEMA = "spark.sql.sources.schema"
"""How the names of the parameters begin in which Spark keeps a schema and its partition keys."""

PROVIDER = "spark.sql.sources.provider"
"""Parameter in which Spark keeps the format of a table that is not ``hive``."""

_KNOWN_BY_LOG = ("delta",)
"""Providers whose tables say themselves what they are like; Hive is told of no column and no partition, as Spark does it."""

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
"""Formats whose tables Hive reads itself. A table of any other format is registered the way Spark registers it."""

_OTHER = Storage(
    "org.apache.hadoop.mapred.SequenceFileInputFormat",
    f"{_HIVE}.ql.io.HiveSequenceFileOutputFormat",
    f"{_HIVE}.serde2.lazy.LazySimpleSerDe",
)

_BY_LOG = Storage("io.delta.hive.DeltaInputFormat", "io.delta.hive.DeltaOutputFormat", _OTHER.serde)
"""What Delta's library for Hive calls them: without it Hive fails.

By the classes of other providers it would find no file where ours lie, and so no row.
"""


def descriptor(file_format: str, location: str | None) -> StorageDescriptor:
    """How a table of a format is stored, without columns."""
    storage = _BY_LOG if file_format in _KNOWN_BY_LOG else STORAGES.get(file_format, _OTHER)
    return StorageDescriptor(
        cols=[],
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


def format_of(table: Table) -> str:
    """The file format of a table: a name that Spark reads (``text`` is Hive's own), or else the name of its Java class."""
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
    """A location with the two slashes more that Hadoop leaves out of ``file:`` URIs."""
    return re.sub(r"^file:/+(?=[^/])", "file:///", location)


def location_of(table: Table) -> str | None:
    """Where the data of a table are: a URI, or ``None`` for a view."""
    place = table.sd.location
    if PROVIDER in (table.parameters or {}):
        place = (table.sd.serdeInfo.parameters or {}).get("path", place)
    return file_uri(place) if place else None


def is_transactional(table: Table) -> bool:
    """Whether only Hive can read the files of a table, for it keeps changed and deleted rows apart."""
    return str((table.parameters or {}).get("transactional", "")).lower() == "true"


def split_parameter(key: str, value: str) -> dict[str, str]:
    """One long parameter as several short ones, the way Spark splits its own."""
    if len(value) <= MAX_PARAMETER:
        return {key: value}
    parts = [value[start : start + MAX_PARAMETER] for start in range(0, len(value), MAX_PARAMETER)]
    return {f"{key}.numParts": str(len(parts)), **{f"{key}.part.{number}": part for number, part in enumerate(parts)}}


def joined_parameter(parameters: Mapping[str, str], key: str) -> str | None:
    """What :func:`split_parameter` split; ``None`` when there is none, or not all of it."""
    if key in parameters:
        return parameters[key]
    numbers = range(int(parameters.get(f"{key}.numParts", 0)))
    parts = [parameters[name] for number in numbers if (name := f"{key}.part.{number}") in parameters]
    return "".join(parts) if parts and len(parts) == len(numbers) else None


def set_columns(table: Table, columns: Sequence[Column], partition_keys: Sequence[str]) -> None:
    """Give a table these columns: Hive's, partition keys last, and Spark's with their case and nullability.

    A partition key that is not among the columns is a string.

    :raises UnsupportedError: for a type or a set of names that the metastore cannot hold.
    """
    by_name = {column.name: column for column in columns}
    keys = [by_name.get(key) or Column(key, "string") for key in partition_keys]
    data = [column for column in columns if column.name not in partition_keys]
    folded = [column.name.lower() for column in (*data, *keys)]
    spark = _spark_parameters([*data, *keys], partition_keys)
    if repeated := sorted({name for name in folded if folded.count(name) > 1}):
        raise UnsupportedError(f"A Hive table cannot have two columns {repeated[0]}: it does not tell cases of letters apart.")
    if (table.parameters or {}).get(PROVIDER) in _KNOWN_BY_LOG:
        data, keys = [], []
    table.sd.cols = [_field(column) for column in data]
    table.partitionKeys = [_field(column) for column in keys]
    others = {key: value for key, value in (table.parameters or {}).items() if not key.startswith(SCHEMA)}
    table.parameters = {**others, **spark}


def has_columns(table: Table, columns: Sequence[Column]) -> bool:
    """Whether a table has these columns, and Hive knows of them."""
    is_forgotten = not table.sd.cols and len(columns) > len(table.partitionKeys or ())
    return tuple(columns) == columns_of(table) and not is_forgotten


def forget_quoted(table: Table) -> bool:
    """Take Hive's columns out of a table when their types have quoted names, as earlier releases wrote them.

    No other engine can open such a table. The metastore refuses to change a type that it cannot read, but not to add columns to
    none. Spark's columns stay, and the next commit gives Hive its own back.

    :return: whether there were any.
    """
    is_quoted = any("`" in field.type for field in table.sd.cols or ())
    if is_quoted:
        table.sd.cols = []
    return is_quoted


def columns_of(table: Table) -> tuple[Column, ...]:
    """The columns of a table, partition keys last; as Spark knows them where that is the same."""
    fields = [*(table.sd.cols or ()), *(table.partitionKeys or ())]
    native = tuple(Column(field.name, spark_type(field.type), comment=field.comment or None) for field in fields)
    schema = joined_parameter(table.parameters or {}, SCHEMA)
    known = schema_from_json(schema) if schema is not None else native
    is_datasource = format_of(table) not in STORAGES and PROVIDER in (table.parameters or {})
    is_forgotten = not table.sd.cols and len(known) > len(native)  # see forget_quoted
    return known if is_datasource or is_forgotten or _same(known, native) else native


def partition_keys_of(table: Table) -> tuple[str, ...]:
    """The partition keys of a table, spelled as its columns are."""
    parameters = table.parameters or {}
    if not table.partitionKeys and PROVIDER in parameters:
        numbers = range(int(parameters.get(f"{SCHEMA}.numPartCols", 0)))
        return tuple(parameters[f"{SCHEMA}.partCol.{number}"] for number in numbers)
    spelled = {column.name.lower(): column.name for column in columns_of(table)}
    return tuple(spelled.get(field.name, field.name) for field in table.partitionKeys or ())


def _field(column: Column) -> FieldSchema:
    return FieldSchema(column.name.lower(), hive_type(column.type), column.comment)


def _same(known: Sequence[Column], native: Sequence[Column]) -> bool:
    """Whether Spark's columns are Hive's, but for what Hive cannot hold."""
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
