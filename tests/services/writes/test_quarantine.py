"""What becomes of a refresh whose rows are not as expected, and of a stage in quarantine."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.schedule import Freshness
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    ConfigurationError,
    ConflictError,
    ExpectationError,
    QuarantinedError,
    StageRejectedError,
)
from airflow_dynamic_tables.ledger.base import Refresh
from airflow_dynamic_tables.services.maintenance.sweeping import sweep
from airflow_dynamic_tables.services.refresh.requests import Parent, RefreshRequest
from airflow_dynamic_tables.services.refresh.running import begin, run
from airflow_dynamic_tables.services.refresh.upstream import pending, waited_too_long
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace
from airflow_dynamic_tables.services.writes import quarantine
from airflow_dynamic_tables.services.writes import quarantine_question as question
from airflow_dynamic_tables.services.writes.quarantine import KEEP_QUARANTINED, publish, reject
from airflow_dynamic_tables.services.writes.settling import abort
from tests.support.clock import Clock
from tests.support.pyarrow_job import write_days, write_numbers

YAML = """
defaults: {catalog: lake, database: sales, freshness: 1 day}
dynamic_tables:
- name: numbers
  query: SELECT 1 AS x
  expectations:
  - {not_null: [x]}
  - {predicate: x > 0, name: positive, action: warn}
  - {predicate: x < 1000, name: small, action: drop}
  - {row_count: {max_decrease: 50%, max_increase: 100%}}
- name: at_least_two
  query: SELECT 1 AS x
  expectations: [{row_count: {min: 2}, action: fail}]
- name: brief
  query: SELECT 1 AS x
  versions_to_keep: 1
  expectations: [{row_count: {min: 2, max_decrease: 50%}}]
- name: days
  query: SELECT '2024-03-01' AS ds, 1 AS n
  partitioned_by: [ds]
  expectations: [{row_count: {max_decrease: 50%, max_increase: 100%}}]
"""
MANY = tuple(range(1, 11))
FEW = (1, 2)


Make = Callable[..., RefreshRequest]


@pytest.fixture
def requested(tmp_path: Path, clock: Clock) -> Make:
    """A request to refresh a table; each is a second later than the one before."""
    path = tmp_path / "sales.yaml"
    path.write_text(YAML)
    definitions = load_definitions(path)

    def make(token: str, table: str = "numbers", **fields: Any) -> RefreshRequest:
        clock.time += timedelta(seconds=1)
        found = definitions.tables[TableIdentifier("lake", "sales", table)]
        return replace(RefreshRequest(found, definitions.sources, clock.time, token, f"dag/{token}/refresh"), **fields)

    return make


def numbers_job(*numbers: int, **violations: int) -> Callable[[RefreshPlan], None]:
    return lambda plan: write_numbers(plan, numbers, violations)


def days_job(**days: int) -> Callable[[RefreshPlan], None]:
    return lambda plan: write_days(plan, {day.removeprefix("d"): range(rows) for day, rows in days.items()})


def numbers(workspace: Workspace) -> tuple[int, ...]:
    return tuple(sorted(row["x"] for row in sample(workspace, TableIdentifier("lake", "sales", "numbers"), 100)))


def history(workspace: Workspace, token: str) -> Refresh:
    found = workspace.ledger.get_refresh(token)
    assert found is not None
    return found


def state(workspace: Workspace, token: str) -> tuple[str, str]:
    stage = workspace.ledger.get_stage(token)
    return stage.state, history(workspace, token).state


def files(workspace: Workspace, token: str) -> list[Path]:
    stage = workspace.ledger.get_stage(token)
    return list(Path(stage.location.removeprefix("file://")).rglob("*.parquet"))


def publish_elsewhere(workspace: Workspace, token: str, clock: Clock) -> None:
    """Begin to publish a stage, in a process of which this one knows nothing."""
    assert workspace.ledger.resume_stage(token, "another machine", clock.time + timedelta(minutes=2)) == ()


@pytest.fixture
def quarantined(workspace: Workspace, requested: Make) -> str:
    """The token of a refresh that wrote two rows in the place of ten."""
    run(workspace, requested("first"), numbers_job(*MANY))
    with pytest.raises(QuarantinedError):
        run(workspace, requested("second"), numbers_job(*FEW))
    return "second"


def test_what_was_found_is_kept_and_warned_of(workspace: Workspace, requested: Make, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        version = run(workspace, requested("t1"), numbers_job(*MANY, positive=3, small=1))
    assert isinstance(version, Version)
    assert [(found.name, found.action, found.violations) for found in history(workspace, "t1").expectations] == [
        ("not_null(x)", "fail", 0),
        ("positive", "warn", 3),
        ("small", "drop", 1),
        ("row_count", "quarantine", 0),
    ]
    assert caplog.messages == [
        "lake.sales.numbers: positive: 3 rows violate it.",
        "lake.sales.numbers: small: 1 rows violate it and were left out.",
    ]


def test_a_violation_that_fails_leaves_the_last_version(workspace: Workspace, requested: Make) -> None:
    run(workspace, requested("first"), numbers_job(*MANY))
    with pytest.raises(ExpectationError, match=r"lake\.sales\.numbers is not as expected.*not_null\(x\): 4 rows violate it"):
        run(workspace, requested("second"), lambda plan: write_numbers(plan, FEW, {"not_null(x)": 4}))
    assert numbers(workspace) == MANY
    assert state(workspace, "second") == ("ABORTED", "FAILED")
    assert files(workspace, "second") == []
    found = history(workspace, "second")
    assert (found.rows, found.expectations[0].violations) == (2, 4)
    assert "4 rows violate it" in str(found.error)


def test_a_row_count_may_fail_too(workspace: Workspace, requested: Make) -> None:
    with pytest.raises(ExpectationError, match="row_count: 1 rows; at least 2 expected"):
        run(workspace, requested("t1", "at_least_two"), numbers_job(1))
    assert state(workspace, "t1") == ("ABORTED", "FAILED")


def test_a_tripped_fuse_keeps_the_stage_and_says_what_to_do(workspace: Workspace, requested: Make) -> None:
    run(workspace, requested("first"), numbers_job(*MANY))
    with pytest.raises(QuarantinedError) as raised:
        run(workspace, requested("second"), numbers_job(*FEW))
    for part in ("2 rows, 10 before (-80%)", "at least -50%", "dynamic-tables publish second", "dynamic-tables abort second"):
        assert part in str(raised.value)
    assert numbers(workspace) == MANY
    assert state(workspace, "second") == ("QUARANTINED", "QUARANTINED")
    assert len(files(workspace, "second")) == 1
    assert history(workspace, "second").error == str(raised.value)


def test_published_it_is_the_next_version(workspace: Workspace, quarantined: str) -> None:
    version = publish(workspace, quarantined)
    assert version.number == 2
    assert numbers(workspace) == FEW
    assert state(workspace, quarantined) == ("COMMITTED", "SUCCEEDED")
    found = history(workspace, quarantined)
    assert (found.version, found.error, found.data_timestamp) == (2, None, found.schedule_time)
    assert found.expectations[-1].violations == 1, "that it was not as expected stays on record"
    assert publish(workspace, quarantined) == version, "publishing is idempotent"


def test_of_what_has_landed_it_says_what_became(workspace: Workspace, requested: Make, clock: Clock) -> None:
    clock.time = datetime.now(UTC)
    with pytest.raises(QuarantinedError):
        run(workspace, requested("landed", "brief"), numbers_job(1))
    publish(workspace, "landed")
    with pytest.raises(ConfigurationError) as kept:
        reject(workspace, "landed", "too late")
    landed = "Stage landed of lake.sales.brief has landed as version 1; there is nothing left to decide."
    assert str(kept.value) == f"{landed} dynamic-tables rollback takes the table back to an earlier version."
    for token in ("second", "third"):
        run(workspace, requested(token, "brief"), numbers_job(*MANY))
    at = history(workspace, "landed").schedule_time
    clock.time += timedelta(days=20)
    assert sweep(workspace).expired > 0
    with pytest.raises(ConfigurationError) as expired:
        publish(workspace, "landed")
    assert str(expired.value) == (
        f"{landed} The table no longer has that version: it has expired, or the table was recreated. "
        f"To have its rows again, refresh the table for {at.isoformat()}."
    )


def test_rejected_its_files_are_gone(workspace: Workspace, quarantined: str) -> None:
    reject(workspace, quarantined, "rejected by a test")
    reject(workspace, quarantined, "rejected again")
    assert numbers(workspace) == MANY
    assert state(workspace, quarantined) == ("ABORTED", "REJECTED")
    assert history(workspace, quarantined).error == "rejected by a test"
    assert files(workspace, quarantined) == []
    with pytest.raises(ConfigurationError, match="is ABORTED, not in quarantine"):
        publish(workspace, quarantined)


def test_callbacks_and_sweeps_leave_it_alone(workspace: Workspace, quarantined: str, clock: Clock) -> None:
    abort(workspace, quarantined, "the Airflow task failed")
    clock.time += timedelta(days=29)
    assert sweep(workspace).kept == (quarantined,)
    assert state(workspace, quarantined) == ("QUARANTINED", "QUARANTINED")
    assert publish(workspace, quarantined).number == 2


def test_after_a_month_the_sweep_gives_it_up(workspace: Workspace, quarantined: str, clock: Clock) -> None:
    clock.time += KEEP_QUARANTINED + timedelta(seconds=1)
    assert sweep(workspace).aborted == (quarantined,)
    assert history(workspace, quarantined).error == "no decision within 30 days"
    assert files(workspace, quarantined) == []


def test_a_newer_refresh_is_not_blocked_and_supersedes_it(workspace: Workspace, quarantined: str, requested: Make) -> None:
    version = run(workspace, requested("third"), numbers_job(*MANY, 11))
    assert isinstance(version, Version)
    assert state(workspace, quarantined) == ("ABORTED", "ABORTED")
    assert history(workspace, quarantined).error == "superseded by third"
    assert files(workspace, quarantined) == []


def test_a_sweep_finishes_what_the_newer_refresh_did_not(
    workspace: Workspace, quarantined: str, requested: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as died:
        died.setattr("airflow_dynamic_tables.services.refresh.running.supersede", lambda *_: None)
        run(workspace, requested("third"), numbers_job(*MANY))
    with pytest.raises(ConflictError, match=r"Version 2 .* was committed after stage second was planned"):
        publish(workspace, quarantined)
    assert numbers(workspace) == MANY
    assert state(workspace, quarantined)[0] == "QUARANTINED", "a refused commit is put back"
    assert sweep(workspace).aborted == (quarantined,)


def test_it_is_not_published_beside_a_refresh_of_the_same_partitions(
    workspace: Workspace, quarantined: str, requested: Make
) -> None:
    def publish_meanwhile(plan: RefreshPlan) -> None:
        with pytest.raises(ConflictError, match=r"lake\.sales\.numbers is being refreshed by dag/third/refresh"):
            publish(workspace, quarantined)
        write_numbers(plan, (*FEW, 3), {})

    with pytest.raises(QuarantinedError):
        run(workspace, requested("third"), publish_meanwhile)
    assert publish(workspace, quarantined).number == 2, "what ended in quarantine is in nobody's way"


def test_a_refresh_waits_for_its_publication(workspace: Workspace, quarantined: str, requested: Make, clock: Clock) -> None:
    publish_elsewhere(workspace, quarantined, clock)
    with pytest.raises(ConflictError, match="is being refreshed by dag/second/refresh"):
        run(workspace, requested("third"), numbers_job(*MANY))


def test_nobody_decides_on_what_somebody_else_publishes(workspace: Workspace, quarantined: str, clock: Clock) -> None:
    publish_elsewhere(workspace, quarantined, clock)
    for decide in (publish, partial(reject, reason="no")):
        with pytest.raises(ConflictError, match=r"Stage second .* is being published by another process"):
            decide(workspace, quarantined)
    abort(workspace, quarantined, "the Airflow task failed")
    assert state(workspace, quarantined) == ("COMMITTING", "QUARANTINED")
    assert len(files(workspace, quarantined)) == 1


def test_of_two_who_publish_it_at_once_one_does(workspace: Workspace, quarantined: str) -> None:
    line = Barrier(2)

    def decide(_: int) -> Version | str:
        line.wait()
        try:
            return publish(workspace, quarantined)
        except ConflictError as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(decide, range(2)))
    assert {answer.number for answer in answers if isinstance(answer, Version)} == {2}
    assert numbers(workspace) == FEW
    assert state(workspace, quarantined) == ("COMMITTED", "SUCCEEDED")


def test_of_two_in_quarantine_the_older_may_be_published_before_the_newer_but_not_after(
    workspace: Workspace, quarantined: str, requested: Make
) -> None:
    for token in ("third", "fourth"):
        with pytest.raises(QuarantinedError):
            run(workspace, requested(token), numbers_job(1))
    assert publish(workspace, quarantined).number == 2
    assert publish(workspace, "fourth").number == 3
    assert numbers(workspace) == (1,)
    assert history(workspace, "third").error == "superseded by fourth"


def test_one_that_is_for_an_older_time_than_the_table_is_fresh_up_to_is_refused(
    workspace: Workspace, quarantined: str, requested: Make, clock: Clock
) -> None:
    with pytest.raises(QuarantinedError):
        run(workspace, requested("third", schedule_time=clock.time - timedelta(seconds=0.5)), numbers_job(1))
    publish(workspace, quarantined)
    with pytest.raises(ConflictError, match="Version 2"):
        publish(workspace, "third")


@pytest.mark.sampled
@pytest.mark.parametrize("text", [None, "{", "[" * 100_000, "{}"])
def test_a_damaged_plan_says_how_to_go_on(workspace: Workspace, quarantined: str, text: str | None) -> None:
    stage = workspace.ledger.get_stage(quarantined)
    plan = Path(stage.location.removeprefix("file://")) / "_plan.json"
    plan.unlink()
    if text is not None:
        plan.write_text(text)
    todo = f"is missing or damaged: .*; run dynamic-tables abort {quarantined}, and refresh again"
    with pytest.raises(StageRejectedError, match=todo):
        publish(workspace, quarantined)
    reject(workspace, quarantined, "damaged")
    assert state(workspace, quarantined) == ("ABORTED", "REJECTED")


def test_a_stage_that_was_tampered_with_is_refused_and_put_back(workspace: Workspace, quarantined: str) -> None:
    (file,) = files(workspace, quarantined)
    content = file.read_bytes()
    file.unlink()
    with pytest.raises(StageRejectedError, match="is missing or damaged"):
        publish(workspace, quarantined)
    assert state(workspace, quarantined) == ("QUARANTINED", "QUARANTINED")
    file.write_bytes(content)
    assert publish(workspace, quarantined).number == 2


def test_what_a_publisher_that_died_left_is_in_quarantine_again(workspace: Workspace, quarantined: str, clock: Clock) -> None:
    publish_elsewhere(workspace, quarantined, clock)
    assert sweep(workspace).kept == (quarantined,)
    assert state(workspace, quarantined) == ("COMMITTING", "QUARANTINED"), "it may be alive"
    clock.time += timedelta(minutes=3)
    assert sweep(workspace).kept == (quarantined,)
    assert state(workspace, quarantined) == ("QUARANTINED", "QUARANTINED")
    assert numbers(workspace) == MANY
    publish_elsewhere(workspace, quarantined, clock)
    clock.time += timedelta(minutes=3)
    assert publish(workspace, quarantined).number == 2, "and the next one need not wait for a sweep"
    assert numbers(workspace) == FEW


def test_a_publication_that_lost_its_database_for_a_second_changes_nothing(
    workspace: Workspace, quarantined: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise CatalogUnavailableError("gone for a second")

    with monkeypatch.context() as outage:
        outage.setattr(quarantine, "_check_up_to_date", fail)
        with pytest.raises(CatalogUnavailableError):
            publish(workspace, quarantined)
    assert state(workspace, quarantined) == ("QUARANTINED", "QUARANTINED")
    assert publish(workspace, quarantined).number == 2


def test_a_later_refresh_supersedes_it_whatever_the_clocks_say(workspace: Workspace, requested: Make, clock: Clock) -> None:
    run(workspace, requested("first"), numbers_job(*MANY))
    ahead = requested("ahead", schedule_time=clock.time)
    clock.time += timedelta(hours=1)
    with pytest.raises(QuarantinedError):
        run(workspace, ahead, numbers_job(*FEW))
    clock.time -= timedelta(hours=1)
    run(workspace, requested("third"), numbers_job(*MANY, 11))
    assert state(workspace, "ahead") == ("ABORTED", "ABORTED")
    assert history(workspace, "ahead").error == "superseded by third"


def test_tokens_that_are_not_in_quarantine(workspace: Workspace, requested: Make) -> None:
    begin(workspace, requested("running"))
    for decide in (lambda token: publish(workspace, token), lambda token: reject(workspace, token, "no")):
        with pytest.raises(ConfigurationError, match="No stage nobody is known"):
            decide("nobody")
        with pytest.raises(ConfigurationError, match=r"Stage running of lake\.sales\.numbers is OPEN, not in quarantine"):
            decide("running")


def test_the_first_version_has_nothing_to_be_compared_with(workspace: Workspace, requested: Make) -> None:
    run(workspace, requested("t1"), numbers_job(1))
    assert history(workspace, "t1").expectations[-1].detail == "1 rows"


def test_who_waits_for_it_is_told(workspace: Workspace, requested: Make) -> None:
    first = requested("first")
    run(workspace, first, numbers_job(*MANY))
    tomorrow = first.schedule_time + timedelta(days=1)
    with pytest.raises(QuarantinedError):
        run(workspace, requested("second", schedule_time=tomorrow), numbers_job(*FEW))
    parent = Parent(first.table.identifier, "iceberg", "0 0 * * *", "UTC", Freshness.parse("1 day"))
    error = str(waited_too_long(pending(workspace, [parent], tomorrow)))
    assert error.startswith("UPSTREAM_FAILED: lake.sales.numbers must be fresh up to 2024-03-03")
    assert error.endswith("but its last refresh is in quarantine.")


AVERAGE = ", where each new partition counts as an average one"
DAY1, DAY2, DAY3 = ({"ds": f"2024-03-0{day}"} for day in (1, 2, 3))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("partitions", "days", "found"),
    [
        ((DAY1,), {"d2024-03-01": 10}, "10 rows, 10 before (+0%)"),
        ((DAY1,), {"d2024-03-01": 4}, "4 rows, 10 before (-60%); at least -50% expected"),
        ((DAY1, DAY2), {"d2024-03-01": 70}, "70 rows, 40 before (+75%)"),
        ((DAY3,), {"d2024-03-03": 30}, f"30 rows, 20 before (+50%){AVERAGE}"),
        ((DAY3,), {"d2024-03-03": 41}, f"41 rows, 20 before (+105%){AVERAGE}; at most +100% expected"),
        ((DAY2, DAY3), {"d2024-03-02": 25, "d2024-03-03": 25}, f"50 rows, 50 before (+0%){AVERAGE}"),
        ((), {"d2024-03-01": 9}, "9 rows, 40 before (-78%); at least -50% expected"),
    ],
)
def test_partitions_are_compared_with_themselves_and_new_ones_with_the_average(
    workspace: Workspace, requested: Make, partitions: tuple[dict[str, str], ...], days: dict[str, int], found: str
) -> None:
    first = requested("first", "days", partitions=PartitionSet.of([DAY1, DAY2]))
    run(workspace, first, days_job(**{"d2024-03-01": 10, "d2024-03-02": 30}))
    request = requested(
        "second", "days", **({"partitions": PartitionSet.of(partitions)} if partitions else {"full_refresh": True})
    )
    if "expected" in found:
        with pytest.raises(QuarantinedError):
            run(workspace, request, days_job(**days))
    else:
        run(workspace, request, days_job(**days))
    assert history(workspace, "second").expectations[0].detail == found


def test_only_partitions_that_overlap_supersede(workspace: Workspace, requested: Make) -> None:
    run(
        workspace,
        requested("first", "days", partitions=PartitionSet.of([DAY1, DAY2])),
        days_job(**{"d2024-03-01": 10, "d2024-03-02": 10}),
    )
    with pytest.raises(QuarantinedError):
        run(workspace, requested("second", "days", partitions=PartitionSet.of([DAY1])), days_job(**{"d2024-03-01": 1}))
    run(workspace, requested("third", "days", partitions=PartitionSet.of([DAY2])), days_job(**{"d2024-03-02": 11}))
    assert publish(workspace, "second").number == 3
    table = TableIdentifier("lake", "sales", "days")
    assert len(sample(workspace, table, 100)) == 12
    assert history(workspace, "second").data_timestamp is None, "partitions named by hand make the table no fresher"


def test_the_question_says_what_there_is_to_decide(workspace: Workspace, requested: Make) -> None:
    run(workspace, requested("t1", "days"), days_job(**{"d2024-03-01": 40, "d2024-03-02": 20}))
    asked = PartitionSet.of([{"ds": "2024-03-01"}, {"ds": "2024-03-03"}])
    with pytest.raises(QuarantinedError):
        run(workspace, requested("t2", "days", partitions=asked), days_job(**{"d2024-03-01": 1, "d2024-03-03": 0}))
    stage = workspace.ledger.get_stage("t2")
    assert stage is not None
    text = question.question(workspace, stage).replace("\\", "")
    assert text.splitlines() == [
        "row_count: 1 rows, 70 before (-99%), where each new partition counts as an average one; at least -50% expected",
        "",
        "It replaces ds=2024-03-01 and ds=2024-03-03.",
        "",
        "The current version, 1, has 40 rows in 1 of these 2 partitions; 60 rows in all.",
        "",
        "1 rows are in quarantine, for example:",
        "",
        "| ds | n |",
        "| --- | --- |",
        "| 2024-03-01 | 0 |",
        "",
        "*Publish* commits the new rows. *Abort* deletes them, and the table stays as it is.",
    ]
    assert stage.location not in text


def test_a_question_without_the_stage_s_files_is_asked_all_the_same(
    workspace: Workspace, requested: Make, caplog: pytest.LogCaptureFixture
) -> None:
    run(workspace, requested("t1"), numbers_job(*MANY))
    with pytest.raises(QuarantinedError):
        run(workspace, requested("t2"), numbers_job(*FEW))
    stage = workspace.ledger.get_stage("t2")
    assert stage is not None
    shutil.rmtree(stage.location.removeprefix("file://"))
    text = question.question(workspace, stage)
    assert "It replaces the complete table." in text.replace("\\", "")
    assert "has 10 rows" in text
    assert "Stage t2 of lake.sales.numbers cannot be described completely" in caplog.text


def test_rows_in_a_question_are_text_and_no_markdown() -> None:
    assert question._cell("[x](https://example.org) | <b>\n*y*") == (r"\[x\]\(https\:\/\/example\.org\) \| \<b\> \*y\*")
    assert question._cell("a" * 500) == "a" * 59 + "…"
    assert question._cell(None) == "null"
