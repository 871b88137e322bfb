"""What a DAG run asks for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import DynamicTable, RunParam
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.operators.run_arguments import Runs, is_scheduled, left_out, of_group, read_request

DAY = datetime(2024, 1, 2, tzinfo=UTC)


@pytest.fixture
def table(tmp_path: Path) -> DynamicTable:
    path = tmp_path / "tables.yaml"
    path.write_text(
        "dynamic_tables:\n- {name: t, freshness: 1 day, timezone: Europe/Berlin, partitioned_by: [ds, hh], "
        "query: 'SELECT 1 AS x, 2 AS ds, 3 AS hh'}\n"
    )
    (found,) = load_definitions(path).tables.values()
    return found


def run(conf: dict[str, Any] | None = None, partition_date: datetime | None = None, **context: Any) -> dict[str, Any]:
    dag_run = SimpleNamespace(conf=conf, partition_date=partition_date, run_after=DAY + timedelta(days=9))
    ti = SimpleNamespace(id="t1", dag_id="dag", run_id="run", task_id="refresh")
    return {"dag_run": dag_run, "params": {}, "ti": ti, **context}


def test_a_scheduled_run_is_for_its_tick(table: DynamicTable) -> None:
    tick = pendulum.datetime(2024, 1, 2, tz="UTC")
    arguments = read_request(run(data_interval_end=tick, logical_date=tick.add(days=-1)), table, {})
    assert arguments.schedule_time == DAY
    assert type(arguments.schedule_time) is datetime
    assert (arguments.partitions, arguments.full_refresh) == (None, False)


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (run(), DAY + timedelta(days=9)),
        (run(logical_date=DAY), DAY),
        (run(logical_date=DAY, data_interval_end=DAY + timedelta(days=1)), DAY + timedelta(days=1)),
        (run(logical_date=DAY, partition_date=DAY + timedelta(days=2)), DAY + timedelta(days=2)),
        (run({"schedule_time": "2024-03-01T00:00:00Z"}, partition_date=DAY), datetime(2024, 3, 1, tzinfo=UTC)),
    ],
    ids=["run_after", "logical_date", "data_interval_end", "partition_date", "asked for"],
)
def test_the_most_specific_date_wins(table: DynamicTable, context: dict[str, Any], expected: datetime) -> None:
    assert read_request(context, table, {}).schedule_time == expected


def test_a_partition_without_its_date_is_refused(table: DynamicTable) -> None:
    """Airflow 3.2 gives a task the key of a run's partition, and no date."""
    context = run(logical_date=DAY)
    context["dag_run"] = SimpleNamespace(conf={}, partition_key="2024-01-01", run_after=DAY + timedelta(days=9))
    with pytest.raises(ConfigurationError, match=r"This run is of partition '2024-01-01', and Airflow .* does not tell its date"):
        read_request(context, table, {})
    context["dag_run"].conf = {"schedule_time": "2024-01-02T00:00:00Z"}
    assert read_request(context, table, {}).schedule_time == DAY


def test_a_time_without_offset_is_in_the_tables_time_zone(table: DynamicTable) -> None:
    asked = read_request(run({"schedule_time": " 2024-01-02 06:00:00 "}), table, {}).schedule_time
    assert asked == datetime(2024, 1, 2, 6, tzinfo=timezone(timedelta(hours=1)))


def test_params_count_where_the_conf_says_nothing(table: DynamicTable) -> None:
    context = run({"full_refresh": True}) | {"params": {"schedule_time": "2024-01-02T00:00:00+00:00", "full_refresh": False}}
    arguments = read_request(context, table, {})
    assert (arguments.schedule_time, arguments.full_refresh) == (DAY, True)


@pytest.mark.parametrize("empty", [None, "", "  "])
def test_an_empty_field_of_the_form_asks_for_nothing(table: DynamicTable, empty: str | None) -> None:
    form = {"schedule_time": empty, "partition": empty, "full_refresh": False}
    assert read_request(run(form, logical_date=DAY), table, {}) == read_request(run(logical_date=DAY), table, {})


def test_partitions_are_separated_by_commas(table: DynamicTable) -> None:
    arguments = read_request(run({"partition": "ds=2024-01-01/hh=03, ds=a%2Cb/hh=04"}, logical_date=DAY), table, {})
    assert arguments.partitions == PartitionSet.of([{"ds": "2024-01-01", "hh": "03"}, {"ds": "a,b", "hh": "04"}])


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"schedule_time": "yesterday"}, "schedule_time 'yesterday' is no time; write for example 2024-01-31T06:00:00"),
        ({"partition": "2024-01-01"}, "partition: '2024-01-01' is no partition; write for example ds=2024-01-01"),
        ({"partition": "ds=2024-01-01"}, "partition: partition 'ds=2024-01-01' does not fit the partition keys ds, hh"),
        ({"full_refresh": "yes"}, "full_refresh must be true or false, not 'yes'"),
        ({"full_refresh": 0}, "full_refresh must be true or false, not 0"),
        ({"Partition": "ds=1"}, "The conf of this run has an unknown key 'Partition'; did you mean 'partition'?"),
        (
            {"day": "x" * 10_000},
            "an unknown key 'day'; legal are schedule_time, partition, full_refresh, even_if_suspended, do_not_wait",
        ),
        ({"partition": ["ds=1"]}, "partition must be text, not ['ds=1']; put it in quotes"),
        ({"schedule_time": "2999-01-02 00:00:00"}, "schedule_time 2999-01-02T00:00:00+01:00 is in the future"),
        ({"schedule_time": 20240101}, "schedule_time must be text, not 20240101; put it in quotes"),
        (
            {"schedule_time": "0001-01-01"},
            "schedule_time 0001-01-01T00:00:00 cannot be planned for: write a time",
        ),
        ({"schedule_time": "9999-12-31T23:59:59-14:00"}, "cannot be planned for: write a time of the years 200 to 9800"),
        (5, 'The conf of a run must be a mapping such as {"partition": "ds=2024-01-31"}, not 5'),
        ({"partition": "ds=1/hh=2", "full_refresh": True}, "partition and full_refresh exclude each other"),
    ],
)
def test_nonsense_is_refused_with_a_sentence(table: DynamicTable, conf: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        read_request(run(conf, logical_date=DAY), table, {})
    assert message in str(error.value)


def test_a_param_of_the_definition_may_stand_in_the_conf(table: DynamicTable) -> None:
    with_param = replace(table, params={"region": RunParam()})
    assert read_request(run({"region": "eu"}, logical_date=DAY), with_param, {}).schedule_time == DAY
    with pytest.raises(ConfigurationError, match="unknown key 'region'"):
        read_request(run({"region": "eu"}, logical_date=DAY), table, {})


@pytest.fixture
def group(table: DynamicTable) -> Runs:
    return of_group([table, replace(table, identifier=TableIdentifier("lake", "crm", "t")), replace(table, identifier=OTHER)])


OTHER = TableIdentifier("lake", "crm", "other")


def test_a_run_of_a_group_is_for_the_newest_tick_of_each_table(table: DynamicTable, group: Runs) -> None:
    midnight = datetime(2024, 1, 1, 23, tzinfo=UTC)
    for date in (midnight, midnight + timedelta(hours=23)):
        assert read_request(run(data_interval_end=date), table, {}, group).schedule_time == midnight


def test_some_tables_of_a_group(table: DynamicTable, group: Runs) -> None:
    other = replace(table, identifier=OTHER)
    for asked in (None, [], ["default.default.t", "other"]):
        conf = run({"tables": asked})
        assert (left_out(conf, table, group), left_out(conf, other, group)) == (None, None)
    chosen = run({"tables": ["crm.other"]})
    assert (left_out(chosen, table, group), left_out(chosen, other, group)) == ("this run is for lake.crm.other", None)
    one = run({"tables": ["lake.crm.other"], "partition": "ds=2024-01-01/hh=1"})
    assert read_request(one, other, {}, group).partitions == PartitionSet.of([{"ds": "2024-01-01", "hh": "1"}])


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"tables": ["ather"]}, "tables: this DAG has no table 'ather'"),
        ({"tables": ["t"]}, "tables: this DAG has no table 't'"),
        ({"tables": "other"}, "tables must be a list of names, not 'other'"),
        ({"tables": [1]}, "tables: this DAG has no table 1"),
        ({"table": ["other"]}, "unknown key 'table'; did you mean 'tables'?"),
        ({"partition": "ds=2024-01-01"}, "partition needs `tables` with the one table that it is of"),
        ({"tables": ["other", "crm.t"], "partition": "ds=2024-01-01"}, "partition needs `tables` with the one table"),
    ],
)
def test_what_no_run_of_a_group_can_be_for(table: DynamicTable, group: Runs, conf: dict[str, Any], message: str) -> None:
    def ask() -> None:
        left_out(run(conf), table, group)
        read_request(run(conf), table, {}, group)

    with pytest.raises(ConfigurationError) as refused:
        ask()
    assert message in str(refused.value)


def test_only_the_schedule_leaves_tables_out() -> None:
    def of(kind: str, **conf: object) -> dict[str, Any]:
        return {"dag_run": SimpleNamespace(conf=conf, run_type=kind), "params": {}}

    assert [is_scheduled(of(kind)) for kind in ("scheduled", "backfill", "manual", "asset_triggered")] == [
        True,
        True,
        False,
        False,
    ]
    assert not is_scheduled(of("backfill", full_refresh=True))


@pytest.mark.parametrize(
    ("kind", "conf", "tries", "by_itself"),
    [
        ("scheduled", None, 1, True),
        ("scheduled", None, 2, False),
        ("backfill", None, 1, False),
        ("manual", None, 1, False),
        ("manual", {"dynamic_tables.is_periodic": True, "schedule_time": "2024-01-01"}, 1, True),
        ("manual", {"dynamic_tables.is_periodic": True}, 2, False),
        ("manual", {"dynamic_tables.is_periodic": False}, 1, False),
        ("scheduled", {"full_refresh": True}, 1, False),
        ("scheduled", {"schedule_time": "2024-01-01"}, 1, False),
        ("scheduled", {"partition": "ds=1/hh=2"}, 1, False),
    ],
)
def test_only_what_nobody_asked_for_may_be_left_out(
    table: DynamicTable, kind: str, conf: dict[str, Any] | None, tries: int, by_itself: bool
) -> None:
    context = run(conf, logical_date=DAY)
    context["dag_run"].run_type = kind
    context["ti"].try_number = tries
    assert read_request(context, table, {}).is_scheduled is by_itself


@pytest.mark.parametrize(
    ("kind", "conf", "by_hand", "waits"),
    [
        ("manual", {}, True, True),
        ("manual", {"do_not_wait": True}, True, False),
        ("manual", {"schedule_time": "2024-01-01"}, False, True),
        ("manual", {"dynamic_tables.is_periodic": True}, False, True),
        ("scheduled", {}, False, True),
        ("backfill", {}, False, True),
    ],
)
def test_which_runs_wait_for_what(table: DynamicTable, kind: str, conf: dict[str, Any], by_hand: bool, waits: bool) -> None:
    context = run(conf, logical_date=DAY)
    context["dag_run"].run_type = kind
    request = read_request(context, table, {})
    assert (request.is_by_hand, request.waits) == (by_hand, waits)
