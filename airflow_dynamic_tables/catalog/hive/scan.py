"""How Spark reads the files of a Hive table without the metastore: format, options, columns, and the folder of each partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hive_metastore.ttypes import Partition, Table

from airflow_dynamic_tables.catalog.hive.encoding import location_of
from airflow_dynamic_tables.clients.metastore.tables import (
    PROVIDER,
    columns_of,
    file_uri,
    format_of,
    partition_keys_of,
    partition_name,
)
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.exceptions import UnsupportedError

_READABLE = ("parquet", "orc", "csv", "json")
_NESTED = ("array<", "map<", "struct<")


@dataclass(frozen=True, slots=True)
class Folder:
    """Where one partition, or an unpartitioned table, has its files. ``name`` is Hive's name of the partition."""

    location: str
    spec: Mapping[str, str]
    name: str = ""

    @property
    def base(self) -> str | None:
        """The folder below which a partition lies in folders ``key=value``, or ``None``."""
        end = f"/{self.name}"
        return self.location.removesuffix(end) if self.name and self.location.endswith(end) else None


@dataclass(frozen=True, slots=True)
class HiveScan:
    """All that reading a Hive table takes. Partition keys come last among the columns and are not in the files."""

    format: str
    options: Mapping[str, str]
    columns: tuple[Column, ...]
    partition_keys: tuple[str, ...]
    folders: tuple[Folder, ...]


def scanned(path: ObjectPath, table: Table, load_partitions: Callable[[Table], list[Partition]]) -> HiveScan:
    """How to read a table as files.

    :param load_partitions: its partitions; asked only when it has any.
    :raises UnsupportedError: when the files alone are not the rows of the table, or Spark cannot read them without Hive.
    """
    columns = columns_of(table)
    keys = partition_keys_of(table)
    file_format, options = _reading(path, table, columns)
    if not keys:
        return HiveScan(file_format, options, columns, keys, (Folder(location_of(table) or "", {}),))
    folders = (
        Folder(file_uri(one.sd.location), dict(zip(keys, one.values, strict=True)), partition_name(keys, one.values))
        for one in load_partitions(table)
    )
    return HiveScan(file_format, options, columns, keys, tuple(sorted(folders, key=lambda folder: folder.name)))


def _reading(path: ObjectPath, table: Table, columns: tuple[Column, ...]) -> tuple[str, dict[str, str]]:
    """Spark's name of a table's file format, and the options for it.

    :raises UnsupportedError: when the files alone are not the rows of the table, or Spark cannot read them without Hive.
    """
    parameters = table.parameters or {}
    file_format = format_of(table)
    if table.tableType == "VIRTUAL_VIEW":
        raise UnsupportedError(f"{path} is a view; declare it as a source of format view.")
    if parameters.get("transactional", "").lower() == "true":
        raise UnsupportedError(f"{path} is a transactional Hive table; only Hive can read its files.")
    if file_format == "text" or (file_format == "csv" and PROVIDER not in parameters):
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
