"""The loop as values: turns that are told what becomes of them, and time that passes only while the loop waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from airflow_dynamic_tables.core.schedule import ContinuousSettings, Freshness
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    CommitRejectedError,
    ConfigurationError,
    ConflictError,
    JobFailedError,
    SchemaEvolutionError,
)
from airflow_dynamic_tables.services.continuous.base import TurnOutcome
from airflow_dynamic_tables.services.continuous.loop import MOST_FAILURES, RUN_DELAY, Ended, Halt, Loop, backoff

TEN_SECONDS = Freshness(10)

NOTHING = TurnOutcome(reason="nothing new")


def version(number: int) -> Version:
    day = datetime(2024, 3, 2, tzinfo=UTC)
    return Version(number, f"token-{number}", f"snapshot-{number}", day, day)


@dataclass
class Scene:
    """A clock, an event and a strategy in one: what each turn does, and when it was begun."""

    outcomes: Iterable[TurnOutcome | Exception | Callable[[], TurnOutcome]] = ()
    start: datetime = datetime(2024, 3, 2, 0, 0, 3, tzinfo=UTC)
    passed: float = 0
    stopped_at: float = float("inf")
    halts: Callable[[float], Halt | None] = lambda _: None
    begun: list[float] = field(default_factory=list)
    asked: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._left = iter(self.outcomes)

    def turn(self, number: int) -> TurnOutcome:
        self.begun.append(self.passed)
        assert number == len(self.begun)
        outcome = next(self._left, NOTHING)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome if isinstance(outcome, TurnOutcome) else outcome()

    def close(self) -> None: ...

    def is_set(self) -> bool:
        return self.passed >= self.stopped_at

    def wait(self, timeout: float) -> bool:
        assert timeout > 0
        self.passed = min(self.passed + timeout, max(self.stopped_at, self.passed))
        return self.is_set()

    def halt(self) -> Halt | None:
        self.asked.append(self.passed)
        return self.halts(self.passed)

    def run(
        self,
        freshness: Freshness = TEN_SECONDS,
        delay: timedelta = timedelta(),
        hold: timedelta = timedelta(hours=1),
        events: timedelta = timedelta(minutes=1),
    ) -> Ended:
        return Loop(
            strategy=self,
            freshness=freshness,
            settings=ContinuousSettings(hold=hold, events=events),
            halt=self.halt,
            stop=self,
            clock=lambda: self.start + timedelta(seconds=self.passed),
            seconds=lambda: self.passed,
            delay=delay,
        ).run()


def test_a_turn_at_once_and_then_one_at_every_multiple_of_the_freshness_until_the_hold_is_over() -> None:
    scene = Scene()
    ended = scene.run(hold=timedelta(minutes=1))
    assert scene.begun == [0, 7, 17, 27, 37, 47, 57]
    assert (ended.turns, ended.versions, ended.why) == (7, (), "its hold is over")


def test_a_loop_that_committed_ends_in_time_to_tell_of_all_its_commits() -> None:
    scene = Scene([NOTHING, TurnOutcome((version(1),)), NOTHING, TurnOutcome((version(2),))])
    ended = scene.run(events=timedelta(seconds=35))
    assert [each.number for each in ended.versions] == [1, 2]
    assert (scene.passed, ended.why) == (7 + 35, "its commits have to be reported")


def test_what_is_left_over_is_done_at_once() -> None:
    scene = Scene([TurnOutcome((version(1),), more=True), TurnOutcome((version(2),), more=True), TurnOutcome((version(3),))])
    scene.run(events=timedelta(seconds=9))
    assert scene.begun == [0, 0, 0, 7]


def test_a_turn_that_takes_longer_than_the_freshness_is_followed_by_the_next_one() -> None:
    scene = Scene()

    def slow() -> TurnOutcome:
        scene.passed += 25
        return NOTHING

    scene.outcomes = [slow]
    scene.__post_init__()
    scene.run(hold=timedelta(seconds=40))
    assert scene.begun == [0, 27, 37]


def test_a_stop_ends_it_within_the_wait() -> None:
    scene = Scene([TurnOutcome((version(1),))], stopped_at=3.5)
    ended = scene.run(Freshness(600))
    assert (scene.passed, ended.why, len(ended.versions)) == (3.5, "the task was stopped", 1)


def test_a_stop_in_a_turn_is_no_failure() -> None:
    scene = Scene(stopped_at=5)

    def killed() -> TurnOutcome:
        scene.passed = 6
        raise JobFailedError("killed")

    scene.outcomes = [killed]
    scene.__post_init__()
    assert scene.run().why == "the task was stopped"


def test_it_asks_whether_it_shall_go_on_before_every_turn_and_every_ten_seconds() -> None:
    scene = Scene(halts=lambda now: Halt("its definition changed", ends=True) if now >= 65 else None)
    ended = scene.run(Freshness(600))
    assert (scene.begun, scene.passed, ended.why) == ([0], 70, "its definition changed")
    assert scene.asked == [0, 0, *range(10, 71, 10)]


def test_a_halt_that_does_not_end_it_keeps_the_place_and_the_turn_comes_afterwards(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    scene = Scene(halts=lambda now: Halt("it is suspended") if now < 95 else None)
    ended = scene.run(hold=timedelta(seconds=110))
    assert (scene.begun, ended.why) == ([100, 107], "its hold is over")
    assert caplog.text.count("it is suspended") == 1


def test_failures_are_tried_again_with_growing_delays_and_the_one_too_many_is_raised() -> None:
    scene = Scene([JobFailedError(str(number)) for number in range(9)])
    with pytest.raises(JobFailedError, match="4"):
        scene.run()
    delays = [later - earlier for earlier, later in zip(scene.begun, scene.begun[1:], strict=False)]
    assert len(scene.begun) == MOST_FAILURES
    for number, delay in enumerate(delays):
        assert 0.75 * 5 * 2**number <= delay <= 5 * 2**number


def test_a_turn_without_failure_makes_the_count_begin_anew() -> None:
    failures = [CommitRejectedError("another engine"), CatalogUnavailableError(), OSError("disk"), ValueError("?")]
    scene = Scene([*failures, NOTHING, *failures, NOTHING])
    assert scene.run(hold=timedelta(minutes=4)).why == "its hold is over"


def test_what_another_turn_would_only_repeat_is_raised_at_once() -> None:
    for error in (ConfigurationError("no Spark"), SchemaEvolutionError("a column is gone")):
        scene = Scene([error])
        with pytest.raises(type(error)):
            scene.run()
        assert len(scene.begun) == 1


def test_commits_are_told_before_a_failure_fails_the_task() -> None:
    scene = Scene([TurnOutcome((version(1),)), SchemaEvolutionError("a column is gone")])
    ended = scene.run()
    assert (len(ended.versions), ended.why) == (1, "a turn failed: a column is gone")


def test_somebody_who_refreshes_by_hand_is_no_failure() -> None:
    scene = Scene([ConflictError("being refreshed by me")] * (2 * MOST_FAILURES))
    assert scene.run(hold=timedelta(minutes=2)).turns > MOST_FAILURES


def test_a_halt_that_cannot_be_asked_for_is_a_failure_like_any_other() -> None:
    def fails(now: float) -> Halt | None:
        if 20 < now < 40:
            raise CatalogUnavailableError
        return None

    scene = Scene(halts=fails)
    assert scene.run(hold=timedelta(minutes=2)).why == "its hold is over"
    scene = Scene(halts=lambda _: (_ for _ in ()).throw(CatalogUnavailableError))
    with pytest.raises(CatalogUnavailableError):
        scene.run()
    assert scene.begun == []


def test_after_a_run_that_failed_the_first_turn_waits_and_a_changed_definition_ends_the_wait() -> None:
    scene = Scene()
    scene.run(delay=RUN_DELAY, hold=timedelta(minutes=6))
    assert scene.begun[0] == RUN_DELAY.total_seconds()
    scene = Scene(halts=lambda now: Halt("its definition changed", ends=True) if now > 15 else None)
    assert scene.run(delay=RUN_DELAY).turns == 0
    assert scene.passed == 20


def test_a_clock_that_jumps_does_not_keep_the_loop_waiting() -> None:
    scene = Scene()

    def jump() -> TurnOutcome:
        scene.start -= timedelta(days=1)
        return NOTHING

    scene.outcomes = [jump]
    scene.__post_init__()
    scene.run(hold=timedelta(seconds=30))
    assert scene.begun == [0, 7, 17, 27]


def test_tables_that_failed_together_do_not_come_back_together() -> None:
    assert len({backoff(3) for _ in range(20)}) > 1
