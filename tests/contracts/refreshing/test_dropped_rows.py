"""Rows that expectations drop are kept in a table beside theirs: ``keep_dropped``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import fsspec
import pytest

from airflow_dynamic_tables.catalog.values import CatalogTable
from airflow_dynamic_tables.clients.files import list_entries
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.steps import Step
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import (
    ConfigurationError,
    DynamicTableError,
    ExpectationError,
    QuarantinedError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from airflow_dynamic_tables.services.lifecycle.dropping import drop
from airflow_dynamic_tables.services.lifecycle.registration import rename
from airflow_dynamic_tables.services.maintenance.sweeping import sweep
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.writes.quarantine import publish
from tests.contracts.refreshing.place import MARCH, Place
from tests.support.dropped_rows import YAML, dropped_of, job

pytestmark = pytest.mark.needs("dropped rows")


class Bench:
    """The table of a place, whose expectations drop negative and odd numbers."""

    def __init__(self, place: Place) -> None:
        self.place, self.workspace, self.table = place, place.workspace, place.table
        self.more = ""
        place.clock.time = MARCH + timedelta(days=10)

    @property
    def beside(self) -> TableIdentifier:
        return replace(self.table, table=f"{self.table.table}__dropped")

    def request(self, day: str, token: str, **asked: Any) -> RefreshRequest:
        file = self.place.folder / "tables.yaml"
        file.write_text(YAML.format(table=self.table, format=self.place.format, more=self.more))
        table = load_definitions(file).tables[self.table]
        request = RefreshRequest(table, {}, self.place.clock(), token, token, partitions=PartitionSet.of([{"ds": day}]))
        return replace(request, **asked)

    def refresh(self, token: str, *numbers: int, day: str = "2024-03-01", **asked: Any) -> None:
        """Refresh a day whose source has these numbers."""
        self.place.clock.time += timedelta(minutes=5)
        assert isinstance(run(self.workspace, self.request(day, token, **asked), job(day, numbers)), Version)

    def rows(self) -> list[int]:
        return sorted(row["n"] for row in self.workspace.table(self.table, self.place.format).sample(100))

    def dropped(self) -> dict[str, dict[int, list[str]]]:
        """The dropped numbers with the expectations that they violate, by refresh."""
        return dropped_of(self.workspace, self.table, self.place.format)

    def at(self, step: Step, token: str, happens: Callable[[], None]) -> None:
        self.place.at(step, token, happens)


@pytest.fixture
def bench(place: Place) -> Bench:
    return Bench(place)


class KilledError(BaseException):
    """The process ended here."""


def kill() -> None:
    raise KilledError


@pytest.mark.sampled
def test_each_refresh_keeps_what_it_dropped(bench: Bench) -> None:
    bench.refresh("a", 2, -4, 3, -5)
    bench.refresh("b", 6, 7, day="2024-03-02")
    assert bench.rows() == [2, 6]
    assert bench.dropped() == {"a": {-4: ["positive"], 3: ["even"], -5: ["positive", "even"]}, "b": {7: ["even"]}}
    entry = bench.workspace.catalog(bench.table.catalog).get_table(bench.beside.path)
    assert isinstance(entry, CatalogTable), "readers see an ordinary table"
    assert entry.partition_keys == ("dropped_on", "dropped_by")
    bench.refresh("c", 2, 4)
    assert set(bench.dropped()) == {"a", "b"}, "a refresh that drops nothing keeps nothing"


@pytest.mark.sampled
@pytest.mark.parametrize("step", [Step.PUBLISHING, Step.COMMIT, Step.PUBLISHED])
def test_a_killed_refresh_does_not_keep_rows_twice(bench: Bench, step: Step) -> None:
    """The process ends before, between and after the two commits; then the task is tried again."""
    bench.refresh("a", 2, 3)
    bench.at(step, "killed", kill)
    with pytest.raises(KilledError):
        bench.refresh("killed", 4, 5)
    has_landed = step is Step.PUBLISHED
    assert bench.rows() == ([4] if has_landed else [2]), "the last version stays"
    assert set(bench.dropped()) == ({"a"} if step is Step.COMMIT else {"a", "killed"}), "before the version of the table"
    bench.refresh("again", 4, 5)
    assert bench.rows() == [4]
    assert bench.dropped() == {"a": {3: ["even"]}, "again": {5: ["even"]}, **({"killed": {5: ["even"]}} if has_landed else {})}


@pytest.mark.large
def test_a_version_is_not_committed_without_its_dropped_rows(bench: Bench) -> None:
    bench.refresh("a", 2, 3)

    def lose() -> None:
        stage = bench.workspace.ledger.get_stage("lost")
        assert stage is not None
        folder = bench.workspace.table(bench.beside, bench.place.format).folder()
        for entry in list_entries(str(folder)):
            if "=lost/part." in entry.path:
                system, path = fsspec.core.url_to_fs(entry.path)
                system.rm(path)

    bench.at(Step.COMMIT, "lost", lose)
    with pytest.raises(DynamicTableError, match=r"missing or damaged|gone|No such"):
        bench.refresh("lost", 4, 5)
    assert bench.rows() == [2]
    assert set(bench.dropped()) == {"a"}
    bench.refresh("next", 4, 5)
    assert (bench.rows(), set(bench.dropped())) == ([4], {"a", "next"})


@pytest.mark.large
def test_a_failed_refresh_keeps_nothing_and_one_in_quarantine_does(bench: Bench) -> None:
    bench.more = "- {row_count: {min: 1}}\n  - {row_count: {max: 3}, name: few, action: fail}"
    bench.refresh("a", 2, 3)
    with pytest.raises(ExpectationError):
        bench.refresh("failed", 2, 4, 6, 8, 9)
    assert set(bench.dropped()) == {"a"}
    with pytest.raises(QuarantinedError):
        bench.refresh("held", 5, 7)
    assert set(bench.dropped()) == {"a", "held"}, "whoever decides sees them"
    bench.refresh("b", 4, 11, day="2024-03-02")
    assert set(bench.dropped()) == {"a", "held", "b"}
    publish(bench.workspace, "held")
    assert (bench.rows(), set(bench.dropped())) == ([4], {"a", "held", "b"})


@pytest.mark.sampled
def test_the_maintenance_removes_old_rows_and_those_of_failed_refreshes(bench: Bench) -> None:
    bench.refresh("a", 2, 3)
    bench.place.clock.time += timedelta(days=2)
    bench.refresh("b", 4, 5)
    bench.at(Step.PUBLISHING, "killed", kill)
    with pytest.raises(KilledError):
        bench.refresh("killed", 6, 7)
    assert set(bench.dropped()) == {"a", "b", "killed"}
    assert sweep(bench.workspace).failed == ()
    assert set(bench.dropped()) == {"a", "b"}
    bench.place.clock.time += timedelta(days=2)
    assert sweep(bench.workspace).failed == ()
    assert set(bench.dropped()) == {"b"}
    bench.place.clock.time += timedelta(days=3)
    assert sweep(bench.workspace).failed == ()
    assert bench.dropped() == {}
    assert bench.rows() == [4]
    bench.refresh("c", 8, 9)
    assert set(bench.dropped()) == {"c"}


@pytest.mark.sampled
def test_dropped_rows_go_with_their_table(bench: Bench) -> None:
    bench.refresh("a", 2, 3)
    former = bench.table
    bench.table = replace(former, table="numbers")
    catalog = bench.workspace.catalog(former.catalog)
    rename(bench.workspace, former, bench.table)
    assert not catalog.table_exists(replace(former, table=f"{former.table}__dropped").path)
    assert bench.dropped() == {"a": {3: ["even"]}}
    bench.refresh("b", 2, 5, day="2024-03-02")
    assert set(bench.dropped()) == {"a", "b"}
    renamed, bench.table = bench.table, former
    bench.refresh("c", 2, 7)
    assert set(bench.dropped()) == {"c"}, "a new table of the former name has a new one"
    drop(bench.workspace, former)
    assert not catalog.table_exists(bench.beside.path)
    bench.table = renamed
    assert set(bench.dropped()) == {"a", "b"}
    drop(bench.workspace, renamed)
    assert not catalog.table_exists(bench.beside.path)
    with pytest.raises(TableNotFoundError):
        bench.dropped()


@pytest.mark.large
def test_another_table_of_that_name_is_left_alone(bench: Bench) -> None:
    catalog = bench.workspace.catalog(bench.table.catalog)
    bench.refresh("a", 2, 3)
    new = replace(bench.table, table="numbers")
    other = CatalogTable(columns=(Column("x", "bigint"),), format=bench.place.format)
    catalog.create_table(replace(new, table="numbers__dropped").path, other)
    with pytest.raises(TableAlreadyExistsError, match="numbers__dropped exists already"):
        rename(bench.workspace, bench.table, new)
    bench.table = new
    with pytest.raises(ConfigurationError, match="numbers__dropped, which is another table already"):
        bench.refresh("b", 2, 3)
    drop(bench.workspace, new)
    assert catalog.table_exists(bench.beside.path)
