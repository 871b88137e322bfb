"""A PostgreSQL server as a catalog to read: what it lists, in Spark's types, and what Spark reads of it."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from airflow_dynamic_tables.catalog.postgres import JdbcCatalog
from airflow_dynamic_tables.catalog.values import CatalogDatabase, TableStatistics
from airflow_dynamic_tables.clients.postgres.ddl import spark_type
from airflow_dynamic_tables.core.identifiers import ObjectPath, TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    ConfigurationError,
    DatabaseNotFoundError,
    FunctionNotFoundError,
    InvalidPartitionError,
    PartitionNotFoundError,
    TableNotFoundError,
)
from airflow_dynamic_tables.formats.registry import bind, count_rows
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.postgres
SHOP = """
CREATE SCHEMA crm;
CREATE SCHEMA "Ümläut";
CREATE TABLE orders (id bigint PRIMARY KEY, day date NOT NULL, amount numeric(10,2));
COMMENT ON TABLE orders IS 'What was bought';
COMMENT ON COLUMN orders.day IS 'When';
INSERT INTO orders SELECT i, DATE '2024-01-01' + i::int % 3, i FROM generate_series(1, 30) i;
CREATE TABLE crm.customers (id bigint, name text);
CREATE TABLE "Ümläut"."a.b ""c" ("D:e" int);
CREATE VIEW big AS SELECT * FROM orders WHERE amount > 20;
CREATE TABLE parts (id int, ds date) PARTITION BY LIST (ds);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN ('2024-01-01');
INSERT INTO parts VALUES (1, '2024-01-01'), (1, '2024-01-01'), (NULL, '2024-01-01');
CREATE TABLE nothing (id int);
CREATE TABLE odd ("50% :off" int);
"""


@pytest.fixture(scope="module")
def shop(postgres: PostgresServer) -> str:
    """URL of a database with tables."""
    url = postgres.create_database(f"shop_{uuid4().hex[:8]}")
    with psycopg.connect(url) as connection:
        connection.execute(SHOP)
        connection.execute(f"COMMENT ON DATABASE {url.rpartition('/')[2]} IS 'The shop'")
    return url


@pytest.fixture
def catalog(shop: str) -> Iterator[JdbcCatalog]:
    opened = JdbcCatalog("pg", shop)
    opened.open()
    yield opened
    opened.close()


def path(catalog: JdbcCatalog, name: str) -> ObjectPath:
    return ObjectPath(catalog.default_database, name)


def test_databases(catalog: JdbcCatalog) -> None:
    assert {catalog.default_database, "postgres"} <= set(catalog.list_databases())
    assert not {"template0", "template1"} & set(catalog.list_databases())
    assert catalog.get_database(catalog.default_database) == CatalogDatabase("The shop")
    assert not catalog.database_exists("nowhere")
    with pytest.raises(DatabaseNotFoundError, match="Database nowhere does not exist in catalog pg"):
        catalog.get_database("nowhere")


def test_tables_of_schema_public_go_by_their_own_names(catalog: JdbcCatalog) -> None:
    listed = catalog.list_tables(catalog.default_database)
    assert listed == ["big", "crm.customers", "nothing", "odd", "orders", "parts", 'Ümläut.a.b "c']
    assert catalog.get_table(path(catalog, "public.orders")) == catalog.get_table(path(catalog, "orders"))
    for name in listed:
        assert catalog.table_exists(path(catalog, name))
    assert not catalog.table_exists(path(catalog, "customers"))
    assert not catalog.table_exists(ObjectPath("nowhere", "orders"))
    for missing in (path(catalog, "customers"), ObjectPath("nowhere", "orders")):
        with pytest.raises(TableNotFoundError):
            catalog.get_table(missing)
    with pytest.raises(TableNotFoundError):
        catalog.get_table(path(catalog, "orders"), version="1")


def test_a_table_with_its_comments(catalog: JdbcCatalog, shop: str) -> None:
    table = catalog.get_table(path(catalog, "orders"))
    assert table.columns == (
        Column("id", "bigint", nullable=False),
        Column("day", "date", nullable=False, comment="When"),
        Column("amount", "decimal(10,2)"),
    )
    assert (table.comment, table.format) == ("What was bought", "jdbc")
    assert table.location == "jdbc:" + shop.replace("postgres@", "")
    assert catalog.get_table(path(catalog, 'Ümläut.a.b "c')).columns == (Column("D:e", "int"),)


def test_what_it_cannot_hold_is_empty_or_missing(catalog: JdbcCatalog) -> None:
    database = catalog.default_database
    assert catalog.list_views(database) == catalog.list_dynamic_tables(database) == catalog.list_functions(database) == []
    assert catalog.get_table_statistics(path(catalog, "orders")) == TableStatistics()
    assert catalog.get_column_statistics(path(catalog, "orders")) == {}
    with pytest.raises(FunctionNotFoundError):
        catalog.get_function(path(catalog, "f"))
    with pytest.raises(PartitionNotFoundError):
        catalog.get_partition(path(catalog, "orders"), {"day": "2024-01-01"})
    with pytest.raises(InvalidPartitionError):
        catalog.list_partitions(path(catalog, "orders"))


@pytest.mark.parametrize(
    ("formatted", "expected"),
    [
        ("timestamp(3) with time zone", "timestamp"),
        ("time without time zone", "timestamp_ntz"),
        ("timestamp without time zone[]", "array<timestamp_ntz>"),
        ("numeric", "decimal(38,18)"),
        ("numeric(50,3)", "decimal(38,0)"),
        ("numeric(10,2)[]", "array<decimal(10,2)>"),
        ("character varying(20)", "string"),
        ("bit(1)", "boolean"),
        ("bit(3)", "binary"),
        ("bit varying(3)", "string"),
        ('crm."Mood"', "string"),
        ("integer[]", "array<int>"),
    ],
)
def test_types(formatted: str, expected: str) -> None:
    assert spark_type(formatted) == expected


def bound(catalog: JdbcCatalog, table: ObjectPath, options: dict[str, str]) -> SourceBinding:
    """The table as a source of a refresh."""
    return bind(Source(TableIdentifier("pg", table.database, table.name), "jdbc", options=options), catalog.stores(), "view")


def test_a_scan_knows_no_password_and_finds_its_bounds(shop: str) -> None:
    catalog = JdbcCatalog("pg", shop.replace("postgres@", "postgres:secret@"))
    scan = bound(catalog, path(catalog, "orders"), {"partitionColumn": "day", "numPartitions": "2"})
    assert "secret" not in repr(scan)
    assert catalog.stores()[0].passwords == {"DYNAMIC_TABLES_PASSWORD_PG": "secret"}
    assert (scan.options["lowerBound"], scan.options["upperBound"]) == ("2024-01-01", "2024-01-03")
    assert scan.options["numPartitions"] == "2"
    assert 'FROM "public"."orders"' in scan.options["dbtable"]
    assert [(column.name, column.type) for column in scan.times] == [("day", "date")]
    assert bound(catalog, path(catalog, "nothing"), {}).options["dbtable"] == '"public"."nothing"'
    assert bound(catalog, path(catalog, "nothing"), {"partitionColumn": "id"}).options["lowerBound"] == "0"
    assert bound(catalog, path(catalog, "odd"), {"partitionColumn": "50% :off"}).options["upperBound"] == "0"
    with pytest.raises(ConfigurationError, match="no column 'dy' to read partitions by; it has id, day, amount"):
        bound(catalog, path(catalog, "orders"), {"partitionColumn": "dy"})
    with pytest.raises(TableNotFoundError):
        bound(catalog, path(catalog, "customers"), {})
    catalog.close()


def test_a_snapshot_is_held_until_the_catalog_is_closed(catalog: JdbcCatalog, shop: str) -> None:
    scan = bound(catalog, path(catalog, "crm.customers"), {})
    with psycopg.connect(shop) as writer:
        writer.execute("INSERT INTO crm.customers VALUES (1, 'ada')")
    with psycopg.connect(shop) as reader:
        reader.execute(scan.options["sessionInitStatement"])
        assert reader.execute("SELECT count(*) FROM crm.customers").fetchone() == (0,)
    catalog.close()
    with psycopg.connect(shop) as reader, pytest.raises(psycopg.DatabaseError, match="snapshot"):
        reader.execute(scan.options["sessionInitStatement"])


def test_a_lost_connection_is_made_anew(catalog: JdbcCatalog, shop: str) -> None:
    bound(catalog, path(catalog, "orders"), {})
    with psycopg.connect(shop, autocommit=True) as killer:
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        killer.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
    with pytest.raises(CatalogUnavailableError, match=r"Cannot read jdbc:postgresql://127\.0\.0\.1"):
        bound(catalog, path(catalog, "orders"), {})
    assert bound(catalog, path(catalog, "orders"), {}).version.startswith("snapshot:")


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("postgresql://me:secret@127.0.0.1:1/db", CatalogUnavailableError, "Cannot read jdbc:postgresql://127.0.0.1:1/db of"),
        ("mysql://me:secret@host/db", ConfigurationError, "mysql is not supported; a jdbc catalog reads PostgreSQL"),
        ("me:secret", ConfigurationError, "the URL is malformed"),
    ],
)
def test_no_password_in_an_error(url: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        JdbcCatalog("pg", url).open()
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("table", "partition", "least", "rows"),
    [
        ("orders", {}, 1000, 30),
        ("orders", {}, 7, 7),
        ("orders", {"day": "2024-01-02"}, 1000, 10),
        ("orders", {"day": "2024-01-02", "id": "01"}, 1000, 1),
        ("orders", {"day": "2025-01-01"}, 1000, 0),
        ("orders", {"amount": "__HIVE_DEFAULT_PARTITION__"}, 1000, 0),
        ("big", {}, 10**12, 10),
        ("odd", {"50% :off": "__HIVE_DEFAULT_PARTITION__"}, 3, 0),
        ("odd", {"50% :off": "50"}, 3, 0),
        ('Ümläut.a.b "c', {"D:e": "1"}, 3, 0),
        ("parts", {"id": "1", "ds": "2024-01-01"}, 3, 2),
        ("parts", {"id": "__HIVE_DEFAULT_PARTITION__"}, 3, 1),
        ("crm.customers", {"name": "' OR true --"}, 3, 0),
    ],
)
def test_rows_are_counted(catalog: JdbcCatalog, table: str, partition: dict[str, str], least: int, rows: int) -> None:
    source = Source(TableIdentifier("pg", catalog.default_database, table), "jdbc")
    assert count_rows(source, catalog.stores(), partition, least) == rows


@pytest.mark.parametrize(
    ("database", "table", "partition", "error", "message"),
    [
        (
            None,
            "orders",
            {"dy": "1"},
            ConfigurationError,
            "no column 'dy' to read partitions by; it has id, day, amount",
        ),
        (None, "orders", {"day": "soon"}, CatalogUnavailableError, 'invalid input syntax for type date: "soon"'),
        (None, "customers", {}, TableNotFoundError, "does not exist in catalog pg"),
        ("nowhere", "orders", {}, TableNotFoundError, "does not exist in catalog pg"),
    ],
)
def test_what_cannot_be_counted(
    catalog: JdbcCatalog, database: str | None, table: str, partition: dict[str, str], error: type[Exception], message: str
) -> None:
    source = Source(TableIdentifier("pg", database or catalog.default_database, table), "jdbc")
    with pytest.raises(error, match=message):
        count_rows(source, catalog.stores(), partition, 1)
