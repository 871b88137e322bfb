"""Conversion of catalog entries to PyIceberg properties, and of tables to and from Iceberg tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches

from pyiceberg.io import FSSPEC_FILE_IO, PY_IO_IMPL
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from airflow_dynamic_tables.catalog.base import CatalogEntry, absolute_uri
from airflow_dynamic_tables.catalog.iceberg.metadata import as_stored, table_of
from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDynamicTable, CatalogTable, CatalogView, decode_text, encode
from airflow_dynamic_tables.clients.files import is_object_store
from airflow_dynamic_tables.clients.iceberg.catalog import LATEST_VERSION
from airflow_dynamic_tables.clients.iceberg.schemas import are_known, keys_of
from airflow_dynamic_tables.clients.iceberg.servers import KINDS, IcebergServer
from airflow_dynamic_tables.core.formats import DEFAULT_FORMAT
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.exceptions import ConfigurationError, UnsupportedError
from airflow_dynamic_tables.redaction import has_password, without_secrets

_FREQUENT = ("type", "uri", "warehouse", "credential", "token", "scope", "audience", "resource", "prefix", "oauth2-server-uri")
"""Properties checked for misspelling; all others are passed to PyIceberg unchecked."""


def server_of(entry: CatalogEntry) -> IcebergServer:
    """Return the Iceberg catalog that an entry declares; connects to nothing.

    :raises ConfigurationError: when a parameter is missing or wrong; the message names it.
    """
    for name in entry.params:
        if name not in _FREQUENT and (near := get_close_matches(name, _FREQUENT, 1, 0.8)):
            raise ConfigurationError(f"unknown connection parameter {name!r}; did you mean {near[0]!r}?")
    if "py-catalog-impl" in entry.params:
        raise ConfigurationError(f"'py-catalog-impl' is not supported; use one of the types {', '.join(KINDS)}.")
    kind = _kind(entry)
    properties = {name: value for name, value in entry.params.items() if name != "type"}
    if KINDS[kind].schemes:
        properties["uri"] = _uri(entry, kind)
    if warehouse := _warehouse(entry, kind):
        properties["warehouse"] = warehouse
    if PY_IO_IMPL not in properties and (kind == "glue" or is_object_store(warehouse or "")):
        properties[PY_IO_IMPL] = FSSPEC_FILE_IO  # as for all other files, so that endpoint and credentials are configured once
    if kind == "rest" and {"credential", "token"} & properties.keys():
        # PyIceberg's default, set explicitly because PyIceberg warns when it falls back to it.
        properties.setdefault("oauth2-server-uri", f"{properties['uri']}/v1/oauth/tokens")
    return IcebergServer(entry.name, kind, properties)


def _kind(entry: CatalogEntry) -> str:
    if (kind := entry.params.get("type")) is not None:
        if kind not in KINDS:
            raise ConfigurationError(f"an Iceberg catalog of type {kind!r} is not supported; use one of {', '.join(KINDS)}.")
        return kind
    if "uri" not in entry.params:
        raise ConfigurationError(
            "needs connection parameter 'uri' (https://… of a REST catalog, thrift://… of a Hive metastore, postgresql://… or "
            "sqlite:///… of a database) or 'type: glue', or a 'conn-id' whose connection has a host."
        )
    scheme = _scheme(entry.params["uri"])
    kinds = [name for name, one in KINDS.items() if scheme in one.schemes]
    if not kinds:
        raise ConfigurationError(
            f"'uri' {without_secrets(entry.params['uri'])} is of no Iceberg catalog; it begins with one of "
            f"{', '.join(f'{known}:' for one in KINDS.values() for known in one.schemes)}."
        )
    return kinds[0]


def _uri(entry: CatalogEntry, kind: str) -> str:
    if "uri" not in entry.params:
        raise ConfigurationError(
            f"an Iceberg catalog of type {kind} needs connection parameter 'uri', e.g. {KINDS[kind].example}."
        )
    uri = entry.params["uri"].rstrip("/")
    if _scheme(uri) not in KINDS[kind].schemes:
        raise ConfigurationError(
            f"'uri' {without_secrets(uri)} is none of type {kind}; one is {KINDS[kind].example}, or leave 'type' out."
        )
    if kind == "rest" and has_password(uri):
        raise ConfigurationError(
            "'uri' holds a password; say 'credential: <id>:<secret>' instead, or give a connection login and password."
        )
    if uri.startswith("sqlite:///"):
        return f"sqlite:///{(entry.base / uri.removeprefix('sqlite:///')).resolve()}"
    return uri


def _warehouse(entry: CatalogEntry, kind: str) -> str | None:
    """Return the location of new tables; a REST catalog may use its own identifiers for it."""
    named = entry.params.get("warehouse")
    if kind == "sql" and not named:
        raise ConfigurationError("an Iceberg catalog of type sql needs connection parameter 'warehouse', a folder or its URI.")
    if named is None or kind == "rest":
        return named
    return absolute_uri(named, entry.base)


def _scheme(uri: str) -> str:
    return uri.partition(":")[0].partition("+")[0].lower()


_PREFIX = "dynamic-tables."
_VALUE = f"{_PREFIX}value"
_TECHNICAL = ("write.", "commit.", "history.", "gc.", "read.", "schema.", "format-version", "created-at")
"""Prefixes of properties that configure how a table is written, and belong to the user only when explicitly set."""


def check_kind(catalog: str, path: ObjectPath, table: AnyTable) -> CatalogTable | CatalogDynamicTable:
    """Check that an Iceberg catalog can hold a table.

    :raises UnsupportedError: with the reason, when it cannot.
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
    """Check that the catalog preserved the properties of a table that was just created.

    :raises UnsupportedError: when it drops unknown properties.
    """
    if _VALUE not in metadata.properties:
        raise UnsupportedError(
            f"Catalog {catalog} leaves out properties of tables, such as {_VALUE}, in which dynamic tables are kept; use another "
            "catalog."
        )


def properties_of(table: CatalogTable | CatalogDynamicTable) -> dict[str, str]:
    """Return the properties of the Iceberg table for a value, without a revision."""
    value = encode(table)
    comment = {"comment": table.comment} if table.comment is not None else {}
    return {**table.properties, **comment, _VALUE: json.dumps(value, sort_keys=True)}


def removed(before: Mapping[str, str], value: AnyTable, after: Mapping[str, str]) -> set[str]:
    """Return the properties to remove from a table when its value changes."""
    own = {key for key in before if key == "comment" or key in value.properties}
    return own - after.keys()


def is_dynamic(metadata: TableMetadata) -> bool:
    """Return whether a table is a dynamic table."""
    return isinstance(_stored(metadata), CatalogDynamicTable)


def from_iceberg(table: Table, version: str | None = None) -> AnyTable | None:
    """Return the value of an Iceberg table; ``None`` when it has no such version.

    :raises UnsupportedError: when a column has a type that Spark does not support.
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
    """Return the dynamic table for an existing Iceberg table, which keeps its rows.

    :raises UnsupportedError: when its rows cannot be replaced as the definition requires.
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
    """Return the properties of the user, and descriptive properties of other engines."""
    return {key: text for key, text in properties.items() if key in own or not (_is_own(key) or key.startswith(_TECHNICAL))}


def _is_own(name: str) -> bool:
    return name == "comment" or name.startswith(_PREFIX)
