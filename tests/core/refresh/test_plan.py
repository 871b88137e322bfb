"""Plan, result and error of a job: they survive being JSON, and half a file is no plan."""

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.expectations import Action, Expectation, ExpectationResult
from airflow_dynamic_tables.core.refresh.plan import JobError, RefreshPlan, RefreshResult, SourceBinding, StagedFile
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.sinks import Sink

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
mappings = st.dictionaries(text, text, max_size=3)
tuples = st.lists(text, max_size=3).map(tuple)
specs = st.lists(mappings, max_size=3).map(tuple)
offsets = st.integers(min_value=-14 * 60, max_value=14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))

bindings = st.builds(
    SourceBinding,
    identifier=text,
    view=text,
    format=text,
    version=text,
    files=tuples,
    base_path=st.none() | text,
    schema=st.none() | text,
    partition_keys=tuples,
    options=mappings,
    table=st.none() | text,
)
plans = st.builds(
    RefreshPlan,
    **dict.fromkeys(("token", "identifier", "reason", "statement", "query", "stage", "file_format", "timezone"), text),
    keys_in_files=st.booleans(),
    schedule_time=st.datetimes(timezones=offsets),
    action=st.sampled_from(RefreshAction),
    partition_keys=tuples,
    partitions=st.lists(mappings, max_size=3).map(PartitionSet.of),
    sources=st.lists(bindings, max_size=2).map(tuple),
    comment=st.none() | text,
    comments=mappings,
    expectations=st.lists(st.builds(Expectation, text, st.sampled_from(Action), st.none() | text, tuples), max_size=2).map(tuple),
    data_timestamp=st.none() | st.datetimes(timezones=offsets),
    base=st.none() | text,
    sink=st.none() | st.builds(Sink, text, text, text, st.none() | text, st.none() | text, st.integers(), st.integers()),
)
results = st.builds(
    RefreshResult,
    token=text,
    application_id=text,
    rows=st.integers(min_value=0),
    table_bytes=st.integers(min_value=0),
    files=st.lists(st.builds(StagedFile, text, st.integers(min_value=0)), max_size=3).map(tuple),
    columns=st.lists(st.builds(Column, text, text, st.booleans(), st.none() | text), max_size=3).map(tuple),
    partitions=specs,
    seconds=st.dictionaries(text, st.floats(min_value=0, allow_nan=False, allow_infinity=False), max_size=3),
    expectations=st.lists(st.builds(ExpectationResult, text, text, st.integers(min_value=0), st.none() | text), max_size=2).map(
        tuple
    ),
)
errors = st.builds(JobError, text, text)

Document = RefreshPlan | RefreshResult | JobError


@given(plans | results | errors)
def test_a_document_survives_being_json(document: Document) -> None:
    assert type(document).from_json(document.to_json()) == document


@given(plans | results | errors, st.data())
def test_a_truncated_document_is_refused(document: Document, data: st.DataObject) -> None:
    whole = document.to_json()
    part = whole[: data.draw(st.integers(min_value=0, max_value=len(whole) - 1))]
    with pytest.raises(ValueError):  # noqa: PT011 - the JSON parser's words
        type(document).from_json(part)


@pytest.mark.parametrize("document", [RefreshPlan, RefreshResult, JobError], ids=lambda document: document.__name__)
@pytest.mark.parametrize("other", ["[]", "null", "1", '"text"', "{}", '{"token": "t"}', '{"unknown": 1}'])
def test_other_json_is_refused_by_name(document: type[Document], other: str) -> None:
    with pytest.raises(ValueError, match=f"not a {document.__name__}"):
        document.from_json(other)


def plan(schedule_time: datetime) -> RefreshPlan:
    return RefreshPlan(
        "t", "a.b.c", schedule_time, RefreshAction.FULL, "because", "SELECT 1", "SELECT 1", "/stage/t", "parquet", True
    )


@pytest.mark.parametrize("field", ["sources", "partitions", "partition_keys", "schedule_time"])
def test_a_field_of_another_type_is_refused(field: str) -> None:
    fields = json.loads(plan(datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC"))).to_json())
    with pytest.raises(ValueError, match="not a RefreshPlan"):
        RefreshPlan.from_json(json.dumps({**fields, field: 1}))


def test_a_source_without_files_is_refused() -> None:
    fields = json.loads(plan(datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC"))).to_json())
    with pytest.raises(ValueError, match="not a RefreshPlan: 'files'"):
        RefreshPlan.from_json(json.dumps({**fields, "sources": [{"identifier": "a"}]}))


@pytest.mark.parametrize(
    ("table_format", "file_format", "keys_in_files"),
    [("iceberg", "parquet", True), ("parquet", "parquet", False), ("orc", "orc", False)],
)
def test_a_plan_that_names_the_format_of_its_table_says_the_same_as_ever(
    table_format: str, file_format: str, keys_in_files: bool
) -> None:
    """As the first release wrote them: such plans may still wait in quarantine."""
    found = plan(datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC")))
    fields = json.loads(found.to_json())
    old = {name: value for name, value in fields.items() if name not in ("file_format", "keys_in_files")}
    read = RefreshPlan.from_json(json.dumps({**old, "format": table_format}))
    assert read == replace(found, file_format=file_format, keys_in_files=keys_in_files)
    with pytest.raises(ValueError, match="not a RefreshPlan: 'later'"):
        RefreshPlan.from_json(json.dumps({**old, "format": "later"}))


def test_the_second_of_two_same_hours_stays_the_second() -> None:
    time = datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
    assert RefreshPlan.from_json(plan(time).to_json()).schedule_time.isoformat() == "2024-10-27T02:30:00+01:00"


def test_everything_of_a_stage_lies_below_it() -> None:
    found = plan(datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC")))
    assert (found.data_location, found.plan_location) == ("/stage/t/data", "/stage/t/_plan.json")
    assert (found.result_location, found.error_location) == ("/stage/t/_result.json", "/stage/t/_error.json")


def test_rows_for_a_server_end_in_its_table() -> None:
    sink = Sink("jdbc:postgresql://host/shop", "org.postgresql.Driver", '"crm"."totals__stage_t"')
    found = replace(plan(datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC"))), sink=sink)
    assert (found.data_location, found.rows_location) == ("/stage/t/data", '"crm"."totals__stage_t"')
    assert replace(found, sink=None).rows_location == "/stage/t/data"
    assert RefreshResult("t", "app", 3, (), (), table_bytes=8192).bytes == 8192


def test_a_result_adds_up_its_files() -> None:
    files = (StagedFile("a.parquet", 10), StagedFile("b.parquet", 32))
    assert RefreshResult("t", "app", 3, files, ()).bytes == 42
