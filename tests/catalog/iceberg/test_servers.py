"""What REST servers do that they may do, and what some leave out: pauses, prefixes, folders of their choice, properties, tags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate, SetSnapshotRefUpdate, TableRequirement, TableUpdate

from airflow_dynamic_tables.catalog.iceberg.catalog import IcebergCatalog
from airflow_dynamic_tables.catalog.values import CatalogDatabase
from airflow_dynamic_tables.clients.iceberg.servers import IcebergServer
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, TableNotFoundError, UnsupportedError
from tests.support.benches.registering import register_in
from tests.support.benches.staging import REVENUE, Bench
from tests.support.iceberg_rest.server import CREDENTIAL, IcebergRest, running_rest_catalog

TABLE = "/v1/namespaces/sales/tables/revenue"


@contextmanager
def connected(server: IcebergRest, **properties: str) -> Iterator[IcebergCatalog]:
    oauth = {"oauth2-server-uri": f"{server.uri}/v1/oauth/tokens"}
    with closing(IcebergCatalog("lake", IcebergServer("lake", "rest", {"uri": server.uri, **oauth, **properties}))) as catalog:
        catalog.open()
        yield catalog


@pytest.fixture
def server(iceberg_rest: IcebergRest) -> Iterator[IcebergRest]:
    """An empty server, which is open to everybody again afterwards."""
    iceberg_rest.empty()
    yield iceberg_rest
    iceberg_rest.empty()


def keep_of_commits(monkeypatch: pytest.MonkeyPatch, server: IcebergRest, kept: Callable[[TableUpdate], bool]) -> None:
    """Let a server leave out what else it is told to do to a table."""
    commit = server.routes.catalog.commit_table

    def keeping(table: Table, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]) -> Any:
        return commit(table, tuple(requirements), tuple(filter(kept, updates)))

    monkeypatch.setattr(server.routes.catalog, "commit_table", keeping)


@pytest.mark.sampled
@pytest.mark.parametrize("how", ["429 after 0", "429 after 1", "429 after Fri, 31 Dec 1999 23:59:59 GMT", 429])
def test_a_server_that_is_busy_is_asked_again_as_late_as_it_says(server: IcebergRest, how: str | int) -> None:
    with connected(server) as catalog:
        register_in(catalog, REVENUE)
        bench = Bench(catalog.stores()[0])
        server.fail(f"POST {TABLE}", how)
        server.requests.clear()
        bench.refresh({"1": [1]})
        assert server.requests.count(f"POST {TABLE}") == 2, "no fence was needed: nobody had looked at the commit"
        server.fail("GET /v1/namespaces", how)
        assert catalog.list_databases() == ["default", "sales"]


def test_a_server_that_is_not_ready_is_asked_again_when_nothing_can_have_changed(server: IcebergRest) -> None:
    with connected(server) as catalog:
        server.fail("GET /v1/namespaces", "503 after 0")
        assert catalog.list_databases() == ["default"]
        server.fail("POST /v1/namespaces", "503 after 0")
        with pytest.raises(CatalogUnavailableError, match="Cannot reach catalog lake: Fault: by order of a test"):
            catalog.create_database("sales", CatalogDatabase())


@pytest.mark.parametrize("seconds", ["3600", "soon"])
def test_a_pause_of_an_hour_is_an_error_at_once(server: IcebergRest, seconds: str) -> None:
    with connected(server) as catalog:
        server.fail("GET /v1/namespaces", f"429 after {seconds}")
        with pytest.raises(CatalogUnavailableError, match="the server refuses that: Fault: by order of a test"):
            catalog.list_databases()


def test_a_token_expires_between_stage_and_commit(server: IcebergRest) -> None:
    server.token = "t1"
    with connected(server, credential=CREDENTIAL) as catalog:
        register_in(catalog, REVENUE)
        bench = Bench(catalog.stores()[0])
        staged = bench.stage("one")
        result = bench.write(staged, {"1": [1]})
        server.token = "t2"
        bench.commit(staged, result, before_publish=lambda: setattr(server, "token", "t3"))
        assert bench.rows() == {"1": [1]}


def test_a_server_that_leaves_out_properties_holds_no_dynamic_table(server: IcebergRest, monkeypatch: pytest.MonkeyPatch) -> None:
    create: Callable[..., Table] = server.routes.catalog.create_table

    def creating(*args: Any, properties: dict[str, str], **more: Any) -> Table:
        return create(*args, **more, properties={"owner": properties.get("owner", "")})

    monkeypatch.setattr(server.routes.catalog, "create_table", creating)
    keep_of_commits(monkeypatch, server, lambda update: not isinstance(update, SetPropertiesUpdate))
    with connected(server) as catalog:
        with pytest.raises(
            UnsupportedError, match=r"^Catalog lake leaves out properties of tables, such as dynamic-tables\.value"
        ):
            register_in(catalog, REVENUE)
        with pytest.raises(TableNotFoundError):
            catalog.get_table(REVENUE)


@pytest.mark.parametrize("is_said", [False, True])
def test_a_server_without_tags_holds_no_dynamic_table(
    server: IcebergRest, monkeypatch: pytest.MonkeyPatch, is_said: bool
) -> None:
    def is_no_tag(update: TableUpdate) -> bool:
        is_tag = isinstance(update, SetSnapshotRefUpdate) and update.type == "tag"
        if is_tag and is_said:
            raise ValueError("a table has one branch here")
        return not is_tag

    keep_of_commits(monkeypatch, server, is_no_tag)
    with connected(server) as catalog:
        with pytest.raises(UnsupportedError, match=r"^The catalog keeps no tags of Iceberg tables") as error:
            register_in(catalog, REVENUE)
        assert is_said == ("a table has one branch here" in str(error.value))
        with pytest.raises(TableNotFoundError):
            catalog.get_table(REVENUE)


@pytest.mark.parametrize("name", ["Revenue", "ünï 表", "a%2Fb", "a b+c", "semi;colon"])
def test_names_reach_the_server_as_they_are(server: IcebergRest, name: str) -> None:
    path = ObjectPath(f"In {name}", name)
    with connected(server, warehouse=str(server.routes.catalog.properties["warehouse"])) as catalog:
        register_in(catalog, path)
        bench = Bench(catalog.stores()[0], path)
        bench.refresh({"1": [1]})
        assert bench.rows() == {"1": [1]}
        assert catalog.list_tables(path.database) == [name]
        assert path.database in catalog.list_databases()


def test_a_server_with_a_prefix_and_namespaces_below_others(tmp_path: Path) -> None:
    with running_rest_catalog(tmp_path, prefix="ws/eu") as server, connected(server, warehouse="eu") as catalog:
        register_in(catalog, REVENUE)
        bench = Bench(catalog.stores()[0])
        bench.refresh({"1": [1]})
        assert bench.rows() == {"1": [1]}
        server.routes.catalog.create_namespace(("sales", "eu"))
        assert catalog.list_databases() == ["default", "sales"]
