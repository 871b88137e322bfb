"""Column types supported by both Spark and the table formats; others are rejected by column name."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own habit
from pyspark.sql import types as T  # noqa: N812

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.types import type_from_json

_KNOWN = (
    T.BooleanType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.StringType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)

_WITHOUT_COLLATION = (
    "Column {column!r} has collation {collations}, which no table keeps: a query of the table compares its texts letter by "
    "letter, unless it says COLLATE again."
)

_NAMING = (T.StringType, T.IntegerType, T.LongType, T.BooleanType, T.DateType)
"""Types of partition keys whose values Spark and Iceberg write as the same text."""


def storable(frame: DataFrame, tell: Callable[[str], None]) -> DataFrame:
    """Convert rows to types that tables support: tinyint and smallint become int, text types become string.

    :param tell: receives a line for each column whose values compare differently in the table than in the query.
    :raises ValueError: names a column of an unsupported type, or a duplicate column name.
    """
    names = [name.lower() for name in frame.columns]
    if repeated := sorted({name for name in frame.columns if names.count(name.lower()) > 1}):
        raise ValueError(f"the query returns more than one column named {repeated[0]!r}; give each a name of its own")
    columns = []
    for field in frame.schema.fields:
        if collations := sorted(_collations(field.dataType)):
            tell(_WITHOUT_COLLATION.format(column=field.name, collations=", ".join(collations)))
        wanted = _storable(field.dataType, field.name)
        column = F.col(quote(field.name))
        columns.append(column if wanted == field.dataType else column.cast(wanted).alias(field.name))
    return frame.select(*columns)


def _collations(kind: T.DataType) -> set[str]:
    match kind:
        case T.StringType() if kind != T.StringType():
            return {kind.collation}
        case T.ArrayType():
            return _collations(kind.elementType)
        case T.MapType():
            return _collations(kind.keyType) | _collations(kind.valueType)
        case T.StructType():
            return {name for field in kind.fields for name in _collations(field.dataType)}
    return set()


def check_partition_key(kind: T.DataType, key: str) -> None:
    """Check that Spark and the table spell a partition key's values in the same way.

    :raises ValueError: names the key when they do not.
    """
    if type(kind) not in _NAMING:
        raise ValueError(f"partition key {key!r} has type {kind.simpleString()}; cast it to string, int or date in the query")


def _storable(kind: T.DataType, column: str) -> T.DataType:
    if isinstance(kind, (T.ByteType, T.ShortType)):
        return T.IntegerType()
    if isinstance(kind, (T.StringType, T.CharType, T.VarcharType)):
        return T.StringType()  # without collation
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_storable(kind.elementType, column), kind.containsNull)
    if isinstance(kind, T.MapType):
        return T.MapType(_storable(kind.keyType, column), _storable(kind.valueType, column), kind.valueContainsNull)
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(f.name, _storable(f.dataType, column), f.nullable) for f in kind.fields])
    if type(kind) in _KNOWN:
        return kind
    raise ValueError(f"column {column!r} has type {kind.simpleString()}, which a table cannot hold; cast it in the query")


def ddl(kind: T.DataType) -> str:
    """Spark's DDL text of a type; names of nested fields are quoted if necessary."""
    return str(type_from_json(kind.jsonValue()))
