"""Types of columns as Hive names them, and the schema as JSON that Spark keeps beside Hive's columns."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.core.tables.type_parsing import parse_type, type_from_json
from airflow_dynamic_tables.core.tables.types import Array, DataType, Field, Map, Primitive, Struct, replace_primitives
from airflow_dynamic_tables.exceptions import UnsupportedError

_CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
"""Key of a column's metadata: the type with its lengths. In Spark's schema itself, char and varchar are strings."""

UNNAMED_SIGNS = ":,<>`"
"""Signs that no name of a field can have in Hive's text of a type, in which names are not quoted."""

_BARE_NAME = re.compile(r"(struct<|,)([^,<:`]+)(?=:)")
"""The name of a field in that text, as Spark looks for it. Earlier releases quoted names there."""

_HIVES_TIMESTAMP = "timestamp with local time zone"


def hive_type(ddl: str) -> str:
    """Hive's name of a Spark type: Hive's ``timestamp`` is one without time zone, and the only one that old ones know.

    :raises UnsupportedError: when the text is no type, or Hive's could not be read any more.
    """
    return _bare(parse_type(ddl))


def _bare(kind: DataType) -> str:
    """The text of a type as Hive and Spark write it for each other: names of fields are not quoted, whatever is in them.

    :raises UnsupportedError: for a name after which such a text cannot be read any more.
    """
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
    """Spark's DDL text of a Hive type; Hive's own name for one that Spark does not have, such as a union."""
    text = name.replace(_HIVES_TIMESTAMP, "timestamp")
    try:
        return str(parse_type(text if "`" in text else _BARE_NAME.sub(r"\1`\2`", text)))
    except UnsupportedError:
        return name


def same_type(one: str, other: str) -> bool:
    """Whether two types in Spark's DDL text are one and the same to Hive."""
    try:
        return hive_type(one).lower() == hive_type(other).lower()
    except UnsupportedError:
        return one == other


def schema_to_json(columns: Sequence[Column]) -> str:
    """Spark's JSON of a schema.

    :raises UnsupportedError: when the text of a type is none.
    """
    return json.dumps({"type": "struct", "fields": [_field(column) for column in columns]})


def schema_from_json(schema: str) -> tuple[Column, ...]:
    """The columns of a schema in Spark's JSON.

    :raises UnsupportedError: for a type that a program defined.
    """
    return tuple(_column(field) for field in json.loads(schema)["fields"])


def _field(column: Column) -> dict[str, Any]:
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
