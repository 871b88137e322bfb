"""PostgreSQL's types as Spark's JDBC reader reads them (source: ``PostgresDialect`` of Spark 4.2)."""

from __future__ import annotations

import re

_FORMATTED = re.compile(r"(?P<name>[^(\[]+?)\s*(?:\((?P<arguments>[\d,]+)\))?(?P<zone> with(?:out)? time zone)?(?P<array>\[\])*")
_MAX_PRECISION = 38
_UNBOUNDED = "decimal(38,18)"
_SPARK = {
    "boolean": "boolean",
    "smallint": "smallint",
    "integer": "int",
    "bigint": "bigint",
    "real": "float",
    "double precision": "double",
    "date": "date",
    "time": "timestamp",
    "timestamp": "timestamp",
    "bytea": "binary",
    "oid": "decimal(20,0)",
}


def spark_type(formatted: str) -> str:
    """Spark's DDL of a type as ``format_type`` writes it, e.g. ``numeric(10,2)[]``; what Spark has no type for is a string."""
    match = _FORMATTED.fullmatch(formatted)
    if match is None:
        return "string"
    name, arguments = match["name"].removesuffix(" with time zone").removesuffix(" without time zone"), match["arguments"]
    if name == "numeric":
        kind = _decimal(arguments)
    elif name == "bit":
        kind = "boolean" if arguments in (None, "1") else "binary"
    else:
        kind = _SPARK.get(name, "string")
    return f"array<{kind}>" if match["array"] else kind


def _decimal(arguments: str | None) -> str:
    if arguments is None:
        return _UNBOUNDED
    precision, scale = map(int, arguments.split(","))
    if precision > _MAX_PRECISION:
        precision, scale = _MAX_PRECISION, max(0, scale - (precision - _MAX_PRECISION))
    return f"decimal({precision},{scale})"
