"""What is compared after every step: the table, the ledger and the disk with the model."""

from __future__ import annotations

from airflow_dynamic_tables.formats.base import LakeTable
from airflow_dynamic_tables.ledger.base import UNFINISHED, Refresh, RefreshState, Stage, StageState
from tests.support.faults.model.lakes.base import Seen
from tests.support.faults.model.scene import Scene
from tests.support.faults.model.state import Broken, Change, Rows, TableState

UNKNOWN = (0, "", None)
"""What a table says of a version that was forgotten: its number, token and time."""


def observe(scene: Scene, by: str, *, may_forget: bool) -> None:
    """Look at the table and the ledger; take what landed into the model.

    :param by: the token of whoever was at work.
    :param may_forget: whether versions may have been forgotten.
    """
    seen = scene.lake.versions(scene.name)
    scene.look_for_plan(by)
    for version in seen:
        if version.number > len(scene.state.made):
            _land(scene, version, by)
    _check_versions(scene, seen, may_forget)
    _check_current_rows(scene, by)
    if problems := scene.lake.problems(scene.name):
        raise Broken("; ".join(problems))
    _check_package(scene)
    _check_ledger(scene)


def _check_current_rows(scene: Scene, by: str) -> None:
    rows = scene.lake.rows(scene.name)
    if rows == scene.state.rows:
        return
    if scene.lake.is_atomic or by not in scene.struck or not _is_part(rows, scene.state.rows, scene.changes[by]):
        raise Broken(f"the rows are {rows} instead of {scene.state.rows}")
    scene.state.rows = rows


def _is_part(rows: Rows, before: Rows, change: Change) -> bool:
    """Whether rows are what is left when a change was made in part."""
    for day in {*rows, *before}:
        is_planned = not change.planned or day in change.planned
        possible = {*before.get(day, ()), *(change.rows.get(day, ()) if is_planned else ())}
        if not {*rows.get(day, ())} <= possible or (not is_planned and rows.get(day) != before.get(day)):
            return False
    return True


def check_everything(scene: Scene) -> None:
    """Read the rows of every kept version, and of the tables that were renamed."""
    _check_rows(scene, scene.name, scene.state)
    for name, state in scene.former.items():
        if problems := scene.lake.problems(name):
            raise Broken(f"of {name}, " + "; ".join(problems))
        if scene.lake.rows(name) != state.rows:
            raise Broken(f"the rows of {name} are {scene.lake.rows(name)} instead of {state.rows}")
        _check_rows(scene, name, state)


def check_settled(scene: Scene) -> None:
    """Nobody is at work, and the maintenance was there: nothing is left behind."""
    if unfinished := scene.stages(UNFINISHED):
        raise Broken(f"stages are left: {unfinished}")
    if running := [refresh.token for refresh in _refreshes(scene).values() if refresh.finished_at is None]:
        raise Broken(f"the history says that they run: {running}")
    _check_undone(scene)
    kept = [f"/_versions/{scene.state.made[number - 1].token}/" for number in put_back(scene)]
    if files := [file for file in scene.lake.left_over(scene.name) if not any(folder in file for folder in kept)]:
        raise Broken(f"files are left: {files}")
    landed = [made.token for number, made in enumerate(scene.state.made, 1) if not _is_traceless(scene, number)]
    lagging = [token for token in landed if _stage(scene, token).state is not StageState.COMMITTED]
    if lagging:
        raise Broken(f"the ledger does not know that they landed: {lagging}")


def put_back(scene: Scene) -> dict[int, set[str]]:
    """The days whose rows others put back, by the numbers of the versions that these were of."""
    found: dict[int, set[str]] = {}
    for day, place in scene.lake.places(scene.name).items() if scene.lake.can_put_back and scene.lake.partitioned else ():
        for number, made in reversed([*enumerate(scene.state.made, 1)]):
            change = scene.changes[made.token]
            if change.planned and day not in change.planned:
                continue
            is_ours = "/_versions/" in place
            if f"/_versions/{made.token}/" not in place and (is_ours or change.rows.get(day)):
                found.setdefault(number, set()).add(day)
            break
    return {number: days for number, days in found.items() if number in scene.state.kept}


def _check_undone(scene: Scene) -> None:
    """Every version whose partitions others put back is known, with these, and the history says so."""
    if not scene.lake.can_put_back or not scene.lake.partitioned:
        return
    told = {one.version.number: {spec["ds"] for spec in one.partitions} for one in _package(scene).undone()}
    if told != (wanted := put_back(scene)):
        raise Broken(f"what was put back is told to be {told} instead of {wanted}")
    refreshes = _refreshes(scene)
    tokens = [scene.state.made[number - 1].token for number in wanted]
    if silent := [token for token in tokens if refreshes[token].state is not RefreshState.UNDONE]:
        raise Broken(f"the history does not say that they were undone: {silent}")


def _package(scene: Scene) -> LakeTable:
    """The table as this package sees it."""
    return scene.workspace.table(scene.lake.table, scene.lake.format)


def _land(scene: Scene, version: Seen, by: str) -> None:
    state = scene.state
    if version.number != len(state.made) + 1:
        raise Broken(f"version {version.number} comes after {len(state.made)}")
    if version.token not in scene.present:
        raise Broken(f"{version.token} landed in a table that it does not know")
    if version.token != by and version.token not in scene.struck:
        raise Broken(f"{version.token} landed while {by} was at work")
    change = scene.changes[version.token]
    bases = scene.bases[version.token]
    if change.planned and None not in bases and not bases & {*state.line}:
        raise Broken(f"{version.token} was planned on version {bases} and landed on {state.line}, which does not continue it")
    state.land(change)


def _check_versions(scene: Scene, seen: list[Seen], may_forget: bool) -> None:
    state = scene.state
    numbers = {version.number for version in seen}
    if len(numbers) != len(seen):
        raise Broken(f"a number stands twice: {seen}")
    for version in seen:
        made = state.made[version.number - 1]
        if (version.token, version.fresh) != (made.token, made.fresh):
            raise Broken(f"{version} instead of {made}")
    newest = {*state.line[-scene.lake.kept :]} & state.kept
    gone = state.kept - numbers
    if (gone and not may_forget and scene.lake.can_forget) or newest - state.forgotten - numbers:
        raise Broken(f"versions {sorted(gone or newest - numbers)} are gone")
    if numbers - state.kept:
        raise Broken(f"versions {sorted(numbers - state.kept)} are back")
    state.kept = numbers


def _check_package(scene: Scene) -> None:
    """What this package says of the table."""
    state = scene.state
    table = _package(scene)
    current = table.current()
    told = (current.number, current.token, current.data_timestamp) if current is not None else None
    made = state.made[state.line[-1] - 1] if state.line else None
    wanted = (state.line[-1], made.token, made.fresh) if made is not None else None
    state.is_unknown = told == UNKNOWN and made is not None and state.line[-1] not in state.kept
    if state.is_unknown:
        state.left |= {*state.line}
    elif told != wanted:
        raise Broken(f"the current version is told to be {told} instead of {wanted}")
    if [version.number for version in table.versions()] != sorted(state.kept & {*state.line}):
        raise Broken(f"kept versions are told to be {table.versions()} instead of {sorted(state.kept & {*state.line})}")


def _check_rows(scene: Scene, name: str, state: TableState) -> None:
    if not scene.lake.can_forget:
        return  # no version but the current one can be read
    for version in scene.lake.versions(name):
        rows = scene.lake.rows(name, version.snapshot)
        if rows != state.made[version.number - 1].rows:
            raise Broken(f"version {version.number} of {name} is {rows} instead of {state.made[version.number - 1].rows}")


def _check_ledger(scene: Scene) -> None:
    state = scene.state
    stages = {stage.token: stage for stage in scene.stages()}
    refreshes = _refreshes(scene)
    for number, made in enumerate(state.made, 1):
        stage = stages[made.token]
        if stage.state is not StageState.COMMITTED:
            is_lost = stage.state is StageState.ABORTED and not _is_traceless(scene, number)
            if made.token not in scene.struck or is_lost:
                raise Broken(f"version {number} landed, but its stage is {stage.state}")
            continue
        refresh = refreshes[made.token]
        wanted = (RefreshState.SUCCEEDED, number, made.fresh)
        told = (refresh.state, refresh.version, refresh.data_timestamp)
        if told == (RefreshState.UNDONE, *wanted[1:]) and number in state.undone | state.left:
            continue
        if told != wanted and not (number in state.forgotten and refresh.version is None):
            raise Broken(f"the history says {told} instead of {wanted}")
    for stage in stages.values():
        if stage.token in scene.present and state.number_of(stage.token) is None:
            _check_not_landed(stage, refreshes[stage.token].state if stage.token in refreshes else None)


def _is_traceless(scene: Scene, number: int) -> bool:
    """Whether nothing tells of a version any more: others made the table forget it, and replaced all of its rows."""
    written = scene.changes[scene.state.made[number - 1].token].rows
    held = (row for day, rows in written.items() for row in rows if row in scene.state.rows.get(day, ()))
    return number not in scene.state.kept and next(held, None) is None


def _check_not_landed(stage: Stage, state: RefreshState | None) -> None:
    if stage.state is StageState.COMMITTED or state is RefreshState.SUCCEEDED:
        raise Broken(f"{stage.token} did not land, but is {stage.state} and {state}")


def _refreshes(scene: Scene) -> dict[str, Refresh]:
    return {refresh.token: refresh for refresh in scene.workspace.ledger.list_refreshes(scene.lake.table, 100_000)}


def _stage(scene: Scene, token: str) -> Stage:
    stage = scene.workspace.ledger.get_stage(token)
    if stage is None:
        raise Broken(f"the ledger knows nothing of {token}")
    return stage
