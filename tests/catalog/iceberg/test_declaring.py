"""What can be wrong with an Iceberg catalog in ``catalogs.yaml``, and what a connection says: nothing is connected to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.base import CatalogDefaults, CatalogEntry
from airflow_dynamic_tables.catalog.file import CATALOG_TYPES, _of_connection, make_catalog, read_entries
from airflow_dynamic_tables.catalog.iceberg.encoding import server_of
from airflow_dynamic_tables.clients.connections import environment_connections
from airflow_dynamic_tables.exceptions import ConfigurationError, DefinitionError, MissingExtraError

URI = {"uri": "https://catalog.example.com"}
WRONG: dict[str, tuple[dict[str, str], str]] = {
    "nothing": (
        {},
        (
            "needs connection parameter 'uri' (https://… of a REST catalog, thrift://… of a Hive metastore, postgresql://… or "
            "sqlite:///… of a database) or 'type: glue', or a 'conn-id' whose connection has a host."
        ),
    ),
    "unknown type": (
        {"type": "dynamodb"},
        "an Iceberg catalog of type 'dynamodb' is not supported; use one of rest, hive, glue, sql.",
    ),
    "missing uri": (
        {"type": "rest", "warehouse": "prod"},
        "an Iceberg catalog of type rest needs connection parameter 'uri', e.g. https://catalog.example.com.",
    ),
    "uri of another type": (
        {"type": "hive", **URI},
        "'uri' https://catalog.example.com is none of type hive; one is thrift://metastore:9083, or leave 'type' out.",
    ),
    "uri of nothing": (
        {"uri": "catalog.example.com"},
        "'uri' catalog.example.com is of no Iceberg catalog; it begins with one of http:, https:, thrift:, sqlite:, postgresql:.",
    ),
    "password in the uri": (
        {"uri": "https://me:abc@catalog.example.com"},
        "'uri' holds a password; say 'credential: <id>:<secret>' instead, or give a connection login and password.",
    ),
    "a class": (
        {"py-catalog-impl": "my.Catalog", **URI},
        "'py-catalog-impl' is not supported; use one of the types rest, hive, glue, sql.",
    ),
    "misspelt": (
        {"credentials": "a:b", **URI},
        "unknown connection parameter 'credentials'; did you mean 'credential'?",
    ),
    "no warehouse": (
        {"uri": "sqlite:///catalog.db"},
        "an Iceberg catalog of type sql needs connection parameter 'warehouse', a folder or its URI.",
    ),
    "password in the warehouse": (
        {"type": "glue", "warehouse": "s3://key:abc@lake/warehouse"},
        "A warehouse may not hold a password in its URI: all locations begin with it.",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said(what: str) -> None:
    params, message = WRONG[what]
    with pytest.raises(ConfigurationError) as error:
        make_catalog(CatalogEntry("lake", "iceberg", params=params, place="catalogs.yaml:3:5"), defaults())
    assert str(error.value) == f"catalogs.yaml:3:5: catalog lake: {message}"


CONTRADICTS = (
    "of 'connection-params' contradicts connection 'ice', whose secrets would go to another server; leave one of them out."
)
CONNECTIONS: dict[str, tuple[dict[str, object], dict[str, str], str]] = {
    "another server": (
        {"host": "https://a.example.com", "login": "id", "password": "abc"},
        {"uri": "https://b.example.com"},
        f"'uri' {CONTRADICTS}",
    ),
    "another type": (
        {"host": "https://a.example.com"},
        {"type": "hive"},
        f"'type' {CONTRADICTS}",
    ),
    "half a credential": (
        {"host": "https://a.example.com", "login": "id"},
        {},
        "the connection has no password (client secret), and a REST catalog needs both login and password.",
    ),
}


@pytest.mark.parametrize("what", CONNECTIONS)
def test_what_is_wrong_with_a_connection_is_said(what: str) -> None:
    connection, params, message = CONNECTIONS[what]
    with pytest.raises(ConfigurationError) as error:
        make_catalog(CatalogEntry("lake", "iceberg", conn_id="ice", params=params), defaults(connection))
    assert str(error.value) == f"catalog lake: {message}"


def test_values_are_text(tmp_path: Path) -> None:
    file = tmp_path / "catalogs.yaml"
    file.write_text(
        "catalogs:\n  - {name: lake, type: iceberg, connection-params: {uri: 'https://a', rest.sigv4-enabled: true}}\n"
    )
    with pytest.raises(DefinitionError, match=r"catalogs.yaml:2:\d+: 'rest.sigv4-enabled' must be text; put it in quotes"):
        read_entries(file)


def test_a_connection_is_read_as_airflows_own_provider_reads_it() -> None:
    connection: dict[str, object] = {
        "conn_type": "iceberg",
        "host": "https://catalog.example.com/ws/",
        "login": "id",
        "password": "s3cr3t",
        "extra": json.dumps({"warehouse": "prod", "uri": "https://of.the/extra", "header.x-team": "sales"}),
    }
    kind = CATALOG_TYPES["iceberg"]
    assert _of_connection(CatalogEntry("lake", "iceberg", conn_id="ice"), kind, defaults(connection)) == {
        "type": "rest",
        "uri": "https://catalog.example.com/ws",
        "credential": "id:s3cr3t",
        "warehouse": "prod",
        "header.x-team": "sales",
    }
    of_glue: dict[str, object] = {"login": "id", "extra": {"type": "glue", "glue.region": "eu-central-1"}}
    said = _of_connection(CatalogEntry("lake", "iceberg", conn_id="ice"), kind, defaults(of_glue))
    assert said == {"type": "glue", "glue.region": "eu-central-1"}


def test_secrets_are_in_no_text_of_an_entry() -> None:
    entry = CatalogEntry("lake", "iceberg", params={**URI, "credential": "id:s3cr3t", "token": "t0k3n"})
    server = server_of(entry)
    assert server.properties["credential"] == "id:s3cr3t"
    assert "s3cr3t" not in f"{entry!r}{server!r}"
    assert "t0k3n" not in f"{entry!r}{server!r}"


@pytest.mark.parametrize("kind", ["hive", "glue"])
def test_a_library_that_is_missing_names_its_extra(kind: str) -> None:
    code = f"""
import sys
sys.modules["boto3"] = sys.modules["thrift"] = None  # as if they were not installed
from airflow_dynamic_tables.clients.iceberg.servers import KINDS
KINDS["{kind}"].load()
"""
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert loaded.stderr.splitlines()[-1].endswith(str(MissingExtraError(kind)))


def defaults(connection: dict[str, object] | None = None) -> CatalogDefaults:
    """Without anything, but for a connection ``ice``."""
    connections = environment_connections({"AIRFLOW_CONN_ICE": json.dumps(connection)} if connection else {})
    return CatalogDefaults("sqlite://", "file:///srv/warehouse", connections)
