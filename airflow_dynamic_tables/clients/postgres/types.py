"""PostgreSQL's types as Spark's JDBC reader reads them (source: ``PostgresDialect`` of Spark 4.2)."""

from __future__ import annotations

import re

from airflow_dynamic_tables.core.tables.types import Array, Primitive

_FORMATTED = re.compile(r"(?P<name>[^(\[]+?)\s*(?:\((?P<arguments>[\d,]+)\))?(?P<zone> with(?:out)? time zone)?(?P<array>\[\])*")

_MAX_PRECISION = 38
"""Digits of Spark's longest decimal."""

_UNBOUNDED = (_MAX_PRECISION, 18)
"""Precision and scale of a ``numeric`` without any."""

_TIMES = ("time", "timestamp")

_SPARK = {
    "boolean": "boolean",
    "smallint": "smallint",
    "integer": "int",
    "bigint": "bigint",
    "real": "float",
    "double precision": "double",
    "date": "date",
    "bytea": "binary",
}


def spark_type(formatted: str) -> str:
    """Spark's DDL of a type as ``format_type`` writes it, e.g. ``numeric(10,2)[]``; what Spark has no type for is a string."""
    match = _FORMATTED.fullmatch(formatted)
    if match is None:
        return "string"
    name = match["name"].removesuffix(" with time zone").removesuffix(" without time zone")
    if name in _TIMES:
        kind = Primitive("timestamp" if " with time zone" in formatted else "timestamp_ntz")
    else:
        kind = _primitive(name, match["arguments"])
    return str(Array(kind) if match["array"] else kind)


def without_arguments(formatted: str) -> str:
    """The type of the values, or of the elements of an array, without length and precision."""
    match = _FORMATTED.fullmatch(formatted)
    return formatted if match is None else f"{match['name']}{match['zone'] or ''}"


def is_array(formatted: str) -> bool:
    """Whether a type is that of arrays."""
    return formatted.endswith("[]")


def _primitive(name: str, arguments: str | None) -> Primitive:
    match name:
        case "numeric":
            return Primitive("decimal", _precision_and_scale(arguments))
        case "oid":
            return Primitive("decimal", (20, 0))
        case "bit":
            return Primitive("boolean" if arguments in (None, "1") else "binary")
    return Primitive(_SPARK.get(name, "string"))


def _precision_and_scale(arguments: str | None) -> tuple[int, int]:
    if arguments is None:
        return _UNBOUNDED
    precision, scale = map(int, arguments.split(","))
    excess = max(0, precision - _MAX_PRECISION)
    return precision - excess, max(0, scale - excess)
