"""Refreshes, maintenance, other engines and readers at once, by chance: nobody loses a row, or sees half a commit."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event, Lock
from typing import Any
from uuid import uuid4

import polars as pl
import pyarrow as pa
import pytest
import s3fs
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from airflow_dynamic_tables.clients.delta.snapshots import storage_options
from airflow_dynamic_tables.core.versions import Retention, Version
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConflictError
from tests.support.benches.delta import refresh_at, staged_at, table_at
from tests.support.object_store import BUCKET, running_bucket

TOGETHER = ("1", "2")
"""Days that one refresh replaces at once, so that they always hold the same number."""

ALONE = "3"
THEIRS = "4"
"""A day of others, that no refresh has in its plan."""

AS_FEW_AS_CAN_BE = Retention(versions_to_keep=2, version_max_age=timedelta(0))


@dataclass
class Scene:
    """A table, what others have in it, and what was told of our commits."""

    location: str
    random: random.Random
    theirs: set[int] = field(default_factory=set)
    landed: list[Version] = field(default_factory=list)
    staging: set[str] = field(default_factory=set)
    lock: Lock = field(default_factory=Lock)
    is_over: Event = field(default_factory=Event)

    @property
    def options(self) -> dict[str, str]:
        """How others reach it."""
        return storage_options(self.location)

    def refresh(self, rows: dict[str, list[int]]) -> Version:
        """Replace days; whoever sweeps meanwhile is told of the stage, as the ledger tells it."""
        token = uuid4().hex
        folder = f"{self.location}/_stages/{token}"
        with self.lock:
            self.staging.add(folder)
        stage, request = staged_at(self.location, token, rows, *rows)
        version = stage.commit(request, lambda: None)
        with self.lock:
            self.staging.remove(folder)
        outcome = stage.outcome()
        assert outcome is not None
        assert outcome.number == version.number, "the rest may be forgotten with its entry"
        return version

    def held(self) -> set[str]:
        """Folders of stages that are under way."""
        with self.lock:
            return {*self.staging}

    def table(self) -> DeltaTable:
        """The table, as delta-rs has it now."""
        return DeltaTable(self.location.removeprefix("file://"), storage_options=self.options)

    def numbers(self, day: str) -> list[int]:
        """What delta-rs reads of a day."""
        rows = self.table().to_pyarrow_table(filters=[("ds", "=", day)])
        return sorted(rows.column("n").to_pylist())


@pytest.fixture
def home(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[str]:
    """A folder for a table, on a disk or in a bucket that keeps all versions of its objects."""
    if request.param == "disk":
        yield f"file://{tmp_path}/revenue"
        return
    with running_bucket():
        s3fs.S3FileSystem().make_bucket_versioned(BUCKET, versioned=True)
        yield f"s3://{BUCKET}/revenue"


@pytest.mark.large
@pytest.mark.parametrize(
    ("home", "times"), [("disk", 8), ("bucket", 2), pytest.param("bucket", 12, marks=pytest.mark.long)], indirect=["home"]
)
def test_whoever_works_on_a_table_at_once_loses_nothing(home: str, times: int) -> None:
    scene = Scene(home, random.Random(1))
    refresh_at(home, {day: [0] for day in (*TOGETHER, ALONE)})
    with ThreadPoolExecutor() as executor:
        ours = [executor.submit(_refresh_together, scene, times), executor.submit(_refresh_alone, scene, times)]
        others = [executor.submit(work, scene) for work in (_work_as_others, _maintain, _read)]
        try:
            for one in ours:
                one.result(300)
        finally:
            scene.is_over.set()
        for one in others:
            one.result(300)
    assert [scene.numbers(day) for day in TOGETHER] == [[times] * 3] * 2
    assert scene.numbers(ALONE) == [times]
    assert scene.numbers(THEIRS) == sorted(scene.theirs)
    told = sorted(version.number for version in scene.landed)
    assert told == [*range(2, 2 * times + 2)]
    assert table_at(home).versions()[-1].number == told[-1]


def _refresh_together(scene: Scene, times: int) -> None:
    for number in range(1, times + 1):
        scene.landed.append(scene.refresh({day: [number] * 3 for day in TOGETHER}))


def _refresh_alone(scene: Scene, times: int) -> None:
    for number in range(1, times + 1):
        scene.landed.append(scene.refresh({ALONE: [number]}))


def _work_as_others(scene: Scene) -> None:
    """Another engine does what comes to its mind; what it is refused, it has not done."""
    deeds: list[Callable[[Scene, int], None]] = [_append, _append_by_polars, _delete, _merge, _tidy, _forget]
    number = 0
    while not scene.is_over.wait(scene.random.random() / 5):
        number += 1
        with suppress(DeltaError):
            scene.random.choice(deeds)(scene, number)


def _append(scene: Scene, number: int) -> None:
    rows = pa.table({"ds": [THEIRS], "n": [number]})
    write_deltalake(scene.table(), rows, mode="append")
    scene.theirs.add(number)


def _append_by_polars(scene: Scene, number: int) -> None:
    rows = pl.DataFrame({"ds": [THEIRS], "n": [number]})
    rows.write_delta(scene.location.removeprefix("file://"), mode="append", storage_options=scene.options)
    scene.theirs.add(number)


def _delete(scene: Scene, _: int) -> None:
    gone = scene.random.choice([*scene.theirs, 0])
    scene.table().delete(f"ds = '{THEIRS}' AND n = {gone}")
    scene.theirs.discard(gone)


def _merge(scene: Scene, number: int) -> None:
    merging = scene.table().merge(
        pa.table({"ds": [THEIRS], "n": [number]}), "t.ds = s.ds AND t.n = s.n", source_alias="s", target_alias="t"
    )
    merging.when_not_matched_insert_all().execute()
    scene.theirs.add(number)


def _tidy(scene: Scene, _: int) -> None:
    scene.table().optimize.compact()
    scene.table().vacuum(0, dry_run=False, enforce_retention_duration=False)


def _forget(scene: Scene, _: int) -> None:
    scene.table().create_checkpoint()
    scene.table().cleanup_metadata()


def _maintain(scene: Scene) -> None:
    """Ours, on a machine whose clock is hours ahead: the log is cut off at once, and nobody's stage is old enough to stay."""
    table = table_at(scene.location)
    while not scene.is_over.wait(0.2):
        ahead = datetime.now(UTC) + timedelta(hours=2)
        with suppress(CatalogUnavailableError, ConflictError):  # others changed the log just now; it is looked at next time
            table.expire(AS_FEW_AS_CAN_BE, ahead, tuple)
            table.delete_orphans(ahead, scene.held)


def _read(scene: Scene) -> None:
    """A reader never sees one of two days without the other, nor an older number after a newer one."""
    newest = 0
    while not scene.is_over.wait(0.1):
        with suppress(DeltaError, OSError):  # what it was about to read is gone; it looks again
            rows = scene.table().to_pyarrow_table(columns=["ds", "n"])
            seen = [row["n"] for row in rows.to_pylist() if row["ds"] in TOGETHER]
            assert len({*seen}) == 1, seen
            assert seen[0] >= newest
            newest = seen[0]
