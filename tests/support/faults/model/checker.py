"""The loop: one random step after the other, a look after each, and at the end everything is settled."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from tests.support.faults.model import actions, foreign
from tests.support.faults.model.actions import DAY, HOUR
from tests.support.faults.model.checks import check_everything, check_settled, observe
from tests.support.faults.model.lakes.base import Lake
from tests.support.faults.model.scene import Scene
from tests.support.faults.model.state import Broken
from tests.support.faults.model.work import Work, perform

SEED, STEPS = "MODEL_SEED", "MODEL_STEPS"
"""Environment variables that choose another seed, or more steps."""

ACTIONS: Mapping[Callable[[Scene], str | None], int] = {
    actions.refresh: 18,
    actions.strike_refresh: 24,
    actions.wake: 14,
    actions.sweep: 10,
    actions.strike_sweep: 6,
    actions.rollback: 5,
    actions.strike_rollback: 4,
    actions.hold: 6,
    actions.publish: 6,
    actions.strike_decision: 5,
    actions.reject: 2,
    actions.kill_stopped: 4,
    foreign.append: 5,
    foreign.delete: 3,
    foreign.compact: 3,
    foreign.expire: 3,
    foreign.rename: 1,
    foreign.go_back: 4,
    foreign.drop: 1,
    actions.remake: 2,
    foreign.redefine: 3,
    actions.cut: 6,
    actions.silence: 2,
}
"""The steps, and how often each is taken, in proportion."""

PUTTING_BACK: Mapping[Callable[[Scene], str | None], int] = {foreign.read_partitions: 6, foreign.write_partitions: 8}
"""More steps, for tables whose partitions others can put back."""

SERVED: Mapping[Callable[[Scene], str | None], int] = {foreign.empty: 3, foreign.lose: 3, foreign.disconnect: 4}
"""More steps, for tables of a server."""

_EVERY = 10
"""After how many steps all versions are read."""


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Walk:
    """How far to go, and by which random numbers."""

    seed: int
    steps: int

    @classmethod
    def chosen(cls, seed: int, steps: int) -> Walk:
        """As the environment says, otherwise so."""
        return cls(int(os.environ.get(SEED) or seed), int(os.environ.get(STEPS) or steps))


def walk(scene: Scene, walk: Walk, read: Callable[[Scene], None] = lambda _: None) -> None:
    """Do random steps and settle everything.

    :param read: what other readers find, at the end.
    :raises Broken: with the seed and all steps.
    """
    package = logging.getLogger("airflow_dynamic_tables")
    level = package.level
    package.setLevel(logging.CRITICAL)
    try:
        scene.define("how much")
        while len(scene.steps) < walk.steps:
            steps = {**ACTIONS, **_more_steps(scene.lake)}
            action = scene.random.choices(list(steps), list(steps.values()))[0]
            scene.steps.append(action.__name__)
            told = action(scene)
            if told is None:
                scene.steps.pop()
                continue
            scene.steps[-1] = told
            log.info("%d %s", len(scene.steps), told)
            if len(scene.steps) % _EVERY == 0:
                check_everything(scene)
        _settle(scene)
        check_everything(scene)
        read(scene)
    except Exception as error:
        done = "\n".join(f"{number:4} {step}" for number, step in enumerate(scene.steps, 1))
        raise Broken(
            f"{type(error).__name__}: {error}\nseed {walk.seed}, step {len(scene.steps)} of {walk.steps}; again by "
            f"{SEED}={walk.seed} {STEPS}={walk.steps}. The steps:\n{done}"
        ) from error
    finally:
        package.setLevel(level)
        for running in scene.running:
            running.kill()


def _more_steps(lake: Lake) -> Mapping[Callable[[Scene], str | None], int]:
    if lake.is_served:
        return SERVED
    return PUTTING_BACK if lake.can_put_back and lake.partitioned else {}


def _settle(scene: Scene) -> None:
    """Everybody who was stopped wakes up and comes to an end; the maintenance is there now and in days to come."""
    scene.steps.append("settle")
    while scene.running:
        running = scene.running.pop()
        while not running.is_stuck:
            scene.stand(running.work.change.token)
            running.child.wake()
            if (outcome := running.wait()) is not None:
                observe(scene, running.work.change.token, may_forget=running.work.kind == "sweep")
                scene.answered(running.work, outcome)
                break
        running.kill()
    for ahead in (timedelta(), HOUR, 3 * DAY, 6 * DAY, 40 * DAY, 43 * DAY):
        outcome = perform(scene.place(), Work("sweep", ahead=ahead))
        observe(scene, "", may_forget=True)
        if outcome.kind != "done":
            raise Broken(f"sweep: {outcome}")
    check_settled(scene)
