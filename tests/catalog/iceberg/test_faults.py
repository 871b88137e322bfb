"""REST catalogs that are down, silent, no such catalog, or answer what is not true; and what they do not grant."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.exceptions import OAuthError, UnauthorizedError

from airflow_dynamic_tables.catalog.iceberg.catalog import IcebergCatalog
from airflow_dynamic_tables.clients.iceberg import rest
from airflow_dynamic_tables.clients.iceberg.servers import IcebergServer
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    CommitRejectedError,
    CommitUnknownError,
    ConfigurationError,
    TableNotFoundError,
)
from tests.support.benches.staging import REVENUE, Bench
from tests.support.iceberg_rest.server import CREDENTIAL, IcebergRest
from tests.support.ports import free_port

COMMIT = "POST /v1/namespaces/sales/tables/revenue"
NEVER_ACCEPTED = (
    "Catalog lake: the server does not accept the credential or token, or it has expired; renew it in catalogs.yaml or in the"
)


@pytest.fixture
def server(iceberg_rest: IcebergRest) -> Iterator[IcebergRest]:
    """The server, which is open to everybody again afterwards."""
    iceberg_rest.empty()
    yield iceberg_rest
    iceberg_rest.empty()


def client(server: IcebergRest, **properties: str) -> IcebergCatalog:
    named = {name.replace("_", "-"): value for name, value in properties.items()}
    oauth = {"oauth2-server-uri": f"{server.uri}/v1/oauth/tokens"}
    return IcebergCatalog("lake", IcebergServer("lake", "rest", {"uri": server.uri, **oauth, **named}))


def test_a_server_that_is_down() -> None:
    catalog = IcebergCatalog("lake", IcebergServer("lake", "rest", {"uri": f"http://127.0.0.1:{free_port()}"}))
    with pytest.raises(CatalogUnavailableError, match=r"^Cannot reach catalog lake: .*onnection refused"):
        catalog.open()


def test_a_server_that_falls_silent(server: IcebergRest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "_READ_SECONDS", 0.5)
    server.fail("GET /v1/config", "silence")
    with pytest.raises(CatalogUnavailableError, match=r"^Cannot reach catalog lake: .*[Rr]ead timed out"):
        client(server).open()


@pytest.mark.parametrize("how", ["html", 404])
def test_a_server_that_is_no_iceberg_catalog(server: IcebergRest, how: str | int) -> None:
    server.fail("GET /v1/config", how)
    with pytest.raises(
        ConfigurationError,
        match=rf"^Catalog lake: {server.uri} does not answer as an Iceberg REST catalog does; check 'uri', which ends where "
        "/v1/config begins, and 'warehouse'",
    ):
        client(server).open()


def test_a_credential_that_the_server_does_not_know(server: IcebergRest) -> None:
    server.token = "t1"
    with pytest.raises(CatalogUnavailableError) as error:
        client(server, credential="tester:wr0ng").open()
    assert str(error.value) == f"{NEVER_ACCEPTED} connection: invalid_client: who is that?"
    client(server, credential=CREDENTIAL).open()


@pytest.mark.parametrize("status", [401, 419])
def test_a_token_that_has_expired(server: IcebergRest, status: int) -> None:
    catalog = client(server, token="t0k3n")
    catalog.open()
    server.fail("GET /v1/namespaces", status, 5)
    with pytest.raises(CatalogUnavailableError) as error:
        catalog.list_databases()
    assert str(error.value) == f"{NEVER_ACCEPTED} connection: Fault: by order of a test"


def test_a_token_is_renewed_by_the_credential(server: IcebergRest) -> None:
    server.token = "t1"
    catalog = client(server, credential=CREDENTIAL)
    catalog.open()
    server.token = "t2"
    assert catalog.list_databases() == ["default"]


def test_what_the_server_forbids(server: IcebergRest) -> None:
    server.fail("GET /v1/namespaces", 403)
    with pytest.raises(
        CatalogUnavailableError, match="the server does not grant that to this credential: Fault: by order of a test"
    ):
        client(server).list_databases()


@pytest.mark.parametrize("status", [500, 503, 504])
def test_a_commit_whose_answer_is_lost_is_looked_up(iceberg_rest: IcebergRest, bench: Bench, status: int) -> None:
    bench.refresh({"1": [1]})
    iceberg_rest.fail(COMMIT, f"lost {status}")
    assert bench.refresh({"1": [2]}).number == 2
    assert bench.rows() == {"1": [2]}


def test_a_commit_that_nobody_can_look_up_is_unknown_until_the_server_is_back(iceberg_rest: IcebergRest, bench: Bench) -> None:
    staged = bench.stage("t1")
    result = bench.write(staged, {"1": [1]})
    iceberg_rest.fail(COMMIT, "lost 504")

    def server_goes() -> None:
        iceberg_rest.fail("GET /v1/namespaces/sales/tables/revenue", 503, 3)

    with pytest.raises(CommitUnknownError):
        bench.commit(staged, result, before_publish=server_goes)
    iceberg_rest.forgive()
    version = bench.table.stage("t1").outcome()
    assert version is not None
    assert version.number == 1
    assert bench.rows() == {"1": [1]}


def test_a_commit_that_failed_lands_at_the_next_try(iceberg_rest: IcebergRest, bench: Bench) -> None:
    for status in (409, 503):
        iceberg_rest.fail(COMMIT, status)
        bench.refresh({"1": [status]})
        assert bench.rows() == {"1": [status]}


def test_a_commit_that_a_proxy_sends_twice_keeps_its_manifests(iceberg_rest: IcebergRest, bench: Bench) -> None:
    bench.refresh({"1": [1]})
    iceberg_rest.fail(COMMIT, "twice")
    assert bench.refresh({"1": [2]}).number == 2
    assert bench.rows() == {"1": [2]}


@pytest.mark.parametrize("status", [401, 403, 419])
def test_a_commit_that_is_forbidden_surely_did_not_land(iceberg_rest: IcebergRest, bench: Bench, status: int) -> None:
    bench.refresh({"1": [1]})
    iceberg_rest.fail(COMMIT, status, 5)
    with pytest.raises(
        CommitRejectedError, match=r"The catalog refuses the commit of sales\.revenue, its last version is untouched"
    ):
        bench.refresh({"1": [2]})
    assert bench.rows() == {"1": [1]}


def test_credentials_that_a_server_hands_out_are_told_nobody(
    iceberg_rest: IcebergRest, bench: Bench, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    iceberg_rest.routes.table_config = {"s3.access-key-id": "AKIA", "s3.secret-access-key": "v3nd3d", "token": "v3nd3d"}
    try:
        bench.refresh({"1": [1]})
        assert bench.table.read().files
    finally:
        iceberg_rest.routes.table_config = {}
    assert "v3nd3d" not in caplog.text
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"v3nd3d" in file.read_bytes()]


@pytest.mark.parametrize("how", [500, "lost 504"])
def test_a_change_of_properties_whose_answer_is_lost_is_told_as_unknown(
    iceberg_rest: IcebergRest, catalog: IcebergCatalog, bench: Bench, how: int | str
) -> None:
    bench.refresh({"1": [1]})
    iceberg_rest.fail(COMMIT, how)
    with pytest.raises(
        CatalogUnavailableError, match="it is unknown whether the server made that change; check it, and try again"
    ):
        catalog.change_table(REVENUE, lambda table: replace(table, comment="gross"))
    catalog.change_table(REVENUE, lambda table: replace(table, comment="net"))
    assert catalog.get_table(REVENUE).comment == "net"


def test_a_server_that_repeats_the_secret_of_a_credential_tells_it_nobody() -> None:
    server = IcebergServer("lake", "rest", {"uri": "http://127.0.0.1", "credential": "tester:wr0ng"})
    with pytest.raises(CatalogUnavailableError) as error, server.errors():
        raise OAuthError("invalid_client: tester may not enter by wr0ng")
    assert str(error.value) == f"{NEVER_ACCEPTED} connection: invalid_client: tester may not enter by ***"
    server = IcebergServer("lake", "rest", {"uri": "http://127.0.0.1", "header.Authorization": "Bearer wr0ng"})
    with pytest.raises(CatalogUnavailableError) as error, server.errors():
        raise UnauthorizedError("wr0ng is unknown")
    assert str(error.value) == f"{NEVER_ACCEPTED} connection: *** is unknown"
    server = IcebergServer("lake", "rest", {"uri": "http://127.0.0.1", "header.X-Team": " "})
    with pytest.raises(CatalogUnavailableError, match="connection: who are you"), server.errors():
        raise UnauthorizedError("who are you")


def test_a_table_made_anew_while_the_job_ran_is_said(catalog: IcebergCatalog, bench: Bench) -> None:
    staged = bench.stage("t1")
    result = bench.write(staged, {"1": [1]})
    catalog.drop_table(REVENUE)
    bench.refresh({"1": [7]})
    with pytest.raises(
        CommitRejectedError,
        match=r"^sales.revenue was dropped and recreated, or moved to another folder, while the job ran; refresh it again\.$",
    ):
        bench.commit(staged, result)
    assert bench.rows() == {"1": [7]}


def test_a_table_without_a_refresh_is_no_empty_table(catalog: IcebergCatalog, bench: Bench) -> None:
    with pytest.raises(TableNotFoundError, match=r"Table sales\.revenue in catalog .* does not exist or has no version yet\."):
        bench.table.read()
    (store,) = catalog.stores()
    assert store.tables.load_table(("sales", "revenue")).schema().fields == ()
