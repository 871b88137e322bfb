"""Two that declare one table otherwise: the second one is told of both; a checkout that moved is the same one."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.deployments.diffing import ApplyOutcome, apply, differences
from airflow_dynamic_tables.services.deployments.values import Change
from airflow_dynamic_tables.services.lifecycle.registration import Registration, ensure
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.tables.entries import deployed_by
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace

NUMBERS = TableIdentifier("lake", "sales", "numbers")
Open = Callable[[str], Workspace]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    lake = f"{{url: 'sqlite:///{tmp_path}/lake.db', warehouse: 'file://{tmp_path}/warehouse'}}"
    (tmp_path / "catalogs.yaml").write_text(f"catalogs: [{{name: lake, type: sql, connection-params: {lake}}}]")
    with ExitStack() as stack:

        def open_one(name: str) -> Workspace:
            settings = WorkspaceSettings(
                f"sqlite:///{tmp_path}/{name}.db", f"file://{tmp_path}/unused", tmp_path / "catalogs.yaml"
            )
            return stack.enter_context(open_workspace(settings))

        yield open_one


def declared(file: Path, query: str = "SELECT 1 AS x", name: str = "numbers") -> Definitions:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"dynamic_tables: [{{name: lake.sales.{name}, freshness: 1 day, query: {query}}}]")
    return load_definitions(file.parent)


def owner(workspace: Workspace) -> str:
    table = workspace.catalog("lake").get_table(NUMBERS.path)
    assert isinstance(table, CatalogDynamicTable)
    known = deployed_by(table.definition)
    assert known.installation == workspace.ledger.installation()
    assert known.host == socket.gethostname()
    return known.file


def test_of_two_that_register_it_at_once_the_second_one_is_told(opened: Open, tmp_path: Path) -> None:
    first, second = opened("first"), opened("second")
    one = declared(tmp_path / "one" / "sales.yaml").tables[NUMBERS]
    other = declared(tmp_path / "other" / "sales.yaml", "SELECT 2 AS x").tables[NUMBERS]
    catalog = second.catalog("lake")

    class Late(type(catalog)):  # type: ignore[misc]
        """A catalog in which somebody is faster."""

        def create_table(self, *arguments: object, **options: object) -> None:
            assert ensure(first, one)[1] is Registration.CREATED
            super().create_table(*arguments, **options)

    catalog.__class__ = Late
    with pytest.raises(ConfigurationError, match="is declared by two"):
        ensure(second, other)
    catalog.__class__ = Late.__base__
    assert owner(first) == str(tmp_path / "one" / "sales.yaml")


def test_of_two_installations_the_second_one_is_told(opened: Open, tmp_path: Path) -> None:
    mine, theirs = opened("mine"), opened("theirs")
    first = declared(tmp_path / "mine" / "a.yaml")
    second = declared(tmp_path / "theirs" / "b.yaml", "SELECT 2 AS x")
    ensure(mine, first.tables[NUMBERS])
    with pytest.raises(ConfigurationError) as raised:
        ensure(theirs, second.tables[NUMBERS])
    for place in (tmp_path / "mine" / "a.yaml", tmp_path / "theirs" / "b.yaml"):
        assert str(place) in str(raised.value)
    assert f"dynamic-tables apply {NUMBERS} --take-over" in str(raised.value)
    assert owner(mine) == str(tmp_path / "mine" / "a.yaml")

    (found,) = differences(theirs, second)
    assert found.claimed == str(raised.value)
    refused = apply(theirs, found, second.tables[NUMBERS])
    assert (refused.outcome, refused.detail) == (ApplyOutcome.NOT_DONE, found.claimed)
    assert apply(theirs, found, second.tables[NUMBERS], takes_over=True).outcome is ApplyOutcome.REGISTERED
    assert owner(theirs) == str(tmp_path / "theirs" / "b.yaml")
    with pytest.raises(ConfigurationError, match="is declared by two"):
        ensure(mine, first.tables[NUMBERS])


def test_the_same_declaration_is_told_and_stops_no_refresh(opened: Open, tmp_path: Path) -> None:
    mine, theirs = opened("mine"), opened("theirs")
    definitions = declared(tmp_path / "both" / "a.yaml")
    ensure(mine, definitions.tables[NUMBERS])
    assert ensure(theirs, definitions.tables[NUMBERS])[1] is Registration.UNCHANGED
    (found,) = differences(theirs, definitions)
    assert found.change is Change.UNCHANGED
    assert found.claimed is not None
    assert apply(theirs, found, definitions.tables[NUMBERS], takes_over=True).outcome is ApplyOutcome.REGISTERED
    (found,) = differences(theirs, definitions)
    assert found.claimed is None
    assert [one.change for one in differences(mine, Definitions())] == [], "what others deploy is not ours to miss"


def test_what_was_moved_is_the_same(opened: Open, tmp_path: Path) -> None:
    workspace = opened("mine")
    ensure(workspace, declared(tmp_path / "old" / "a.yaml").tables[NUMBERS])
    (tmp_path / "old").rename(tmp_path / "new")
    moved = load_definitions(tmp_path / "new")
    (found,) = differences(workspace, moved)
    assert (found.change, found.claimed) == (Change.UNCHANGED, None)
    assert ensure(workspace, moved.tables[NUMBERS])[1] is Registration.UNCHANGED

    (tmp_path / "new" / "a.yaml").unlink()
    renamed = declared(tmp_path / "new" / "b.yaml", "SELECT 2 AS x")
    assert ensure(workspace, renamed.tables[NUMBERS])[1] is Registration.ALTERED
    assert owner(workspace) == str(tmp_path / "new" / "b.yaml")


def test_another_folder_that_still_declares_it_is_told(opened: Open, tmp_path: Path) -> None:
    workspace = opened("mine")
    ensure(workspace, declared(tmp_path / "one" / "a.yaml").tables[NUMBERS])
    other = declared(tmp_path / "two" / "a.yaml", "SELECT 2 AS x")
    (found,) = differences(workspace, other)
    assert found.claimed is not None
    for folder in ("one", "two"):
        assert f"{tmp_path}/{folder}/a.yaml on {socket.gethostname()}" in found.claimed
    assert apply(workspace, found, other.tables[NUMBERS]).outcome is ApplyOutcome.NOT_DONE
    declared(tmp_path / "one" / "a.yaml", name="numbers_of_others")
    (found,) = differences(workspace, other)
    assert found.claimed is None, "it is no longer declared there"


def test_copies_of_a_folder_are_one_place(opened: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    workspace = opened("mine")
    places = ("bundle/tracking_repo", "bundle/versions/1a2b", "releases/7", "home/ada/checkout")
    for number, place in enumerate(places):
        definitions = declared(tmp_path / place / "dags" / "a.yaml", f"SELECT {number} AS x")
        found = differences(workspace, definitions)
        assert [one.claimed for one in found] == [None]
        apply(workspace, found[0], definitions.tables[NUMBERS])
    told = [message for message in caplog.messages if "was deployed from" in message]
    assert len(told) == len(places) - 1
    assert all(str(tmp_path / place) in message for place, message in zip(places, told, strict=False))


def test_one_that_nobody_marked_is_taken(opened: Open, tmp_path: Path) -> None:
    mine, theirs = opened("mine"), opened("theirs")
    definitions = declared(tmp_path / "mine" / "a.yaml")
    ensure(mine, definitions.tables[NUMBERS])
    catalog = mine.catalog("lake")
    table = catalog.get_table(NUMBERS.path)
    assert isinstance(table, CatalogDynamicTable)
    catalog.alter_table(NUMBERS.path, replace(table, definition=None))
    ensure(theirs, declared(tmp_path / "theirs" / "a.yaml", "SELECT 2 AS x").tables[NUMBERS])
    assert owner(theirs) == str(tmp_path / "theirs" / "a.yaml")
