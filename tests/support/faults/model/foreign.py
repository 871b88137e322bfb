"""Steps of other engines, and of whoever renames, drops or declares the table; each says what it did."""

from __future__ import annotations

from airflow_dynamic_tables.core.identifiers import ObjectPath
from tests.support.faults.model.checks import observe, put_back
from tests.support.faults.model.scene import DAYS, Scene
from tests.support.faults.model.state import Broken, without_empty


def append(scene: Scene) -> str | None:
    """Another engine adds a row."""
    if not scene.state.made:
        return None
    day = scene.random.choice(DAYS)
    row = (-len(scene.steps) - 1, scene.state.width)
    scene.lake.append(scene.name, day, row)
    scene.state.rows = without_empty({**scene.state.rows, day: (*scene.state.rows.get(day, ()), row)})
    observe(scene, "", may_forget=False)
    return f"another engine adds {row} to {day}"


def delete(scene: Scene) -> str | None:
    """Another engine deletes a day."""
    if not scene.state.rows or not scene.lake.partitioned:
        return None
    day = scene.random.choice(sorted(scene.state.rows))
    scene.lake.delete(scene.name, day)
    scene.state.rows = {other: rows for other, rows in scene.state.rows.items() if other != day}
    observe(scene, "", may_forget=False)
    return f"another engine deletes {day}"


def compact(scene: Scene) -> str | None:
    """Another engine writes all rows anew."""
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
    """Another engine expires snapshots."""
    if not scene.state.made or not scene.lake.can_forget:
        return None
    keep = scene.random.choice((1, 1, 2, 5))
    kept = scene.state.kept
    scene.lake.forget(scene.name, keep)
    scene.state.forgotten |= kept - {version.number for version in scene.lake.versions(scene.name)}
    observe(scene, "", may_forget=True)
    return f"another engine expires all but {keep} snapshots"


def rename(scene: Scene) -> str | None:
    """Somebody renames the table; the next refresh makes one of the old name."""
    if not scene.state.made or not scene.lake.can_move:
        return None
    name = f"{scene.name}_{len(scene.steps)}"
    table = scene.lake.table
    scene.workspace.catalog(table.catalog).rename_table(ObjectPath(table.database, table.table), name)
    scene.former[name] = scene.state
    scene.begin_anew()
    observe(scene, "", may_forget=False)
    return f"rename to {name}"


def drop(scene: Scene) -> str | None:
    """Somebody drops the table."""
    if not scene.state.made or not scene.lake.can_move:
        return None
    table = scene.lake.table
    scene.workspace.catalog(table.catalog).drop_table(ObjectPath(table.database, table.table))
    scene.begin_anew()
    observe(scene, "", may_forget=False)
    return "drop"


def redefine(scene: Scene) -> str | None:
    """Somebody changes the definition: its comment, how many versions it keeps, or its columns."""
    scene.width += scene.width < 2 and scene.random.random() < 0.4
    keep = scene.random.choice((3, 4))
    scene.define(f"changed at step {len(scene.steps)}", keep)
    return f"define with {scene.width} more columns, keep {keep} versions"
