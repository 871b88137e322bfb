"""One refresh from begin to end, with a job that writes by PyArrow; what happens when something goes wrong between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable, JobState
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import NO_PARTITIONS, PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import Reason, ReasonCode, RefreshAction
from airflow_dynamic_tables.core.schema import Column, TableLayout
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import (
    CommitRejectedError,
    CommitUnknownError,
    ConfigurationError,
    ConflictError,
    JobFailedError,
    SchemaEvolutionError,
    StageRejectedError,
    UpstreamError,
)
from airflow_dynamic_tables.formats.base import CommitRequest
from airflow_dynamic_tables.ledger.base import RefreshState, StageState
from airflow_dynamic_tables.services.maintenance.sweeping import sweep
from airflow_dynamic_tables.services.refresh import running as refreshing
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import Attempt, begin, commit, run
from airflow_dynamic_tables.services.refresh.upstream import parents_of, pending, waited_too_long
from airflow_dynamic_tables.services.status import sample, show_table
from airflow_dynamic_tables.services.workspace import Workspace
from airflow_dynamic_tables.services.writes.leases import LEASE
from tests.support.clock import Clock
from tests.support.pyarrow_job import write_numbers

NUMBERS = TableIdentifier("lake", "sales", "numbers")
TOTAL = TableIdentifier("lake", "sales", "total")
MARCH = datetime(2024, 3, 1, tzinfo=UTC)
YAML = """
defaults: {catalog: lake, database: sales}
dynamic_tables:
- {name: numbers, freshness: 1 day, query: SELECT 1 AS x}
- {name: total, freshness: 1 hour, query: SELECT sum(x) AS x FROM numbers}
"""


@pytest.fixture
def request_(tmp_path: Path) -> RefreshRequest:
    path = tmp_path / "sales.yaml"
    path.write_text(YAML)
    definitions = load_definitions(path)
    return RefreshRequest(definitions.tables[NUMBERS], definitions.sources, MARCH, token="t1", owner="dag/run/refresh")


def numbers(workspace: Workspace) -> list[int]:
    return [row["x"] for row in sample(workspace, NUMBERS, 10)]


def stage_files(plan: RefreshPlan) -> list[Path]:
    return [file for file in Path(plan.stage.removeprefix("file://")).rglob("*") if file.is_file()]


def test_a_refresh_commits_and_the_ledger_tells_it(workspace: Workspace, request_: RefreshRequest) -> None:
    version = run(workspace, request_, write_numbers)
    assert isinstance(version, Version)
    assert numbers(workspace) == [1, 2, 3]
    refresh = workspace.ledger.get_refresh("t1")
    assert (refresh.state, refresh.action, refresh.version, refresh.rows, refresh.files) == ("SUCCEEDED", "INITIALIZE", 1, 3, 1)
    assert refresh.data_timestamp == refresh.schedule_time == MARCH
    assert {"begin", "spark", "commit"} <= refresh.seconds.keys()
    stage = workspace.ledger.get_stage("t1")
    assert stage.state is StageState.COMMITTED


def test_other_partition_keys_are_refused_before_spark_starts(workspace: Workspace, request_: RefreshRequest) -> None:
    run(workspace, request_, write_numbers)
    keyed = replace(request_, token="t2", table=replace(request_.table, partition_keys=("x",)))
    with pytest.raises(SchemaEvolutionError, match=r"is partitioned by \(\), its definition now by \(x\).*dynamic-tables drop"):
        run(workspace, keyed, lambda _plan: pytest.fail("Spark was started"))
    stage = workspace.ledger.get_stage("t2")
    assert stage.state is StageState.ABORTED
    assert numbers(workspace) == [1, 2, 3]


def test_the_plan_says_what_the_rows_have_to_fit(workspace: Workspace, request_: RefreshRequest) -> None:
    plans: list[RefreshPlan] = []

    def submit(plan: RefreshPlan) -> None:
        plans.append(RefreshPlan.from_json(plan.to_json()))
        write_numbers(plan)

    run(workspace, request_, submit)
    run(workspace, replace(request_, token="t2"), submit)
    assert [plan.layout for plan in plans] == [None, TableLayout((Column("x", "bigint"),))]


def test_a_suspended_table_is_skipped_until_somebody_resumes_it(workspace: Workspace, request_: RefreshRequest) -> None:
    run(workspace, request_, write_numbers)

    def put(state: JobState) -> None:
        entry = workspace.catalog("lake").get_table(NUMBERS.path)
        assert isinstance(entry, CatalogDynamicTable)
        handler = replace(entry.refresh_handler, job_state=state)
        workspace.catalog("lake").alter_table(NUMBERS.path, replace(entry, refresh_handler=handler))

    put(JobState.SUSPENDED)
    reason = Reason(ReasonCode.SUSPENDED, "lake.sales.numbers is suspended; resume it to refresh again")
    for token, full_refresh in (("t2", False), ("t3", True)):
        assert run(workspace, replace(request_, token=token, full_refresh=full_refresh), write_numbers) == Skipped(reason)
        refresh = workspace.ledger.get_refresh(token)
        assert (refresh.state, refresh.action, refresh.reason) == ("SKIPPED", "SKIP", reason.text)
        assert refresh.reason_code is ReasonCode.SUSPENDED
        assert workspace.ledger.get_stage(token) is None
    put(JobState.RUNNING)
    assert isinstance(run(workspace, replace(request_, token="t4"), write_numbers), Version)


def test_a_failing_job_leaves_the_last_version_and_no_stage(workspace: Workspace, request_: RefreshRequest) -> None:
    run(workspace, request_, write_numbers)
    planned: list[RefreshPlan] = []

    def fail(plan: RefreshPlan) -> None:
        planned.append(plan)
        write_numbers(plan, (666,))
        raise JobFailedError("DIVIDE_BY_ZERO", application_id="app-1")

    with pytest.raises(JobFailedError, match="DIVIDE_BY_ZERO"):
        run(workspace, replace(request_, token="t2"), fail)
    assert numbers(workspace) == [1, 2, 3]
    assert stage_files(planned[0]) == []
    refresh = workspace.ledger.get_refresh("t2")
    assert (refresh.state, refresh.error, refresh.application_id) == (RefreshState.FAILED, "DIVIDE_BY_ZERO", "app-1")
    assert isinstance(run(workspace, replace(request_, token="t3"), write_numbers), Version)


def test_an_interrupted_refresh_is_aborted_too(workspace: Workspace, request_: RefreshRequest) -> None:
    def interrupt(_: RefreshPlan) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(workspace, request_, interrupt)
    refresh = workspace.ledger.get_refresh("t1")
    assert (refresh.state, refresh.error) == (RefreshState.ABORTED, "KeyboardInterrupt")


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "ended without a result; nothing was committed"),
        ('{"token": "t1", "rows"', "is damaged: Expecting ':' delimiter: line 1 column 23"),
        ("[]", r"is damaged: not a RefreshResult: \[\] is no RefreshResult; nothing was committed, so refresh again"),
        ("{}", "is damaged: not a RefreshResult: 'application_id' is missing; nothing"),
        ('{"token": 1, "application_id": "a", "rows": 1, "files": [], "columns": []}', "token: 1 is no str; nothing"),
        ('{"token": "t1", "application_id": "a", "rows": true, "files": [], "columns": []}', "rows: True is no int; nothing"),
        (
            '{"token": "t1", "application_id": "a", "rows": 1, "files": [{"path": [1], "bytes": 1}], "columns": []}',
            r"files: path: \[1\] is no str; nothing",
        ),
        ("[" * 100_000, "is damaged: not a RefreshResult: nested too deeply; nothing"),
        ("\0", "is damaged"),
    ],
)
def test_no_result_no_commit(workspace: Workspace, request_: RefreshRequest, result: str | None, message: str) -> None:
    def write(plan: RefreshPlan) -> None:
        if result is not None:
            Path(plan.result_location.removeprefix("file://")).write_text(result)

    with pytest.raises(StageRejectedError, match=message):
        run(workspace, request_, write)
    assert show_table(workspace, NUMBERS).versions == ()


def test_a_result_that_is_a_folder(workspace: Workspace, request_: RefreshRequest) -> None:
    with pytest.raises(StageRejectedError, match=r"is damaged: .*Is a directory.*; nothing was committed, so refresh again"):
        run(workspace, request_, lambda plan: Path(plan.result_location.removeprefix("file://")).mkdir())
    run(workspace, replace(request_, token="t2"), write_numbers)


def test_an_older_schedule_time_is_skipped_with_a_reason(workspace: Workspace, request_: RefreshRequest) -> None:
    run(workspace, request_, write_numbers)
    older = replace(request_, token="t2", schedule_time=MARCH - timedelta(days=1))
    skipped = run(workspace, older, write_numbers)
    assert isinstance(skipped, Skipped)
    assert "already fresh up to 2024-03-01T00:00:00+00:00 (version 1)" in skipped.reason.text
    refresh = workspace.ledger.get_refresh("t2")
    assert (refresh.state, refresh.reason, refresh.error) == (RefreshState.SKIPPED, skipped.reason.text, None)
    assert (refresh.action, refresh.reason_code) == (RefreshAction.SKIP, ReasonCode.ALREADY_FRESH)
    assert isinstance(run(workspace, replace(request_, token="t3"), write_numbers), Version), "the same time may be repeated"


def test_a_living_owner_is_not_disturbed(workspace: Workspace, request_: RefreshRequest) -> None:
    begin(workspace, request_)
    with pytest.raises(ConflictError, match="is being refreshed by dag/run/refresh since"):
        begin(workspace, replace(request_, token="t2", owner="somebody else"))
    assert sweep(workspace).kept == ("t1",)


def test_a_new_try_supersedes_the_old_one_whose_commit_is_refused(workspace: Workspace, request_: RefreshRequest) -> None:
    old = begin(workspace, request_)
    assert isinstance(old, Attempt)
    write_numbers(old.plan, (666,))
    assert isinstance(run(workspace, replace(request_, token="t2"), write_numbers), Version)
    assert stage_files(old.plan) == []
    write_numbers(old.plan, (666,))
    with pytest.raises(CommitRejectedError, match="Stage t1 is ABORTED"):
        commit(workspace, old)
    assert numbers(workspace) == [1, 2, 3]
    assert sweep(workspace).aborted == ()
    assert stage_files(old.plan) == [], "a sweep deletes what the zombie wrote"


def test_a_lease_that_ran_out_is_superseded(workspace: Workspace, request_: RefreshRequest, clock: Clock) -> None:
    begin(workspace, request_)
    clock.time += LEASE + timedelta(seconds=1)
    assert isinstance(run(workspace, replace(request_, token="t2", owner="other"), write_numbers), Version)
    refresh = workspace.ledger.get_refresh("t1")
    assert (refresh.state, refresh.error) == (RefreshState.ABORTED, "superseded by t2")


def test_after_an_unknown_outcome_nothing_is_deleted(
    workspace: Workspace, request_: RefreshRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[RefreshPlan] = []

    def unknown(*_: object) -> Version:
        raise CommitUnknownError("the server went away")

    def write(plan: RefreshPlan) -> None:
        planned.append(plan)
        write_numbers(plan)
        monkeypatch.setattr(refreshing, "commit", unknown)

    with pytest.raises(CommitUnknownError):
        run(workspace, request_, write)
    assert any(file.suffix == ".parquet" for file in stage_files(planned[0]))
    refresh = workspace.ledger.get_refresh("t1")
    assert (refresh.state, refresh.error) == (RefreshState.RUNNING, "the server went away")


def test_a_first_commit_that_is_stopped_and_given_up_can_land_no_more(
    workspace: Workspace, request_: RefreshRequest, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has asked for leave to publish when it is stopped; a sweep comes when its lease is over."""
    begun = begin(workspace, request_)
    assert isinstance(begun, Attempt)
    write_numbers(begun.plan)
    publish = begun.write.staged.commit

    def stopped(request: CommitRequest, before_publish: Callable[[], None]) -> Version:
        def asked_and_stopped() -> None:
            before_publish()
            if workspace.ledger.list_stages():
                clock.time += LEASE + timedelta(seconds=1)
                assert sweep(workspace).aborted == ("t1",)
                assert stage_files(begun.plan) == []

        return publish(request, asked_and_stopped)

    monkeypatch.setattr(begun.write.staged, "commit", stopped)
    with pytest.raises((CommitRejectedError, StageRejectedError)):
        commit(workspace, begun)
    assert workspace.existing_table(NUMBERS).current() is None
    version = run(workspace, replace(request_, token="t2"), write_numbers)
    assert version.number == 1


def test_a_version_of_the_future_stops_no_refresh(workspace: Workspace, request_: RefreshRequest) -> None:
    """A clock that is wrong, or an earlier release, may have made one for 2999."""
    run(workspace, replace(request_, schedule_time=MARCH.replace(year=2999)), write_numbers)
    scheduled = replace(request_, token="t2")
    back = run(workspace, scheduled, write_numbers)
    assert back.data_timestamp == MARCH
    older = replace(scheduled, token="t5", schedule_time=MARCH - timedelta(days=1), full_refresh=True)
    assert isinstance(run(workspace, older, write_numbers), Skipped), "what is not of the future stays newer"


def test_a_comment_that_is_taken_out_of_the_definition_goes(workspace: Workspace, request_: RefreshRequest) -> None:
    """It used to stay in the catalog for good. What another engine said of a column stays."""

    def refresh(token: str, comments: dict[str, str]) -> str | None:
        asked = replace(request_, token=token, table=replace(request_.table, comments=comments))
        assert isinstance(run(workspace, asked, write_numbers), Version)
        return workspace.catalog("lake").get_table(NUMBERS.path).columns[0].comment

    assert refresh("t1", {}) is None
    table = workspace.catalog("lake").iceberg.load_table(("sales", "numbers"))  # type: ignore[attr-defined]
    with table.update_schema() as schema:
        schema.update_column("x", doc="by another engine")
    assert refresh("t2", {}) == "by another engine"
    assert refresh("t3", {"x": "the number"}) == "the number"
    with pytest.raises(ZeroDivisionError):  # a refresh that fails forgets nothing
        run(workspace, replace(request_, token="t4"), lambda _: 1 / 0)
    assert refresh("t5", {}) is None
    assert refresh("t6", {}) is None
    assert refresh("t7", {"x": "again"}) == "again"


def test_a_table_without_its_parent_says_so(workspace: Workspace, request_: RefreshRequest, tmp_path: Path) -> None:
    total = load_definitions(tmp_path / "sales.yaml").tables[TOTAL]
    with pytest.raises(UpstreamError, match=r"lake\.sales\.numbers has no version yet"):
        run(workspace, replace(request_, table=total), write_numbers)
    refresh = workspace.ledger.get_refresh("t1")
    assert refresh.state is RefreshState.FAILED


def test_a_child_needs_its_parents_own_latest_tick(workspace: Workspace, request_: RefreshRequest, tmp_path: Path) -> None:
    definitions = load_definitions(tmp_path / "sales.yaml")
    parents = parents_of(definitions.tables[TOTAL], definitions)
    at = MARCH + timedelta(hours=10)
    (waiting,) = pending(workspace, parents, at)
    assert (waiting.required, waiting.data_timestamp, waiting.failed) == (MARCH, None, None)
    assert str(waited_too_long([waiting])).startswith(
        "UPSTREAM_LATE: lake.sales.numbers must be fresh up to 2024-03-01T00:00:00+00:00"
    )
    with pytest.raises(ZeroDivisionError):
        run(workspace, request_, lambda _: 1 / 0)
    assert str(waited_too_long(pending(workspace, parents, at))).startswith("UPSTREAM_FAILED: ")
    run(workspace, replace(request_, token="t2"), write_numbers)
    assert pending(workspace, parents, at) == ()
    assert pending(workspace, parents, at + timedelta(days=1))[0].required == MARCH + timedelta(days=1)


def test_to_refresh_no_partition_is_nothing_to_do(workspace: Workspace, request_: RefreshRequest) -> None:
    run(workspace, request_, write_numbers)
    nothing = replace(request_, token="t2", partitions=NO_PARTITIONS)
    assert run(workspace, nothing, lambda plan: pytest.fail(f"submitted {plan}")) == Skipped(
        Reason(ReasonCode.NOTHING_TO_REFRESH, "there is nothing to refresh")
    )
    refresh = workspace.ledger.get_refresh("t2")
    assert (refresh.state, refresh.action, refresh.partitions) == (RefreshState.SKIPPED, "SKIP", NO_PARTITIONS)
    assert workspace.ledger.get_stage("t2") is None
    assert [row["x"] for row in sample(workspace, NUMBERS, 10)] == [1, 2, 3]


def test_partitions_named_by_hand_make_no_table_fresher(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "days.yaml"
    path.write_text(
        "dynamic_tables: [{name: days, freshness: 1 day, partitioned_by: [x], query: SELECT 2024 AS x,"
        " options: {partition.fields.x.date-formatter: yyyy}}]\n"
    )
    (table,) = load_definitions(path).tables.values()
    by_hand = RefreshRequest(table, {}, MARCH, "t1", "o", partitions=PartitionSet.of([{"x": "2024"}]))
    version = run(workspace, by_hand, lambda plan: write_numbers(plan, (2024,)))
    assert version.data_timestamp is None
    scheduled = replace(by_hand, token="t2", partitions=None, catches_up=True)
    version = run(workspace, scheduled, lambda plan: write_numbers(plan, (2024,)))
    assert version.data_timestamp == scheduled.schedule_time
    version = run(workspace, replace(by_hand, token="t3"), lambda plan: write_numbers(plan, (2024,)))
    assert version.data_timestamp == scheduled.schedule_time


def test_the_plan_has_the_settings_that_decide_what_the_query_means(workspace: Workspace, tmp_path: Path) -> None:
    conf = "{spark.sql.ansi.enabled: false, spark.executor.memory: 2g, spark.sql.catalog.other.password: hidden}"
    path = tmp_path / "lenient.yaml"
    path.write_text(f"""dynamic_tables:
- {{name: lake.sales.lenient, freshness: 1 day, query: SELECT 1 AS n, spark: {{conf: {conf}}}}}""")
    (table,) = load_definitions(path).tables.values()
    attempt = begin(workspace, RefreshRequest(table, {}, MARCH, "t1", "test"))
    assert attempt.plan.settings == {"spark.sql.ansi.enabled": "false"}


def test_a_missing_source_is_named(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "raw.yaml"
    path.write_text(
        "defaults: {catalog: lake, database: sales}\n"
        f"sources: [{{name: orders, format: parquet, path: {tmp_path}/nothing}}]\n"
        "dynamic_tables: [{name: copy, freshness: 1 day, query: SELECT * FROM orders}]\n"
    )
    definitions = load_definitions(path)
    (table,) = definitions.tables.values()
    with pytest.raises(ConfigurationError, match=r"Source lake\.sales\.orders: there is nothing at"):
        run(workspace, RefreshRequest(table, definitions.sources, MARCH, "t1", "o"), write_numbers)
