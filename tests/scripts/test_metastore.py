"""The metastores that other tests work on: on the loopback interface only, and with a memory."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest
from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import Database
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket

from tests.support.metastore import HiveMetastore


@pytest.fixture(params=["hive_metastore", pytest.param("hive_metastore_on_postgres", marks=pytest.mark.postgres)])
def metastore(request: pytest.FixtureRequest) -> HiveMetastore:
    found: HiveMetastore = request.getfixturevalue(request.param)
    return found


def databases(metastore: HiveMetastore, create: str | None = None) -> list[str]:
    transport = TSocket("127.0.0.1", urlsplit(metastore.uri).port)
    transport.open()
    try:
        client = Client(TBinaryProtocol(transport))
        if create:
            client.create_database(Database(create, None, f"{metastore.warehouse}/{create}.db", {}))
        return list(client.get_all_databases())
    finally:
        transport.close()


@pytest.mark.sampled
def test_it_remembers_what_it_was_told_before_a_restart(metastore: HiveMetastore) -> None:
    assert "remembered" in databases(metastore, create="remembered")
    metastore.stop()
    metastore.start()
    assert "remembered" in databases(metastore)


def test_nobody_else_on_the_network_can_reach_it(metastore: HiveMetastore) -> None:
    outside = next((str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), metastore.port, socket.AF_INET)), None)
    if outside is None or outside.startswith("127."):
        outside = "127.0.0.2"  # another address of this machine, which a wildcard would answer on
    with pytest.raises(OSError), socket.create_connection((outside, metastore.port), timeout=5):  # noqa: PT011 - any will do
        pass
