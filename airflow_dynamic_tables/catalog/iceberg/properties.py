"""What an entry of ``catalogs.yaml`` says of an Iceberg catalog, as the properties that PyIceberg is given."""

from __future__ import annotations

from difflib import get_close_matches

from pyiceberg.io import FSSPEC_FILE_IO, PY_IO_IMPL

from airflow_dynamic_tables.catalog.base import CatalogEntry, absolute_uri
from airflow_dynamic_tables.clients.iceberg.servers import KINDS, Server
from airflow_dynamic_tables.clients.object_stores import is_object_store
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.redaction import has_password, without_secrets

_FREQUENT = ("type", "uri", "warehouse", "credential", "token", "scope", "audience", "resource", "prefix", "oauth2-server-uri")
"""Properties that are misspelt now and then; all others are PyIceberg's own affair."""


def server_of(entry: CatalogEntry) -> Server:
    """The Iceberg catalog that an entry declares; connects to nothing.

    :raises ConfigurationError: says what is missing or wrong.
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
        properties[PY_IO_IMPL] = FSSPEC_FILE_IO  # as for all other files: one place says endpoint and credentials
    if kind == "rest" and {"credential", "token"} & properties.keys():
        # What PyIceberg falls back to, and warns of.
        properties.setdefault("oauth2-server-uri", f"{properties['uri']}/v1/oauth/tokens")
    return Server(entry.name, kind, properties)


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
    """Where new tables lie; a REST catalog may have names of its own for that."""
    named = entry.params.get("warehouse")
    if kind == "sql" and not named:
        raise ConfigurationError("an Iceberg catalog of type sql needs connection parameter 'warehouse', a folder or its URI.")
    if named is None or kind == "rest":
        return named
    return absolute_uri(named, entry.base)


def _scheme(uri: str) -> str:
    return uri.partition(":")[0].partition("+")[0].lower()
