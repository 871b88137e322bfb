"""One load of a table answers every question about it, and all answers are of one moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from airflow_dynamic_tables.clients.stores import EntryStore, IcebergStore, MetastoreStore, PostgresStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import TableNotFoundError
from airflow_dynamic_tables.formats.base import LoadedTable
from tests.support.benches.staging import COLUMNS, Bench

LOOKUPS = {IcebergStore: 1, EntryStore: 1, MetastoreStore: 2, PostgresStore: 4}
"""Most lookups of one table. Hive asks again after it listed the partitions, whether these are of the same moment; PostgreSQL
is asked for the table, for its versions, whether it still has rows, and how many.
"""


def ask_everything(table: LoadedTable) -> dict[str, Any]:
    """The answer to every question."""
    questions: list[Callable[[], Any]] = [
        *(table.folder, table.current, table.layout, table.undone, table.position, table.versions, table.read),
        lambda: table.count(WHOLE_TABLE),
    ]
    return {str(number): question() for number, question in enumerate(questions)}


def count_lookups(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lookups of tables from here on, one line each."""
    made: list[str] = []

    def counted(ask: Callable[..., Any], *methods: str) -> Callable[..., Any]:
        def asked(*arguments: Any, **named: Any) -> Any:
            if not methods or arguments[0] in methods:
                made.append(str(arguments))
            return ask(*arguments, **named)

        return asked

    store = bench.store
    if isinstance(store, EntryStore):
        bench.store = replace(store, location=counted(store.location))
    elif isinstance(store, MetastoreStore):
        monkeypatch.setattr(store.metastore, "call", counted(store.metastore.call, "get_table"))
    elif isinstance(store, PostgresStore):
        monkeypatch.setattr(store.server, "connected", counted(store.server.connected))
    elif isinstance(store, IcebergStore):
        monkeypatch.setattr(store.tables, "load_table", counted(store.tables.load_table))
    return made


@pytest.mark.needs("catalog")
def test_one_load_answers_every_question(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.refresh({"1": [1], "2": [2]})
    bench.refresh({"1": [3]}, "1")
    lookups = count_lookups(bench, monkeypatch)
    table = bench.table.load()
    answers = ask_everything(table)
    assert 0 < len(lookups) <= LOOKUPS[type(bench.store)], lookups
    assert ask_everything(bench.table.load()) == answers


def test_a_loaded_table_stays_as_it_was_loaded(bench: Bench) -> None:
    first = bench.refresh({"1": [1]}, "1")
    loaded = bench.table.load()
    assert loaded.current() == first
    staged = bench.stage("t2", "1")
    second = bench.commit(staged, bench.write(staged, {"1": [2]}, (*COLUMNS, Column("m", "bigint"))))
    layout = loaded.layout()
    assert layout is not None
    assert sorted(column.name for column in layout.columns) == ["ds", "n"]
    assert (loaded.current(), loaded.versions(), loaded.undone()) == (first, [first], [])
    only_current = isinstance(bench.store, MetastoreStore)  # the partitions of an earlier moment cannot be asked for
    assert loaded.read().snapshot == (second if only_current else first).snapshot
    assert [version.number for version in bench.table.versions()] == [1, 2]


def test_a_table_without_a_version_answers_so(bench: Bench) -> None:
    bench.stage("t1").begin()
    table = bench.table.load()
    answers = (table.current(), table.layout(), table.undone(), table.position(), table.versions(), table.count(WHOLE_TABLE))
    assert answers == (None, None, [], None, [], None)
    for question in (table.read, lambda: table.sample(1)):
        with pytest.raises(TableNotFoundError):
            question()


def test_a_table_that_is_not_there_answers_so(bench: Bench) -> None:
    bench.path = ObjectPath(bench.path.database, "missing")
    table = bench.table.load()
    assert (table.current(), table.layout(), table.undone(), table.position(), table.versions()) == (None, None, [], None, [])
    with pytest.raises(TableNotFoundError):
        table.read()
