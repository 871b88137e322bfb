"""The client of a Hive metastore, on a real one."""

from __future__ import annotations

import copy
import socket
from collections.abc import Iterator
from contextlib import closing
from threading import Thread
from uuid import uuid4

import pytest
from hive_metastore.ttypes import Database, NoSuchObjectException, SerDeInfo, StorageDescriptor, Table

from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConfigurationError, ConflictError
from tests.support.metastore import HiveMetastore


@pytest.fixture
def metastore(hive_metastore: HiveMetastore) -> Iterator[Metastore]:
    with closing(Metastore(hive_metastore.uri)) as metastore:
        yield metastore


@pytest.fixture
def table(metastore: Metastore, hive_metastore: HiveMetastore) -> Table:
    database = f"d_{uuid4().hex}"
    folder = f"{hive_metastore.warehouse}/{database}.db"
    metastore.call("create_database", Database(database, None, folder, {}))
    storage = StorageDescriptor(cols=[], location=f"{folder}/t", serdeInfo=SerDeInfo(), parameters={})
    table = Table(
        dbName=database,
        tableName="t",
        sd=storage,
        partitionKeys=[],
        parameters={"EXTERNAL": "TRUE", "epoch": "1"},
        tableType="EXTERNAL_TABLE",
    )
    metastore.call("create_table", table)
    found: Table = metastore.call("get_table", database, "t")
    return found


def test_declared_errors_come_through(metastore: Metastore) -> None:
    with pytest.raises(NoSuchObjectException):
        metastore.call("get_table", "no_such_database", "t")
    assert "default" in metastore.call("get_all_databases")


def test_of_many_who_change_a_table_at_once_one_wins(metastore: Metastore, table: Table) -> None:
    winners = []

    def change(number: int) -> None:
        mine = copy.deepcopy(table)
        mine.parameters |= {"epoch": "2", "winner": str(number)}
        try:
            metastore.alter_table(mine, "epoch", "1")
        except ConflictError:
            return
        winners.append(str(number))

    threads = [Thread(target=change, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [metastore.call("get_table", table.dbName, "t").parameters["winner"]] == winners


def test_it_connects_again_after_a_restart(metastore: Metastore, hive_metastore: HiveMetastore) -> None:
    assert metastore.call("get_all_databases")
    hive_metastore.stop()
    try:
        with pytest.raises(CatalogUnavailableError, match="Cannot reach the Hive metastore at thrift://"):
            metastore.call("get_all_databases")
    finally:
        hive_metastore.start()
    assert metastore.call("get_all_databases")


def test_the_next_address_is_tried(hive_metastore: HiveMetastore) -> None:
    with closing(Metastore(f"thrift://127.0.0.1:1, {hive_metastore.uri}")) as metastore:
        assert metastore.call("get_all_databases")


@pytest.mark.parametrize("uri", ["", "127.0.0.1:9083", "http://host:9083", "thrift://", "thrift://host:port"])
def test_a_wrong_address_is_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="write thrift://host:port"):
        Metastore(uri)


def test_a_wire_that_falls_silent_is_asked_for_signs_of_life() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client, transport = Metastore(f"thrift://127.0.0.1:{listener.getsockname()[1]}")._connect()
        del client
        handle = transport._TBufferedTransport__trans.handle
        assert handle.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
        assert handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
        transport.close()
