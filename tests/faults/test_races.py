"""Several processes refresh the same table at once: each commit lands exactly once, and none is lost."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.services.ctas.wanted import Purpose
from tests.support.faults.report import FaultReport
from tests.support.faults.truth import check_all_settled, content, versions
from tests.support.faults.victims import Attempt, Site, race, refresh_in, start, sweep
from tests.support.faults.writes import create

CI = {2: 8, 4: 8, 8: 4}
LONG = {2: 40, 4: 40, 8: 20}
KINDS = ("the same partition", "a partition each", "the whole table", "two partitions, one of them shared")


def days_of(kind: str, number: int, value: int) -> Attempt:
    """What a process refreshes in a round, with the values that tell it from all others."""
    owner, token = f"process {number}", f"t{value}"
    if kind == "the same partition":
        return Attempt(token, {"shared": [value]}, owner, ("shared",))
    if kind == "a partition each":
        return Attempt(token, {str(number): [value, value]}, owner, (str(number),))
    if kind == "the whole table":
        return Attempt(token, {"shared": [value], "all": [value]}, owner)
    return Attempt(token, {"shared": [value], str(number): [value]}, owner, ("shared", str(number)))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("processes", "rounds"),
    [*CI.items(), *(pytest.param(*case, marks=pytest.mark.long) for case in LONG.items())],
)
def test_races(site: Site, fault_report: FaultReport, processes: int, rounds: int) -> None:
    plan = [
        [days_of(KINDS[turn % len(KINDS)], number, turn * processes + number) for turn in range(rounds)]
        for number in range(processes)
    ]
    outcomes = race(site, plan)
    attempts = {attempt.token: attempt for own in plan for attempt in own}
    assert outcomes.keys() == attempts.keys()
    fault_report.injected("race", len(attempts))
    landed = {token: version for token, (version, _) in outcomes.items() if version is not None}
    refused = {error.split(":")[0] for _, error in outcomes.values() if error is not None}
    assert refused <= {"ConflictError", "CommitRejectedError"}
    with site.open() as workspace:
        found = versions(workspace)
        assert {version.token: version.number for version in found} == {t: version.number for t, version in landed.items()}
        expected: dict[str, list[int]] = {}
        for version in found:
            attempt = attempts[version.token]
            kept = {day: rows for day, rows in expected.items() if attempt.planned and day not in attempt.planned}
            expected = {**kept, **{day: list(numbers) for day, numbers in attempt.days.items()}}
        assert content(workspace) == dict(sorted(expected.items()))
        check_all_settled(site, workspace)
    for turn in range(rounds):
        won = [own[turn].token in landed for own in plan]
        assert all(won) if KINDS[turn % len(KINDS)] == "a partition each" else any(won)


def check_all_land(site: Site, days: dict[str, list[int]]) -> None:
    """Fourteen write a partition each at once.

    :param days: what the table holds already.
    """
    answers = race(site, [[Attempt(f"t{n}", {str(n): [n]}, f"process {n}", (str(n),))] for n in range(14)])
    assert {token: error for token, (_, error) in answers.items() if error} == {}
    with site.open() as workspace:
        assert content(workspace) == dict(sorted({**days, **{str(n): [n] for n in range(14)}}.items()))
        check_all_settled(site, workspace)


@pytest.mark.sampled
@pytest.mark.parametrize("site", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres), "delta"], indirect=True)
def test_fourteen_who_write_a_partition_each_at_once_all_land(site: Site) -> None:
    check_all_land(site, {})


@pytest.mark.long
def test_they_do_so_in_a_table_of_five_hundred_versions(site: Site) -> None:
    with site.open() as workspace:
        for number in range(500):
            refresh_in(workspace, site, Attempt(f"before{number}", {"old": [number]}, "before", ("old",)))
        assert len(versions(workspace)) == 500
    check_all_land(site, {"old": [499]})


@pytest.mark.parametrize(
    "site",
    [
        "sqlite",
        pytest.param("delta", marks=pytest.mark.large),
        pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.large]),
        pytest.param("jdbc", marks=pytest.mark.postgres),
        "glue/iceberg",
    ],
    indirect=True,
)
def test_of_many_creators_at_once_one_wins_and_the_others_are_told(site: Site) -> None:
    attempts = [Attempt(f"t{number}", {str(number): [number]}, f"owner {number}") for number in range(4)]
    answers = [child.answer() for child in [start(create, site, attempt, Purpose.CREATE) for attempt in attempts]]
    (winner,) = [made for made, _ in answers if made is not None]
    errors = [error for made, error in answers if made is None]
    assert all(
        error.startswith(("ConflictError: lake.sales.revenue is being created by", "TableAlreadyExistsError: "))
        for error in errors
    )
    with site.open() as workspace:
        assert content(workspace) == next(attempt.days for attempt in attempts if attempt.token == winner.token)
        sweep(site)
        check_all_settled(site, workspace)
