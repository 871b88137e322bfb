"""Steps of those who work on the table by this package, and what happens to them; each says what it did."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from airflow_dynamic_tables.ledger.base import HOLDING, UNFINISHED, StageState
from airflow_dynamic_tables.services.workspace import utc_now
from tests.support.faults.cutting_proxy import Wire
from tests.support.faults.model.checks import observe
from tests.support.faults.model.foreign import drop
from tests.support.faults.model.scene import Held, Scene
from tests.support.faults.model.state import Broken
from tests.support.faults.model.strikes import CALL, ENDING, FILE, NAMED, Running, Strike, begin_impatient, begin_struck
from tests.support.faults.model.work import UNPLANNED, Outcome, Work, perform
from tests.support.faults.victims import Site

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
AHEAD = (timedelta(), timedelta(), 3 * MINUTE, HOUR, DAY + HOUR, 3 * DAY, 9 * DAY, -10 * MINUTE, -DAY)
"""Clocks of the maintenance."""

SKEWS = (-5 * MINUTE, 5 * MINUTE, -MINUTE, DAY)
"""Clocks of those who write."""

FLAWS = ("fails", "truncated", UNPLANNED, "no result")
MOST_RUNNING = 3
LATEST = {"statement": 40, "sent": 9, FILE: 20, CALL: 60, "writing": 2}
LATEST_OF_REFRESHES = LATEST | {"statement": 60, "sent": 13}
"""How often a piece of work comes to a point, at most; a strike waits for one of these times."""


def refresh(scene: Scene) -> str | None:
    """Somebody refreshes, maybe on a machine with another clock, or by a job with a flaw."""
    work = _elsewhere(scene, scene.new_refresh())
    if scene.random.random() < 0.12:
        flaw = scene.random.choice(FLAWS)
        work = replace(work, flaw=flaw if work.change.planned or flaw != UNPLANNED else "fails")
    return _performed(scene, work, scene.expected(work))


def remake(scene: Scene) -> str | None:
    """The table is dropped, and a refresh makes it again at once; others that were begun before may still be at work."""
    told = drop(scene)
    return None if told is None else f"{told}, then {refresh(scene)}"


def rollback(scene: Scene) -> str | None:
    work = scene.new_rollback()
    if work is None:
        return None
    work = _elsewhere(scene, work)
    return _performed(scene, work, scene.expected(work))


def hold(scene: Scene) -> str | None:
    work = scene.new_refresh("hold")
    told = _performed(scene, work, scene.expected(work))
    if told.endswith(": held"):
        scene.held[work.change.token] = Held(work.change, scene.moment)
    return told


def publish(scene: Scene) -> str | None:
    work = _decision(scene, "publish")
    return None if work is None else _performed(scene, work, _published(scene, work))


def reject(scene: Scene) -> str | None:
    work = _decision(scene, "reject")
    return None if work is None else _performed(scene, work)


def sweep(scene: Scene) -> str | None:
    """The maintenance runs, by any clock."""
    return _performed(scene, Work("sweep", ahead=scene.random.choice(AHEAD)), {"done"})


def strike_refresh(scene: Scene) -> str | None:
    """A refresh is killed, stopped, finds the disk full, or is cut off from its server."""
    return _struck(scene, _elsewhere(scene, scene.new_refresh()), scene.lake.strikes)


def strike_rollback(scene: Scene) -> str | None:
    work = scene.new_rollback()
    return None if work is None else _struck(scene, work, ("kill", "stop"))


def strike_decision(scene: Scene) -> str | None:
    """Whoever publishes or gives up what is in quarantine is killed or stopped."""
    work = _decision(scene, scene.random.choice(("publish", "publish", "reject")))
    return None if work is None else _struck(scene, work, ("kill", "stop"))


def strike_sweep(scene: Scene) -> str | None:
    return _struck(scene, Work("sweep", ahead=scene.random.choice(AHEAD)), ("kill", "stop"))


def wake(scene: Scene) -> str | None:
    stopped = [running for running in scene.running if not running.is_stuck]
    if not stopped:
        return None
    running = scene.random.choice(stopped)
    scene.stand(running.work.change.token)
    running.child.wake()
    return f"wake {running.work}: {_waited(scene, running)}"


def kill_stopped(scene: Scene) -> str | None:
    if not scene.running:
        return None
    running = scene.random.choice(scene.running)
    running.kill()
    scene.running.remove(running)
    observe(scene, running.work.change.token, may_forget=False)
    return f"kill {running.work}"


def cut(scene: Scene) -> str | None:
    """The connection breaks off in the commit: before the server got it, or before its answer was there."""
    if scene.cable is None or scene.proxy is None:
        return None
    work = scene.new_refresh()
    expected = scene.expected(work)
    if scene.stages(HOLDING):
        expected.add("ConflictError")  # it is the fence that is cut off; then nobody may go on
    fault = scene.random.choice((_question_lost, _answer_lost))
    scene.proxy.fault = fault
    try:
        return f"{fault.__name__}: {_performed(scene, work, expected, scene.cable)}"
    finally:
        scene.proxy.fault = None


def silence(scene: Scene) -> str | None:
    if scene.cable is None or scene.proxy is None or len(scene.running) >= MOST_RUNNING:
        return None
    work = scene.new_refresh()
    if scene.expected(work) != {"landed"} or scene.stages(HOLDING):
        return None
    scene.remember(work)
    scene.stand(work.change.token)
    scene.struck.add(work.change.token)
    scene.proxy.struck.clear()
    scene.proxy.fault = _silent
    scene.running.append(begin_impatient(scene.place(scene.cable), work))
    if not scene.proxy.struck.wait(120):
        raise Broken(f"{work} did not come to its commit")
    observe(scene, work.change.token, may_forget=False)
    return f"silence {work}"


def _question_lost(wire: Wire, _: bytes) -> None:
    wire.cut()


def _answer_lost(wire: Wire, question: bytes) -> None:
    wire.deliver(question)
    wire.cut()


def _silent(wire: Wire, _: bytes) -> None:
    wire.silent = True


def _elsewhere(scene: Scene, work: Work) -> Work:
    """The work, now and then on a machine with another clock; by one that is a day ahead it is for a day that is not over."""
    if scene.random.random() >= 0.12:
        return work
    ahead = scene.random.choice(SKEWS)
    change = replace(work.change, at=utc_now() + DAY) if ahead == DAY and work.change.at is not None else work.change
    return replace(work, change=change, ahead=ahead)


def _performed(scene: Scene, work: Work, expected: set[str] | None = None, site: Site | None = None) -> str:
    """Do a piece of work to which nothing happens, and look at what came of it."""
    if work.kind in ("refresh", "hold", "rollback"):
        scene.remember(work)
        scene.stand(work.change.token)
    outcome = perform(scene.place(site), work)
    _ended(scene, work, outcome)
    if expected is not None and outcome.kind not in expected:
        raise Broken(f"{work}: {outcome}, not {' or '.join(sorted(expected))}")
    return f"{work}: {outcome}"


def _struck(scene: Scene, work: Work, kinds: tuple[str, ...]) -> str | None:
    """Begin a piece of work to which something happens."""
    if len(scene.running) >= MOST_RUNNING:
        return None
    strikes = _strikes(scene, work, scene.random.choice(kinds))
    if work.kind in ("refresh", "rollback"):
        scene.remember(work)
        scene.stand(work.change.token)
    scene.struck.add(work.change.token)
    running = begin_struck(scene.place(scene.victims), work, strikes)
    scene.running.append(running)
    return f"{', then '.join(map(str, strikes))}: {work}: {_waited(scene, running)}"


def _strikes(scene: Scene, work: Work, kind: str) -> list[Strike]:
    random = scene.random
    if kind == "full":
        return [Strike(random.choice(("begin", "planned", "commit", "publishing")), kind)]
    # Who is stopped within a transaction of SQLite keeps everybody waiting.
    is_safe = kind != "stop" or not scene.site.database_url.startswith("sqlite")
    ending = ENDING if scene.stages(UNFINISHED) else ()
    point = random.choice((*NAMED.get(work.kind, ()), *ending, *(scene.lake.points if is_safe else (FILE,))))
    latest = LATEST_OF_REFRESHES if work.kind == "refresh" else LATEST
    first = Strike(point, kind, random.randint(1, latest.get(point, 1)))
    if kind != "stop" or random.random() < 0.6:
        return [first]
    return [first, *_strikes(scene, work, random.choice(("kill", "stop")))][:2]


def _waited(scene: Scene, running: Running) -> Outcome:
    outcome = running.wait()
    if outcome is None:
        observe(scene, running.work.change.token, may_forget=running.work.kind == "sweep")
        return Outcome("stopped")
    scene.running.remove(running)
    _ended(scene, running.work, outcome)
    return outcome


def _ended(scene: Scene, work: Work, outcome: Outcome) -> None:
    observe(scene, work.change.token, may_forget=work.kind == "sweep")
    scene.answered(work, outcome)
    scene.counts[outcome.kind] += 1


def _decision(scene: Scene, kind: str) -> Work | None:
    """A decision on something that was in quarantine once, mostly on what is there now."""
    waiting = [stage.token for stage in scene.stages((StageState.QUARANTINED,))]
    tokens = waiting if scene.random.random() < 0.9 else sorted(scene.held)
    if not tokens:
        return None
    return Work(kind, scene.held[scene.random.choice(tokens)].change)


def _published(scene: Scene, work: Work) -> set[str] | None:
    """How publishing has to end, as far as that can be said: when nothing came between, it lands."""
    token = work.change.token
    is_held = token in {stage.token for stage in scene.stages((StageState.QUARANTINED,))}
    fits = token in scene.present and work.change.width >= scene.state.width
    if is_held and fits and scene.held[token].planned_on == scene.moment:
        return scene.expected(work)
    return None
