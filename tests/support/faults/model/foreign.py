"""Steps of other engines, and of whoever renames, drops or declares the table; each says what it did."""

from __future__ import annotations

from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.exceptions import ConflictError
from airflow_dynamic_tables.services.lifecycle import dropping
from tests.support.faults.model.checks import observe, put_back
from tests.support.faults.model.scene import DAYS, Scene
from tests.support.faults.model.state import Broken, without_empty


def append(scene: Scene) -> str | None:
    if not scene.state.line:
        return None
    day = scene.random.choice(DAYS)
    row = (-len(scene.steps) - 1, scene.state.width)
    scene.lake.append(scene.name, day, row)
    scene.state.rows = without_empty({**scene.state.rows, day: (*scene.state.rows.get(day, ()), row)})
    observe(scene, "", may_forget=False)
    return f"another engine adds {row} to {day}"


def delete(scene: Scene) -> str | None:
    if not scene.state.rows or not scene.lake.partitioned:
        return None
    day = scene.random.choice(sorted(scene.state.rows))
    scene.lake.delete(scene.name, day)
    scene.state.rows = {other: rows for other, rows in scene.state.rows.items() if other != day}
    if scene.lake.is_served and not scene.state.rows:
        scene.state.left.add(scene.state.line[-1])  # an empty table shows
    observe(scene, "", may_forget=False)
    return f"another engine deletes {day}"


def empty(scene: Scene) -> str | None:
    if not scene.state.rows or not scene.lake.is_served:
        return None
    scene.lake.empty(scene.name)
    scene.state.rows = {}
    scene.state.left.add(scene.state.line[-1])
    observe(scene, "", may_forget=False)
    return "another client empties the table"


def lose(scene: Scene) -> str | None:
    """Another client drops the table behind the catalog; what was planned on it may not land in the next one."""
    if not scene.state.line or not scene.lake.is_served:
        return None
    scene.lake.lose(scene.name)
    scene.state.lose()
    scene.present -= {token for token in scene.planned if None not in scene.bases[token]}
    observe(scene, "", may_forget=False)
    return "another client drops the table"


def disconnect(scene: Scene) -> str | None:
    """The server ends all connections, also of those who were stopped."""
    if not scene.lake.is_served:
        return None
    scene.lake.disconnect()
    observe(scene, "", may_forget=False)
    return "the server ends all connections"


def compact(scene: Scene) -> str | None:
    if not scene.state.rows:
        return None
    scene.lake.compact(scene.name)
    observe(scene, "", may_forget=False)
    return "another engine compacts"


def read_partitions(scene: Scene) -> str | None:
    """Another engine begins to analyze the partitions."""
    if not scene.state.rows or not scene.lake.can_put_back or not scene.lake.partitioned:
        return None
    scene.lake.read_partitions(scene.name)
    return "another engine reads the partitions"


def write_partitions(scene: Scene) -> str | None:
    """It writes them back, with the folders that it read."""
    if not scene.state.rows or not scene.lake.can_put_back or not scene.lake.partitioned:
        return None
    days = scene.lake.write_partitions(scene.name)
    rows = scene.lake.rows(scene.name)
    if changed := [day for day in {*rows, *scene.state.rows} - {*days} if rows.get(day) != scene.state.rows.get(day)]:
        raise Broken(f"days {changed} changed, though {days} were written back")
    scene.state.rows = rows
    scene.state.undone |= put_back(scene).keys()
    observe(scene, "", may_forget=False)
    return f"another engine writes back {days}"


def expire(scene: Scene) -> str | None:
    if not scene.state.line or not scene.lake.can_forget:
        return None
    keep = scene.random.choice((1, 1, 2, 5))
    kept = scene.state.kept
    scene.lake.forget(scene.name, keep)
    scene.state.forgotten |= kept - {version.number for version in scene.lake.versions(scene.name)}
    observe(scene, "", may_forget=True)
    return f"another engine expires all but {keep} snapshots"


def go_back(scene: Scene) -> str | None:
    """Another engine makes a version current again that is kept, or was left before."""
    possible = sorted(scene.state.kept - {*scene.state.line[-1:]})
    if not possible or not scene.lake.can_go_back:
        return None
    number = scene.random.choice(possible)
    snapshots = {version.number: version.snapshot for version in scene.lake.versions(scene.name)}
    scene.lake.go_back(scene.name, snapshots[number])
    scene.state.go_back(number, with_columns=scene.lake.columns_go_back)
    observe(scene, "", may_forget=False)
    return f"another engine goes back to version {number}"


def rename(scene: Scene) -> str | None:
    """Somebody renames the table; the next refresh makes one of the old name."""
    if not scene.state.line or not scene.lake.can_move:
        return None
    name = f"{scene.name}_{len(scene.steps)}"
    table = scene.lake.table
    scene.workspace.catalog(table.catalog).rename_table(ObjectPath(table.database, table.table), name)
    scene.former[name] = scene.state
    scene.begin_anew()
    observe(scene, "", may_forget=False)
    return f"rename to {name}"


def drop(scene: Scene) -> str | None:
    """Another engine drops the table, or somebody here does, with or without its files."""
    if not scene.state.made or not scene.lake.can_move:
        return None
    table = scene.lake.table
    how = scene.random.choice(("by another engine", "here", "here with its files"))
    if how == "by another engine":
        scene.workspace.catalog(table.catalog).drop_table(ObjectPath(table.database, table.table))
    else:
        try:
            dropping.drop(scene.workspace, table, purge="files" in how)
        except ConflictError as error:
            observe(scene, "", may_forget=False)
            return f"drop {how}: {error}"
    scene.begin_anew()
    observe(scene, "", may_forget=False)
    return f"drop {how}"


def redefine(scene: Scene) -> str | None:
    """Somebody changes the definition: its comment, how many versions it keeps, or its columns."""
    scene.width += scene.width < 2 and scene.random.random() < 0.4
    keep = scene.random.choice((3, 4))
    scene.define(f"changed at step {len(scene.steps)}", keep)
    return f"define with {scene.width} more columns, keep {keep} versions"
