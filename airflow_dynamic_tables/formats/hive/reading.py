"""How Spark reads the files of a Hive table without the metastore: format and options."""

from __future__ import annotations

from hive_metastore.ttypes import Table

from airflow_dynamic_tables.clients.metastore.tables import PROVIDER, format_of, is_transactional
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.exceptions import UnsupportedError

_READABLE = ("parquet", "orc", "csv", "json")
_NESTED = ("array<", "map<", "struct<")


def reading(path: ObjectPath, table: Table, columns: tuple[Column, ...]) -> tuple[str, dict[str, str]]:
    """Spark's name of a table's file format, and the options for it.

    :raises UnsupportedError: when the files alone are not the rows of the table, or Spark cannot read them without Hive.
    """
    file_format = format_of(table)
    if table.tableType == "VIRTUAL_VIEW":
        raise UnsupportedError(f"{path} is a view; declare it as a source of format view.")
    if is_transactional(table):
        raise UnsupportedError(f"{path} is a transactional Hive table; only Hive can read its files.")
    if file_format == "text" or (file_format == "csv" and PROVIDER not in (table.parameters or {})):
        if nested := [column.name for column in columns if column.type.startswith(_NESTED)]:
            raise UnsupportedError(f"{path}: column {nested[0]!r} of a text table is nested, which takes Hive to read.")
        return "csv", _text_options(path, table) if file_format == "text" else _csv_options(table)
    if file_format not in _READABLE:
        raise UnsupportedError(f"{path} has the format {file_format}; a hive source has one of {', '.join(_READABLE)} or text.")
    options = table.sd.serdeInfo.parameters or {}
    return file_format, {key: value for key, value in options.items() if key not in ("path", "serialization.format")}


def _text_options(path: ObjectPath, table: Table) -> dict[str, str]:
    """Hive's plain text: a separator, perhaps an escape, no quotes."""
    parameters = table.sd.serdeInfo.parameters or {}
    options = {
        "sep": parameters.get("field.delim", "\x01"),
        "quote": "",
        "escape": parameters.get("escape.delim", ""),
        "nullValue": parameters.get("serialization.null.format", "\\N"),
        "emptyValue": "",
    }
    lines = (table.parameters or {}).get("skip.header.line.count", "0")
    if lines not in ("0", "1"):
        raise UnsupportedError(f"{path} skips {lines} lines of every file; a hive source can skip one.")
    return {**options, "header": "true" if lines == "1" else "false", "enforceSchema": "true"}


def _csv_options(table: Table) -> dict[str, str]:
    """Hive's OpenCSVSerde."""
    parameters = table.sd.serdeInfo.parameters or {}
    header = (table.parameters or {}).get("skip.header.line.count", "0") == "1"
    return {
        "sep": parameters.get("separatorChar", ","),
        "quote": parameters.get("quoteChar", '"'),
        "escape": parameters.get("escapeChar", "\\"),
        "header": "true" if header else "false",
        "enforceSchema": "true",
    }
