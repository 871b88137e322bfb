"""Conversion of tables, dynamic tables and views to and from Hive metastore tables.

Values that Hive has a field for are stored there, so that every engine reads them: columns, partition keys, location, comment,
properties, the text of a view. The complete value is also stored as JSON in the parameter ``dynamic-tables.value``. Where the
two differ, another client altered the table, and Hive's fields take precedence.
"""

from __future__ import annotations

import getpass
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

from hive_metastore.ttypes import ColumnStatisticsData, SerDeInfo, StorageDescriptor, Table

from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDynamicTable,
    CatalogTable,
    CatalogView,
    ColumnStatistics,
    TableStatistics,
    decode_text,
    encode,
)
from airflow_dynamic_tables.clients.metastore.tables import (
    IDENTITY,
    KIND,
    PREFIX,
    PROVIDER,
    REVISION,
    SCHEMA,
    SNAPSHOT,
    STORAGES,
    columns_of,
    descriptor,
    file_uri,
    format_of,
    has_storage,
    is_transactional,
    joined_parameter,
    location_of,
    partition_keys_of,
    set_columns,
    split_parameter,
)
from airflow_dynamic_tables.core.identifiers import ObjectPath, quote
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import UnsupportedError

STATISTICS = {"rows": "numRows", "bytes": "totalSize", "files": "numFiles"}
"""Parameters in which Hive and Spark store the size of a table or partition."""

UNKNOWN = "-1"
"""Value of these parameters when the size is unknown."""

_VALUE = f"{PREFIX}value"
_TECHNICAL = {
    *STATISTICS.values(),
    *("EXTERNAL", "comment", "transient_lastDdlTime", "rawDataSize", "COLUMN_STATS_ACCURATE", "numPartitions"),
    *("last_modified_by", "last_modified_time", "DO_NOT_UPDATE_STATS", "bucketing_version", KIND),
}
_TECHNICAL_PREFIXES = (PREFIX, "spark.sql.", "view.")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`]|``)*`(?:\.`(?:[^`]|``)*`)*", re.DOTALL)


def to_hive(catalog: str, path: ObjectPath, table: AnyTable, location: str) -> Table:
    """Return a new metastore table.

    :param location: location of the data if the table has none itself.
    :raises UnsupportedError: when Hive does not support such a table.
    """
    new = Table(tableName=path.name, dbName=path.database, owner=getpass.getuser(), createTime=0, lastAccessTime=0, retention=0)
    new.parameters = {}
    new.partitionKeys = []
    if isinstance(table, CatalogView):
        new.tableType = "VIRTUAL_VIEW"
        new.sd = StorageDescriptor(cols=[], serdeInfo=SerDeInfo(None, None, {}), numBuckets=-1, parameters={})
        new.sd.bucketCols = []
        new.sd.sortCols = []
    else:
        new.tableType = "EXTERNAL_TABLE"  # only this package moves or deletes its files
        new.sd = descriptor(table.format, table.location or location)
        new.parameters = {"EXTERNAL": "TRUE", **({} if table.format in STORAGES else {PROVIDER: table.format})}
    update(catalog, new, table)
    return new


def update(catalog: str, hive_table: Table, table: AnyTable) -> None:
    """Update a metastore table to a value; parameters of other clients are kept.

    :raises UnsupportedError: when Hive does not support such a table.
    """
    parameters = hive_table.parameters or {}
    kept = {key: value for key, value in parameters.items() if is_technical(key) and not key.startswith(_VALUE)}
    if taken := sorted(filter(is_technical, table.properties)):
        raise UnsupportedError(f"A Hive table uses the property {taken[0]} itself; give yours another name.")

    value = encode(table)
    hive_table.parameters = {
        **kept,
        **table.properties,
        **split_parameter(_VALUE, json.dumps(value, sort_keys=True)),
        KIND: value["kind"],
        REVISION: uuid4().hex,
        IDENTITY: parameters.get(IDENTITY) or uuid4().hex,
    }
    hive_table.parameters.pop("comment", None)
    if table.comment is not None:
        hive_table.parameters["comment"] = table.comment
    if isinstance(table, CatalogView):
        set_columns(hive_table, table.columns, ())
        hive_table.viewOriginalText = table.original_query
        hive_table.viewExpandedText = _for_spark(catalog, table.expanded_query)
    else:
        _update_storage(hive_table, table)


def adopted(catalog: str, path: ObjectPath, hive_table: Table, table: CatalogDynamicTable) -> None:
    """Convert a metastore table to a dynamic table, keeping its rows.

    :raises UnsupportedError: when its files cannot be replaced by files that Spark writes for a Hive table.
    """
    parameters = hive_table.parameters or {}
    keys = partition_keys_of(hive_table)
    serde = hive_table.sd.serdeInfo.serializationLib if hive_table.sd.serdeInfo else None
    obstacles = {
        "it is a view": hive_table.tableType == "VIRTUAL_VIEW",
        f"its format is {format_of(hive_table)} and not {table.format}": format_of(hive_table) != table.format,
        "Hive cannot read its files": table.format not in STORAGES or serde != STORAGES[table.format].serde,
        f"its partition keys are {keys or 'none'} and not {table.partition_keys or 'none'}": keys != table.partition_keys,
        "it is transactional": is_transactional(hive_table),
        "its files are in buckets": bool(hive_table.sd.bucketCols) or f"{SCHEMA}.numBuckets" in parameters,
        "Spark alone knows its partitions": bool(keys) and not hive_table.partitionKeys,
    }
    if reasons := [reason for reason, stands in obstacles.items() if stands]:
        raise UnsupportedError(f"{path} in catalog {catalog} cannot be adopted: {reasons[0]}.")

    # Spark would look for the files of one of its own tables at the old location.
    of_spark = (PROVIDER, "spark.sql.partitionProvider")
    hive_table.parameters = {key: value for key, value in parameters.items() if key not in of_spark}
    hive_table.parameters["EXTERNAL"] = "TRUE"
    hive_table.tableType = "EXTERNAL_TABLE"
    (hive_table.sd.serdeInfo.parameters or {}).pop("path", None)
    properties = {key: value for key, value in hive_table.parameters.items() if not is_technical(key)}
    comment = table.comment or hive_table.parameters.get("comment")
    update(catalog, hive_table, replace(table, columns=columns_of(hive_table), comment=comment, properties=properties))


def from_hive(catalog: str, hive_table: Table) -> AnyTable:
    """Return the value of a metastore table."""
    parameters = hive_table.parameters or {}
    properties = {key: value for key, value in parameters.items() if not is_technical(key)}
    comment = parameters.get("comment")
    text = joined_parameter(parameters, _VALUE)
    stored = decode_text(text, f"{hive_table.dbName}.{hive_table.tableName}") if text is not None else None
    if hive_table.tableType == "VIRTUAL_VIEW":
        return _view(catalog, hive_table, stored, properties, comment)
    if not isinstance(stored, CatalogTable | CatalogDynamicTable):
        return CatalogTable(
            columns=columns_of(hive_table),
            comment=comment,
            partition_keys=partition_keys_of(hive_table),
            format=format_of(hive_table),
            location=location_of(hive_table),
            options=_foreign_options(hive_table),
            properties=properties,
        )

    snapshot = parameters.get(SNAPSHOT)
    known = replace(
        stored,
        columns=_columns(hive_table, stored),
        comment=comment,
        location=location_of(hive_table) if snapshot is not None else _location(hive_table, stored.location),
        properties=properties,
    )
    if not isinstance(known, CatalogDynamicTable):
        return known
    keys = partition_keys_of(hive_table) if snapshot is not None else known.partition_keys  # no definition
    return replace(known, snapshot=snapshot, partition_keys=keys)


def is_technical(key: str) -> bool:
    """Return whether a parameter belongs to Hive, Spark or this package, not to the user."""
    return key in _TECHNICAL or key.startswith(_TECHNICAL_PREFIXES)


def statistics_of(parameters: Mapping[str, str]) -> TableStatistics:
    """Return the size of a table or partition from the parameters in which Hive and Spark store it."""
    known = {field: int(parameters[name]) for field, name in STATISTICS.items() if parameters.get(name, UNKNOWN) != UNKNOWN}
    return TableStatistics(**known)


def set_statistics(parameters: dict[str, str], statistics: TableStatistics) -> None:
    """Write a size into the parameters of a table or partition."""
    for field, name in STATISTICS.items():
        value = getattr(statistics, field)
        parameters.pop(name, None)
        if value is not None:
            parameters[name] = str(value)


def _update_storage(hive_table: Table, table: CatalogTable | CatalogDynamicTable) -> None:
    if SNAPSHOT in hive_table.parameters and isinstance(table, CatalogDynamicTable):
        return  # commits own columns and location; those that the caller read may be outdated
    location = table.location or hive_table.sd.location
    if not has_storage(hive_table, table.format):
        columns = hive_table.sd.cols
        hive_table.sd = descriptor(table.format, location)
        hive_table.sd.cols = columns or hive_table.sd.cols
        hive_table.parameters.pop(PROVIDER, None)
        if table.format not in STORAGES:
            hive_table.parameters[PROVIDER] = table.format
    if isinstance(table, CatalogTable):  # readers need its options; options of a dynamic table are for its refreshes only
        hive_table.sd.serdeInfo.parameters = {"serialization.format": "1", **table.options}
    if PROVIDER in hive_table.parameters and location:
        hive_table.sd.serdeInfo.parameters["path"] = location
    hive_table.sd.location = location
    if (table.columns, table.partition_keys) != (columns_of(hive_table), partition_keys_of(hive_table)):
        set_columns(hive_table, table.columns, table.partition_keys)


def _view(
    catalog: str, hive_table: Table, stored: AnyTable | None, properties: Mapping[str, str], comment: str | None
) -> CatalogView:
    original = hive_table.viewOriginalText or ""
    expanded = hive_table.viewExpandedText or original
    if isinstance(stored, CatalogView):
        as_written = stored.original_query == original and _for_spark(catalog, stored.expanded_query) == expanded
        if as_written:
            return replace(stored, properties=properties, comment=comment)
    return CatalogView(original, expanded, columns_of(hive_table), comment, properties)


def _columns(hive_table: Table, stored: CatalogTable | CatalogDynamicTable) -> tuple[Column, ...]:
    """Return the stored columns, in their own order, as long as they equal the metastore's."""
    expected = Table(parameters={}, sd=StorageDescriptor())
    set_columns(expected, stored.columns, stored.partition_keys)
    same = expected.sd.cols == (hive_table.sd.cols or []) and expected.partitionKeys == (hive_table.partitionKeys or [])
    return stored.columns if same else columns_of(hive_table)


def _location(hive_table: Table, stored: str | None) -> str | None:
    """Return the location as declared; ``None`` while it is the one that the catalog chose."""
    place = location_of(hive_table)
    return stored if stored is None or (place and file_uri(stored) == place) else place


def _foreign_options(hive_table: Table) -> dict[str, str]:
    parameters = hive_table.sd.serdeInfo.parameters or {}
    return {key: value for key, value in parameters.items() if key not in ("path", "serialization.format")}


def _for_spark(catalog: str, query: str) -> str:
    """Return the text of a view without the name of this catalog, which is unknown to other engines."""
    prefix = f"{quote(catalog)}."

    def without(match: re.Match[str]) -> str:
        text = match[0]
        return text.removeprefix(prefix) if text.startswith(prefix) and text.count("`.`") >= 2 else text

    return _QUOTED.sub(without, query)


_TEXTS: Mapping[str, Callable[[Any], str]] = {
    "longStats": str,
    "doubleStats": str,
    "decimalStats": lambda value: str(Decimal(int.from_bytes(value.unscaled, "big", signed=True)).scaleb(-value.scale)),
    "dateStats": lambda value: str(date(1970, 1, 1) + timedelta(days=value.daysSinceEpoch)),
}
"""Conversion of minimum and maximum to text, by field of Thrift's union; other fields have none."""


def column_statistics_of(data: ColumnStatisticsData) -> ColumnStatistics:
    """Return the statistics that Hive stores for a column; -1 is an unknown number."""
    field, stored = next((name, value) for name, value in vars(data).items() if value is not None)

    def count(name: str) -> int | None:
        number: int | None = getattr(stored, name, None)
        return None if number == -1 else number

    def bound(name: str) -> str | None:
        value = getattr(stored, name, None)
        return None if value is None or field not in _TEXTS else _TEXTS[field](value)

    return ColumnStatistics(count("numNulls"), count("numDVs"), bound("lowValue"), bound("highValue"))
