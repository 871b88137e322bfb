"""Values as plain data and back, and what the release before wrote of them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable, CatalogTable, JobState, RefreshHandler, decode
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.plain import REQUIRED, from_plain, to_plain
from airflow_dynamic_tables.core.refresh.expectations import Action, Expectation, RowCount
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.schedule import RefreshMode
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.versions import Version


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Leaf:
    name: str
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Tree:
    leaf: Leaf
    colour: Colour
    leaves: tuple[Leaf, ...] = field(default=(), metadata=REQUIRED)
    pair: tuple[str, Leaf] = ("a", Leaf("a"))
    named: Mapping[str, Leaf] = field(default_factory=dict)
    at: datetime | None = None
    took: timedelta = timedelta()
    path: Path = Path()
    partitions: PartitionSet = WHOLE_TABLE
    anything: Any = None
    nested: tuple[tuple[Leaf, ...], ...] | None = None


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
leaves = st.builds(Leaf, text, st.none() | st.integers())
trees = st.builds(
    Tree,
    leaves,
    st.sampled_from(Colour),
    st.lists(leaves, max_size=2).map(tuple),
    st.tuples(text, leaves),
    st.dictionaries(text, leaves, max_size=2),
    st.none() | st.datetimes(timezones=st.just(UTC)),
    st.timedeltas(timedelta(0), timedelta(days=99)).map(lambda time: timedelta(seconds=time.seconds)),
    text.map(lambda name: Path("/", name.replace("\0", ""))),
    st.lists(st.dictionaries(text, st.none() | text, max_size=2), max_size=2).map(PartitionSet.of),
    st.none() | text | st.lists(st.integers()),
    st.none() | st.lists(st.lists(leaves, max_size=2).map(tuple), max_size=2).map(tuple),
)


@given(trees)
def test_a_value_survives_being_json(tree: Tree) -> None:
    assert from_plain(Tree, json.loads(json.dumps(to_plain(tree)))) == tree


WHOLE = {"leaf": {"name": "a"}, "colour": "red", "leaves": []}


def test_a_field_that_came_later_has_its_default() -> None:
    assert from_plain(Tree, WHOLE) == Tree(Leaf("a"), Colour.RED)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ([], "is no Tree"),
        (None, "is no Tree"),
        ({"leaf": {"name": "a"}, "colour": "red"}, "'leaves'"),
        ({"leaf": {}, "colour": "red", "leaves": []}, "leaf: 'name' is missing"),
        ({**WHOLE, "leaf": {"name": 1}}, "leaf: name: 1 is no str"),
        ({**WHOLE, "leaf": {"name": "a", "size": True}}, "leaf: size: True is no int"),
        ({**WHOLE, "leaf": {"name": "a", "size": "x" * 10**6}}, r"size: 'x+\.\.\.x+' is no int$"),
        ({**WHOLE, "unknown": 1}, "unexpected keyword argument 'unknown'"),
        ({**WHOLE, "colour": "green"}, "'green' is not a valid Colour"),
        ({**WHOLE, "leaves": "ab"}, "'ab' is no list"),
        ({**WHOLE, "named": []}, "is no mapping"),
        ({**WHOLE, "at": "noon"}, "Invalid isoformat string"),
        ({**WHOLE, "partitions": 1}, "1 is no list of partitions"),
        ({**WHOLE, "pair": ["a"]}, "shorter"),
    ],
)
def test_other_data_are_refused_by_name(data: object, why: str) -> None:
    with pytest.raises(ValueError, match=f"^not a Tree: .*{why}"):
        from_plain(Tree, data)


def test_what_has_no_plain_form_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no plain form"):
        to_plain([object()])


def test_a_time_of_a_database_is_taken_as_it_is() -> None:
    noon = datetime(2024, 3, 1, 12, tzinfo=UTC)
    assert from_plain(Tree, {**WHOLE, "at": noon}).at == noon


def test_a_version_in_the_metadata_of_a_table() -> None:
    written = (
        '{"committed_at": "2024-03-02T00:00:01+00:00", "data_timestamp": "2024-03-01T00:00:00+00:00", "number": 3,'
        ' "snapshot": "t3", "sources": {"lake.raw.orders": "files:1"}, "token": "t3"}'
    )
    march = datetime(2024, 3, 1, tzinfo=UTC)
    later = datetime(2024, 3, 2, 0, 0, 1, tzinfo=UTC)
    assert from_plain(Version, json.loads(written)) == Version(3, "t3", "t3", march, later, {"lake.raw.orders": "files:1"})


def test_a_dynamic_table_of_a_catalog() -> None:
    written = (
        '{"columns": [{"name": "x", "type": "bigint", "nullable": true, "comment": null}], "original_query": "SELECT 1 AS x",'
        ' "expanded_query": "SELECT 1 AS x", "freshness": "1 day", "declared_refresh_mode": "AUTO", "refresh_handler":'
        ' {"actual_refresh_mode": "FULL", "job_state": "RUNNING", "job_detail": {"schedulerType": "airflow"}}, "comment": null,'
        ' "partition_keys": ["ds"], "format": "iceberg", "location": null, "options": {}, "properties": {}, "snapshot": null}'
    )
    handler = RefreshHandler(RefreshMode.FULL, JobState.RUNNING, {"schedulerType": "airflow"})
    table = CatalogDynamicTable(
        (Column("x", "bigint"),), "SELECT 1 AS x", "SELECT 1 AS x", "1 day", RefreshMode.AUTO, handler, partition_keys=("ds",)
    )
    assert decode("dynamic_table", json.loads(written), "t") == table
    assert to_plain(table).items() >= json.loads(written).items()
    assert decode("table", {"columns": [], "format": "orc"}, "t") == CatalogTable(format="orc")


def test_expectations_in_a_plan() -> None:
    written = '{"name": "positive", "action": "drop", "predicate": "x > 0", "unique": ["a", "b"]}'
    assert from_plain(Expectation, json.loads(written)) == Expectation("positive", Action.DROP, "x > 0", ("a", "b"))
    bounds = '{"name": "row_count", "action": "fail", "min": 1, "max": null, "max_decrease": 0.5, "max_increase": null}'
    assert from_plain(RowCount, json.loads(bounds)) == RowCount("row_count", Action.FAIL, min=1, max_decrease=0.5)


def test_a_plan_of_ten_thousand_files_is_no_work() -> None:
    files = [f"s3://bucket/warehouse/orders/ds=2024-01-01/part-{number:05}.parquet" for number in range(10_000)]
    source = {"identifier": "a.b.c", "view": "c", "format": "parquet", "version": "1", "files": files, "parts": []}
    march = "2024-03-01T00:00:00+00:00"
    names = ("token", "identifier", "reason", "statement", "query", "stage", "file_format")
    plan = {**dict.fromkeys(names, "x"), "keys_in_files": True, "schedule_time": march, "action": "FULL", "sources": [source]}
    start = time.process_time()
    read = RefreshPlan.from_json(json.dumps(plan))
    assert RefreshPlan.from_json(read.to_json()) == read
    assert time.process_time() - start < 1
