"""Tables and dynamic tables as an Iceberg table keeps them in its properties, and back.

What Iceberg has a place for stands there, so that every engine reads it: columns, partition keys, comment, properties. The whole
value stands beside it as JSON in the property ``dynamic-tables.value``. Where the two differ, somebody else has altered the
table, and what Iceberg says is true.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from airflow_dynamic_tables.catalog.iceberg.metadata import as_stored, table_of
from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDynamicTable, CatalogTable, CatalogView, decode_text, encode
from airflow_dynamic_tables.clients.iceberg.keys import are_known, keys_of
from airflow_dynamic_tables.clients.iceberg.placing import LATEST_VERSION
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.formats import DEFAULT_FORMAT
from airflow_dynamic_tables.exceptions import UnsupportedError

_PREFIX = "dynamic-tables."
_VALUE = f"{_PREFIX}value"
_TECHNICAL = ("write.", "commit.", "history.", "gc.", "read.", "schema.", "format-version", "created-at")
"""What the names of properties begin with that tell how to write a table, and are the user's only when he gave them."""


def check_kind(catalog: str, path: ObjectPath, table: AnyTable) -> CatalogTable | CatalogDynamicTable:
    """Refuse what an Iceberg catalog cannot hold.

    :raises UnsupportedError: says why.
    """
    if isinstance(table, CatalogView):
        raise UnsupportedError(f"Catalog {catalog} is an Iceberg catalog, which keeps no views; make {path} in another catalog.")
    if table.format != DEFAULT_FORMAT:
        raise UnsupportedError(
            f"Catalog {catalog} is an Iceberg catalog and keeps no {table.format} tables; {path} needs format: {DEFAULT_FORMAT}."
        )
    if isinstance(table, CatalogTable) and table.options:
        raise UnsupportedError(f"{path}: an Iceberg table has no options of Spark's reader.")
    if taken := sorted(name for name in table.properties if _is_own(name)):
        raise UnsupportedError(f"An Iceberg table uses the property {taken[0]} itself; give yours another name.")
    return table


def check_kept(catalog: str, metadata: TableMetadata) -> None:
    """Check that the catalog keeps what we know of a table that was just made.

    :raises UnsupportedError: when it leaves out what it does not know itself.
    """
    if _VALUE not in metadata.properties:
        raise UnsupportedError(
            f"Catalog {catalog} leaves out properties of tables, such as {_VALUE}, in which dynamic tables are kept; use another "
            "catalog."
        )


def properties_of(table: CatalogTable | CatalogDynamicTable) -> dict[str, str]:
    """The properties of an Iceberg table that is this one, without a revision."""
    value = encode(table)
    comment = {"comment": table.comment} if table.comment is not None else {}
    return {**table.properties, **comment, _VALUE: json.dumps(value, sort_keys=True)}


def removed(before: Mapping[str, str], value: AnyTable, after: Mapping[str, str]) -> set[str]:
    """Properties that a table has no more once it is another value."""
    own = {key for key in before if key == "comment" or key in value.properties}
    return own - after.keys()


def is_dynamic(metadata: TableMetadata) -> bool:
    """Whether a table is a dynamic table."""
    return isinstance(_stored(metadata), CatalogDynamicTable)


def from_iceberg(table: Table, version: str | None = None) -> AnyTable | None:
    """The value that an Iceberg table is; ``None`` when it has no such version.

    :raises UnsupportedError: when a column has a type that Spark does not have.
    """
    stored = _stored(table.metadata)
    if stored is None:
        seen = as_stored(None, table, version)
        return replace(seen, properties=_foreign(seen.properties, {})) if seen is not None else None

    known = replace(
        stored,
        comment=table.properties.get("comment"),
        properties=_foreign(table.properties, stored.properties),
    )
    if not table.schema().fields and version is None:
        return known  # nothing was committed yet
    seen = as_stored(known, table, version)
    if isinstance(seen, CatalogTable):
        return replace(seen, partition_keys=table_of(table).partition_keys, location=stored.location and seen.location)
    return seen


def adopted(catalog: str, path: ObjectPath, physical: Table, table: CatalogDynamicTable) -> CatalogDynamicTable:
    """A dynamic table of what is an Iceberg table already, with the rows it has.

    :raises UnsupportedError: when its rows cannot be replaced as the definition wants it.
    """
    keys = keys_of(physical.spec(), physical.schema())
    version = physical.format_version
    obstacles = {
        f"its format is iceberg and not {table.format}": table.format != DEFAULT_FORMAT,
        f"its format version is {version}, and commits here write versions up to {LATEST_VERSION}": version > LATEST_VERSION,
        "it is partitioned by what only another engine computes": not are_known(physical.spec()),
        f"its partition keys are {keys or 'none'} and not {table.partition_keys or 'none'}": keys != table.partition_keys,
    }
    if reasons := [reason for reason, stands in obstacles.items() if stands]:
        raise UnsupportedError(f"{path} in catalog {catalog} cannot be adopted: {reasons[0]}.")
    before = from_iceberg(physical)
    if before is None:
        raise TypeError("a table without a current state")
    return replace(table, comment=table.comment or before.comment, properties=dict(before.properties))


def _stored(metadata: TableMetadata) -> CatalogTable | CatalogDynamicTable | None:
    if (text := metadata.properties.get(_VALUE)) is None:
        return None
    value = decode_text(text, f"the table at {metadata.location}")
    return value if isinstance(value, CatalogTable | CatalogDynamicTable) else None


def _foreign(properties: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The user's properties, and those of other engines that say something of the table."""
    return {key: text for key, text in properties.items() if key in own or not (_is_own(key) or key.startswith(_TECHNICAL))}


def _is_own(name: str) -> bool:
    return name == "comment" or name.startswith(_PREFIX)
