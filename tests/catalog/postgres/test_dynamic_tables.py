"""Dynamic tables in a catalog of a PostgreSQL server: declared, refreshed, read by another one, renamed, dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from airflow_dynamic_tables.catalog.base import CatalogDefaults, CatalogEntry
from airflow_dynamic_tables.catalog.file import make_catalog
from airflow_dynamic_tables.catalog.postgres import JdbcCatalog
from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.clients.files import write_text
from airflow_dynamic_tables.core.identifiers import ObjectPath, TableIdentifier
from airflow_dynamic_tables.core.partitions import NULL_PARTITION
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import (
    CatalogError,
    ConfigurationError,
    ConflictError,
    DynamicTableError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedError,
    UpstreamError,
)
from airflow_dynamic_tables.services.lifecycle.dropping import drop
from airflow_dynamic_tables.services.lifecycle.registration import rename
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.contracts.catalogs.samples import DYNAMIC, TABLE, VIEW

pytestmark = pytest.mark.postgres

JDBC = replace(DYNAMIC, format="jdbc", columns=())


@pytest.fixture
def schema(tables_url: str) -> str:
    name = f"c_{uuid4().hex[:12]}"
    execute(tables_url, f"CREATE SCHEMA {name}")
    return name


@pytest.fixture
def catalog(tables_url: str, tmp_path: Path) -> Iterator[JdbcCatalog]:
    with closing(JdbcCatalog("pg", tables_url, warehouse=f"file://{tmp_path}/pg", lock_timeout=0.3)) as made:
        yield made


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def at(schema: str, name: str = "daily") -> ObjectPath:
    return ObjectPath("tables", f"{schema}.{name}")


def test_an_entry_comes_back_as_it_was_made(catalog: JdbcCatalog, schema: str) -> None:
    catalog.create_table(at(schema), JDBC)
    assert catalog.get_table(at(schema)) == JDBC
    assert catalog.table_exists(at(schema))
    assert f"{schema}.daily" in catalog.list_tables("tables")
    assert catalog.get_dynamic_tables("tables")[f"{schema}.daily"] == JDBC
    assert not [name for name in catalog.list_tables("tables") if "_dynamic_table" in name]
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table(at(schema), JDBC)
    catalog.create_table(at(schema), JDBC, ignore_if_exists=True)
    before = catalog.change_table(at(schema), lambda now: replace(now, comment="new"))
    assert before == JDBC
    assert catalog.get_table(at(schema)) == replace(JDBC, comment="new")
    catalog.rename_table(at(schema), f"{schema}.weekly")
    assert not catalog.table_exists(at(schema))
    catalog.create_table(at(schema), JDBC)
    with pytest.raises(TableAlreadyExistsError, match=rf"tables.`{schema}.weekly` already exists in catalog pg"):
        catalog.rename_table(at(schema), f"{schema}.weekly")
    catalog.drop_table(at(schema, "weekly"))
    with pytest.raises(TableNotFoundError):
        catalog.get_table(at(schema, "weekly"))
    catalog.drop_table(at(schema, "weekly"), ignore_if_not_exists=True)


def test_partitions_are_those_that_hold_rows(catalog: JdbcCatalog, schema: str, tables_url: str) -> None:
    path = at(schema)
    catalog.create_table(path, replace(JDBC, partition_keys=("day", "country")))
    assert catalog.list_partitions(path) == [], "it has no rows yet"
    execute(
        tables_url,
        f"CREATE TABLE {schema}.daily (n int, day date, country text)",
        f"INSERT INTO {schema}.daily VALUES (1, '2024-01-02', 'DE'), (2, '2024-01-02', NULL), (3, '2024-01-01', 'a,b'), "
        "(4, '2024-01-01', 'a,b')",
    )
    first = {"day": "2024-01-01", "country": "a,b"}
    assert [(partition.spec, partition.statistics.rows) for partition in catalog.get_partitions(path)] == [
        (first, 2),
        ({"day": "2024-01-02", "country": "DE"}, 1),
        ({"day": "2024-01-02", "country": NULL_PARTITION}, 1),
    ]
    assert catalog.list_partitions(path, {"day": "2024-01-01"}) == [first]
    assert catalog.partition_exists(path, first)
    assert not catalog.partition_exists(path, {"day": "tomorrow", "country": "DE"})
    execute(tables_url, f"ALTER TABLE {schema}.daily RENAME COLUMN country TO place")
    assert catalog.list_partitions(path) == [], "as none is named so"


def test_schema_and_table_go_before_a_name_with_a_dot(catalog: JdbcCatalog, schema: str, tables_url: str) -> None:
    execute(tables_url, f'CREATE TABLE public."{schema}.daily" (wrong int)', f'CREATE TABLE {schema}.daily ("right" int)')
    assert [column.name for column in catalog.get_table(at(schema)).columns] == ["right"]
    execute(tables_url, f"DROP TABLE {schema}.daily")
    assert [column.name for column in catalog.get_table(at(schema)).columns] == ["wrong"]
    execute(tables_url, f'DROP TABLE public."{schema}.daily"')


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pg_catalog.t", "Schema pg_catalog is PostgreSQL's own, so pg_catalog.t cannot be made there; choose another schema."),
        ("information_schema.t", ("Schema information_schema is PostgreSQL's own, so information_schema.t cannot be made there; "
         "choose another schema.")),
        ("crm.", "'crm.' names no table of PostgreSQL; write schema.table."),
        (".t", "'.t' names no table of PostgreSQL; write schema.table."),
        ("é" * 32, f"PostgreSQL cuts names off after 63 bytes, and {'é' * 32!r} has 64; choose a shorter one."),
        ("crm._dynamic_table_commits", ("Names such as _dynamic_table_commits are those of this package's own tables; choose "
         "another one.")),
        ("crm.t__stage_1", "Names such as t__stage_1 are those of this package's own tables; choose another one."),
        ("nowhere.t", "Database tables has no schema nowhere for nowhere.t; make it (CREATE SCHEMA), or choose another."),
    ],
)  # fmt: skip
def test_names_that_no_table_can_have_are_refused_with_words(catalog: JdbcCatalog, name: str, message: str) -> None:
    path = ObjectPath("tables", name)
    with pytest.raises((UnsupportedError, ConfigurationError)) as refused:
        catalog.create_table(path, JDBC)
    assert str(refused.value) == message
    assert not catalog.table_exists(path)
    with pytest.raises(TableNotFoundError):
        catalog.change_table(path, lambda now: now)
    catalog.drop_table(path, ignore_if_not_exists=True)


def test_what_is_not_refreshed_here_is_made_and_changed_in_postgresql(catalog: JdbcCatalog, schema: str, tables_url: str) -> None:
    for table, kind in ((TABLE, "a CatalogTable"), (VIEW, "a CatalogView"), (DYNAMIC, "tables of format iceberg")):
        with pytest.raises(UnsupportedError) as refused:
            catalog.create_table(at(schema), table)
        assert str(refused.value) == (
            f"Catalog pg cannot hold {kind}: what is not refreshed here is made in PostgreSQL itself, and what is has format: "
            "jdbc."
        )
    execute(tables_url, f"CREATE TABLE {schema}.daily (n int)")
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table(at(schema), JDBC)
    for change in (
        lambda: catalog.change_table(at(schema), lambda now: now),
        lambda: catalog.rename_table(at(schema), f"{schema}.other"),
        lambda: catalog.drop_table(at(schema)),
    ):
        with pytest.raises(UnsupportedError, match="was made in PostgreSQL and not through catalog pg; change it there"):
            change()
    with pytest.raises(UnsupportedError, match="Server of catalog pg has no database nowhere, and none is made here: run CREATE"):
        catalog.create_database("nowhere", catalog.get_database("tables"))


def test_a_user_who_may_not_make_tables_is_told_what_to_run(schema: str, tables_url: str, tmp_path: Path) -> None:
    user = f"u_{uuid4().hex[:8]}"
    execute(tables_url, f"CREATE ROLE {user} LOGIN")
    with closing(JdbcCatalog("pg", tables_url.replace("postgres@", f"{user}@"), warehouse=f"file://{tmp_path}")) as catalog:
        with pytest.raises(
            ConfigurationError, match=rf"let its owner run: GRANT USAGE, CREATE ON SCHEMA \"{schema}\" TO \"{user}\""
        ):
            catalog.create_table(at(schema), JDBC)
        execute(tables_url, f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {user}")
        catalog.create_table(at(schema), JDBC)
        assert f"{schema}.daily" in catalog.list_dynamic_tables("tables")


@pytest.mark.parametrize("seconds", ["soon", "0", "-1", "nan", "1e9"])
def test_a_lock_timeout_that_is_none_is_refused(seconds: str, tables_url: str) -> None:
    entry = CatalogEntry("pg", "jdbc", params={"url": tables_url, "lock-timeout": seconds})
    with pytest.raises(ConfigurationError) as refused:
        make_catalog(entry, CatalogDefaults("sqlite://", "/warehouse"))
    assert str(refused.value) == f"catalog pg: lock-timeout is {seconds!r}; write seconds from 0.1 to 3600, such as 30."


@pytest.fixture
def workspace(tables_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    path = tmp_path / "catalogs.yaml"
    path.write_text(f"catalogs: [{{name: pg, type: jdbc, connection-params: {{url: '{tables_url}', lock-timeout: 0.3}}}}]")
    monkeypatch.setenv("DYNAMIC_TABLES_CATALOGS", str(path))
    with open_workspace(embedded_settings({"AIRFLOW_HOME": str(tmp_path), "DYNAMIC_TABLES_CATALOGS": str(path)})) as opened:
        yield opened


def request(folder: Path, schema: str, name: str, query: str = "SELECT 1 AS x") -> RefreshRequest:
    path = folder / "definitions" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    identifier = TableIdentifier("pg", "tables", f"{schema}.{name}")
    path.write_text(f"dynamic_tables: [{{name: '{identifier}', format: jdbc, freshness: 1 day, query: '{query}'}}]")
    definitions = load_definitions(path.parent)
    return RefreshRequest(
        definitions.tables[identifier], definitions.sources, datetime(2024, 3, 1, tzinfo=UTC), str(uuid4()), "a test"
    )


def job(url: str, plans: list[RefreshPlan]) -> Callable[[RefreshPlan], None]:
    def write(plan: RefreshPlan) -> None:
        assert plan.sink is not None
        plans.append(plan)
        execute(url, f"CREATE TABLE {plan.sink.table} (x bigint)", f"INSERT INTO {plan.sink.table} VALUES (1), (2)")
        write_text(plan.result_location, RefreshResult(plan.token, "job", 2, (), (Column("x", "bigint"),)).to_json())

    return write


def test_a_table_lives_in_postgresql_from_its_first_refresh_to_its_drop(
    workspace: Workspace, schema: str, tables_url: str, tmp_path: Path
) -> None:
    plans: list[RefreshPlan] = []
    first = request(tmp_path, schema, "daily")
    reading = request(tmp_path, schema, "later", f"SELECT x FROM pg.tables.`{schema}.daily`")
    write = job(tables_url, plans)
    with pytest.raises(UpstreamError, match=r"daily` has no version yet|does not exist"):
        run(workspace, reading, write)
    version = run(workspace, first, write)
    assert isinstance(version, Version)
    assert isinstance(run(workspace, replace(reading, token=str(uuid4())), write), Version)
    (source,) = plans[-1].sources
    assert (source.format, source.options["dbtable"], source.has_files) == ("jdbc", f'"{schema}"."daily"', False)
    assert [row["x"] for row in sample(workspace, first.table.identifier, 10)] == [1, 2]
    entry = workspace.catalog("pg").get_table(first.table.identifier.path)
    assert isinstance(entry, CatalogDynamicTable)
    assert (entry.snapshot, [column.name for column in entry.columns]) == (version.snapshot, ["x"])

    new = TableIdentifier("pg", "tables", f"{schema}.weekly")
    rename(workspace, first.table.identifier, new)
    assert [row["x"] for row in sample(workspace, new, 10)] == [1, 2]
    assert workspace.existing_table(new).current() == version
    execute(tables_url, f"CREATE VIEW {schema}.report AS SELECT x FROM {schema}.weekly")
    with pytest.raises(
        CatalogError, match=rf"is not dropped: view {schema}.report depends on table {schema}.weekly. Drop that first"
    ):
        drop(workspace, new)
    assert [row["x"] for row in sample(workspace, new, 10)] == [1, 2]
    execute(tables_url, f"DROP VIEW {schema}.report")
    drop(workspace, new)
    assert workspace.table(new, "jdbc").layout() is None
    with psycopg.connect(tables_url) as connection:
        assert connection.execute("SELECT to_regclass(%s)", (f"{schema}.weekly",)).fetchone() == (None,)


def test_who_keeps_a_rename_or_a_drop_waiting_is_named(
    workspace: Workspace, schema: str, tables_url: str, tmp_path: Path
) -> None:
    first = request(tmp_path, schema, "daily")
    run(workspace, first, job(tables_url, []))
    identifier = first.table.identifier
    with psycopg.connect(tables_url, application_name="psql of bob") as reader:
        reader.execute(f"SELECT * FROM {schema}.daily".encode())
        for change in (
            lambda: drop(workspace, identifier),
            lambda: rename(workspace, identifier, replace(identifier, table=f"{schema}.weekly")),
        ):
            with pytest.raises(
                ConflictError, match=rf"{schema}.daily is locked by pid \d+ \(user postgres, application psql of bob"
            ):
                change()
    assert [row["x"] for row in sample(workspace, identifier, 10)] == [1, 2]


def test_a_table_that_somebody_else_made_is_not_replaced(
    workspace: Workspace, schema: str, tables_url: str, tmp_path: Path
) -> None:
    execute(tables_url, f"CREATE TABLE {schema}.daily (x bigint)", f"INSERT INTO {schema}.daily VALUES (7)")
    with pytest.raises(DynamicTableError, match="exists and is no dynamic table; adopt it, drop it or choose another name"):
        run(workspace, request(tmp_path, schema, "daily"), job(tables_url, []))
    with psycopg.connect(tables_url) as connection:
        assert connection.execute(f"SELECT x FROM {schema}.daily".encode()).fetchall() == [(7,)]


def test_a_table_that_somebody_else_made_anew_is_not_dropped(
    workspace: Workspace, schema: str, tables_url: str, tmp_path: Path
) -> None:
    first = request(tmp_path, schema, "daily")
    run(workspace, first, job(tables_url, []))
    execute(tables_url, f"DROP TABLE {schema}.daily", f"CREATE TABLE {schema}.daily AS SELECT 7 AS x")
    drop(workspace, first.table.identifier)
    assert not workspace.catalog("pg").list_dynamic_tables("tables").count(f"{schema}.daily")
    with psycopg.connect(tables_url) as connection:
        assert connection.execute(f"SELECT x FROM {schema}.daily".encode()).fetchall() == [(7,)]
