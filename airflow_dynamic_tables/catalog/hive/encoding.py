"""Tables, dynamic tables and views as a Hive metastore keeps them, and back.

What Hive has a place for stands there, so that every engine reads it: columns, partition keys, location, comment, properties,
the text of a view. The whole value stands beside it as JSON in the parameter ``dynamic-tables.value``. Where the two differ,
somebody else has altered the table, and what Hive says is true.
"""

from __future__ import annotations

import getpass
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from uuid import uuid4

from hive_metastore.ttypes import SerDeInfo, StorageDescriptor, Table

from airflow_dynamic_tables.catalog.encoding import decode, encode
from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDynamicTable, CatalogTable, CatalogView, TableStatistics
from airflow_dynamic_tables.clients.metastore.tables import (
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
    is_transactional,
    joined_parameter,
    location_of,
    partition_keys_of,
    set_columns,
    split_parameter,
)
from airflow_dynamic_tables.core.identifiers import ObjectPath, quote
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.exceptions import UnsupportedError

KIND = "dynamic_tables_kind"
"""Parameter by which dynamic tables are listed; the metastore's filters know neither dash nor dot."""

STATISTICS = {"rows": "numRows", "bytes": "totalSize", "files": "numFiles"}
"""Parameters where Hive and Spark keep the size of a table or partition."""

UNKNOWN = "-1"
"""What stands in these parameters of what nobody has counted."""

_VALUE = f"{PREFIX}value"
_TECHNICAL = {
    *STATISTICS.values(),
    *("EXTERNAL", "comment", "transient_lastDdlTime", "rawDataSize", "COLUMN_STATS_ACCURATE", "numPartitions"),
    *("last_modified_by", "last_modified_time", "DO_NOT_UPDATE_STATS", "bucketing_version", KIND),
}
_TECHNICAL_PREFIXES = (PREFIX, "spark.sql.", "view.")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`]|``)*`(?:\.`(?:[^`]|``)*`)*", re.DOTALL)


def to_hive(catalog: str, path: ObjectPath, table: AnyTable, location: str) -> Table:
    """A new table as the metastore is to have it.

    :param location: where its data are when it does not say itself.
    :raises UnsupportedError: when a Hive table cannot be like that.
    """
    made = Table(tableName=path.name, dbName=path.database, owner=getpass.getuser(), createTime=0, lastAccessTime=0, retention=0)
    made.parameters, made.partitionKeys = {}, []
    if isinstance(table, CatalogView):
        made.tableType = "VIRTUAL_VIEW"
        made.sd = StorageDescriptor(cols=[], serdeInfo=SerDeInfo(None, None, {}), numBuckets=-1, parameters={})
        made.sd.bucketCols = made.sd.sortCols = []
    else:
        made.tableType = "EXTERNAL_TABLE"  # nobody but us moves or deletes its files
        made.sd = descriptor(table.format, table.location or location)
        made.parameters = {"EXTERNAL": "TRUE", **({} if table.format in STORAGES else {PROVIDER: table.format})}
    update(catalog, made, table)
    return made


def update(catalog: str, found: Table, table: AnyTable) -> None:
    """Change a table of the metastore into that value; what others keep in its parameters stays.

    :raises UnsupportedError: when a Hive table cannot be like that.
    """
    kept = {key: value for key, value in (found.parameters or {}).items() if is_technical(key) and not key.startswith(_VALUE)}
    if taken := sorted(filter(is_technical, table.properties)):
        raise UnsupportedError(f"A Hive table uses the property {taken[0]} itself; give yours another name.")
    value = encode(table)
    found.parameters = {
        **kept,
        **table.properties,
        **split_parameter(_VALUE, json.dumps(value, sort_keys=True)),
        KIND: value["kind"],
        REVISION: uuid4().hex,
    }
    found.parameters.pop("comment", None)
    if table.comment is not None:
        found.parameters["comment"] = table.comment
    if isinstance(table, CatalogView):
        set_columns(found, table.columns, ())
        found.viewOriginalText, found.viewExpandedText = table.original_query, _for_spark(catalog, table.expanded_query)
    else:
        _update_storage(found, table)


def adopted(catalog: str, path: ObjectPath, found: Table, table: CatalogDynamicTable) -> None:
    """Make a dynamic table of a table of the metastore, with the rows it has.

    :raises UnsupportedError: when its files cannot be replaced by files that Spark writes for a Hive table.
    """
    parameters, keys = found.parameters or {}, partition_keys_of(found)
    serde = found.sd.serdeInfo.serializationLib if found.sd.serdeInfo else None
    obstacles = {
        "it is a view": found.tableType == "VIRTUAL_VIEW",
        f"its format is {format_of(found)} and not {table.format}": format_of(found) != table.format,
        "Hive cannot read its files": table.format not in STORAGES or serde != STORAGES[table.format].serde,
        f"its partition keys are {keys or 'none'} and not {table.partition_keys or 'none'}": keys != table.partition_keys,
        "it is transactional": is_transactional(found),
        "its files are in buckets": bool(found.sd.bucketCols) or f"{SCHEMA}.numBuckets" in parameters,
        "Spark alone knows its partitions": bool(keys) and not found.partitionKeys,
    }
    if reasons := [reason for reason, stands in obstacles.items() if stands]:
        raise UnsupportedError(f"{path} in catalog {catalog} cannot be adopted: {reasons[0]}.")
    # Spark would look for the files of a table of its own where they were.
    found.parameters = {key: value for key, value in parameters.items() if key not in (PROVIDER, "spark.sql.partitionProvider")}
    found.parameters["EXTERNAL"], found.tableType = "TRUE", "EXTERNAL_TABLE"
    (found.sd.serdeInfo.parameters or {}).pop("path", None)
    properties = {key: value for key, value in found.parameters.items() if not is_technical(key)}
    comment = table.comment or found.parameters.get("comment")
    update(catalog, found, replace(table, columns=columns_of(found), comment=comment, properties=properties))


def from_hive(catalog: str, found: Table) -> AnyTable:
    """The value that a table of the metastore is."""
    parameters = found.parameters or {}
    properties = {key: value for key, value in parameters.items() if not is_technical(key)}
    comment = parameters.get("comment")
    text = joined_parameter(parameters, _VALUE)
    stored = decode(**json.loads(text)) if text is not None else None
    if found.tableType == "VIRTUAL_VIEW":
        return _view(catalog, found, stored, properties, comment)
    if not isinstance(stored, CatalogTable | CatalogDynamicTable):
        return CatalogTable(
            columns=columns_of(found),
            comment=comment,
            partition_keys=partition_keys_of(found),
            format=format_of(found),
            location=location_of(found),
            options=_foreign_options(found),
            properties=properties,
        )
    snapshot = parameters.get(SNAPSHOT)
    known = replace(
        stored,
        columns=_columns(found, stored),
        comment=comment,
        location=location_of(found) if snapshot is not None else _location(found, stored.location),
        properties=properties,
    )
    return replace(known, snapshot=snapshot) if isinstance(known, CatalogDynamicTable) else known


def is_technical(key: str) -> bool:
    """Whether a parameter is Hive's, Spark's or this package's own, and no property of the user."""
    return key in _TECHNICAL or key.startswith(_TECHNICAL_PREFIXES)


def statistics_of(parameters: Mapping[str, str]) -> TableStatistics:
    """Size of a table or partition, from the parameters where Hive and Spark keep it."""
    known = {field: int(parameters[name]) for field, name in STATISTICS.items() if parameters.get(name, UNKNOWN) != UNKNOWN}
    return TableStatistics(**known)


def set_statistics(parameters: dict[str, str], statistics: TableStatistics) -> None:
    """Write a size into the parameters of a table or partition."""
    for field, name in STATISTICS.items():
        value = getattr(statistics, field)
        parameters.pop(name, None)
        if value is not None:
            parameters[name] = str(value)


def _update_storage(found: Table, table: CatalogTable | CatalogDynamicTable) -> None:
    if SNAPSHOT in found.parameters and isinstance(table, CatalogDynamicTable):
        return  # columns and location are now the commits' affair; what the caller read may be older than the last one
    location = table.location or found.sd.location
    if format_of(found) != table.format:
        columns, found.sd = found.sd.cols, descriptor(table.format, location)
        found.sd.cols = columns
        found.parameters.pop(PROVIDER, None)
        if table.format not in STORAGES:
            found.parameters[PROVIDER] = table.format
    if isinstance(table, CatalogTable):  # every reader needs its options; those of a dynamic table are its refreshes' own
        found.sd.serdeInfo.parameters = {"serialization.format": "1", **table.options}
    if PROVIDER in found.parameters and location:
        found.sd.serdeInfo.parameters["path"] = location
    found.sd.location = location
    if (table.columns, table.partition_keys) != (columns_of(found), partition_keys_of(found)):
        set_columns(found, table.columns, table.partition_keys)


def _view(catalog: str, found: Table, stored: AnyTable | None, properties: Mapping[str, str], comment: str | None) -> CatalogView:
    original, expanded = found.viewOriginalText or "", found.viewExpandedText or found.viewOriginalText or ""
    if isinstance(stored, CatalogView):
        as_written = stored.original_query == original and _for_spark(catalog, stored.expanded_query) == expanded
        if as_written:
            return replace(stored, properties=properties, comment=comment)
    return CatalogView(original, expanded, columns_of(found), comment, properties)


def _columns(found: Table, stored: CatalogTable | CatalogDynamicTable) -> tuple[Column, ...]:
    """The stored columns, in their own order, as long as the metastore's are the same."""
    expected = Table(parameters={}, sd=StorageDescriptor())
    set_columns(expected, stored.columns, stored.partition_keys)
    same = expected.sd.cols == (found.sd.cols or []) and expected.partitionKeys == (found.partitionKeys or [])
    return stored.columns if same else columns_of(found)


def _location(found: Table, stored: str | None) -> str | None:
    """The location as it was given; ``None`` while it is the one that the catalog chose."""
    place = location_of(found)
    return stored if stored is None or (place and file_uri(stored) == place) else place


def _foreign_options(found: Table) -> dict[str, str]:
    parameters = found.sd.serdeInfo.parameters or {}
    return {key: value for key, value in parameters.items() if key not in ("path", "serialization.format")}


def _for_spark(catalog: str, query: str) -> str:
    """The text of a view without the name of this catalog, which no other engine knows."""
    prefix = f"{quote(catalog)}."

    def without(match: re.Match[str]) -> str:
        text = match[0]
        return text.removeprefix(prefix) if text.startswith(prefix) and text.count("`.`") >= 2 else text

    return _QUOTED.sub(without, query)
