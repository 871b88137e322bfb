"""Files that one engine has written and no snapshot refers to yet: the other one does not delete them, or it is noticed."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_dynamic_tables.core.refresh.steps import Step
from airflow_dynamic_tables.exceptions import ConfigurationError, StageRejectedError
from airflow_dynamic_tables.services.lifecycle.dropping import drop
from airflow_dynamic_tables.services.maintenance.sweeping import expire
from tests.support.iceberg_shared import SharedTable

pytestmark = [pytest.mark.large, pytest.mark.spark]

REMOVE = "CALL {c}.system.remove_orphan_files(table => '{d}.figures')"
EXPIRE = "CALL {c}.system.expire_snapshots(table => '{d}.figures', older_than => timestamp '2100-01-01', retain_last => 1)"


def age(folder: Path, days: int = 10) -> None:
    """Let all files be older than the three days, and the one, in which Iceberg's library and the maintenance delete none."""
    then = time.time() - days * 24 * 60 * 60
    for file in folder.rglob("*"):
        os.utime(file, (then, then))


def maintain(shared: SharedTable) -> int:
    """Run the maintenance of today, and return how many files it deleted."""
    shared.place.clock.time = datetime.now(UTC)
    return expire(shared.place.workspace, shared.place.table).files


def test_what_a_table_is_made_of_survives_their_removal_of_orphans(shared: SharedTable) -> None:
    place = shared.place
    place.refresh(1, [11])
    place.refresh(2, [21], token="d2")
    place.by_hand(1, [12])
    left = shared.folder / "data" / "left.parquet"
    left.write_bytes(b"PAR1")
    age(shared.folder)
    shared.sql(REMOVE)
    assert not left.exists()
    assert shared.theirs() == place.rows() == {1: [12], 2: [21]}
    place.roll_back(2, "back")
    assert shared.theirs() == place.rows() == {1: [11], 2: [21]}


def test_a_stage_of_days_outlives_their_removal_of_orphans(shared: SharedTable) -> None:
    """Its folders begin with an underscore, which Iceberg's library does not look into."""
    place = shared.place
    place.refresh(1, [11])

    def remove() -> None:
        age(shared.folder)
        shared.sql(REMOVE)

    place.at(Step.COMMIT, "d2", remove)
    place.refresh(2, [21], token="d2")
    assert shared.theirs() == place.rows() == {1: [11], 2: [21]}


def test_a_stage_whose_files_others_deleted_is_rejected_and_changes_nothing(shared: SharedTable) -> None:
    place = shared.place
    place.refresh(1, [11])

    def remove() -> None:
        for file in shared.folder.rglob("d2-part-*"):
            file.unlink()

    place.at(Step.COMMIT, "d2", remove)
    with pytest.raises(StageRejectedError, match=r"d2-part-0\.parquet is missing or damaged"):
        place.refresh(2, [21], token="d2")
    assert shared.theirs() == place.rows() == {1: [11]}
    place.refresh(2)
    assert shared.theirs() == place.rows() == {1: [11], 2: [21]}


def test_what_others_wrote_survives_the_maintenance(shared: SharedTable) -> None:
    place = shared.place
    place.refresh(1, [11])
    modes = "'write.delete.mode' = 'merge-on-read', 'write.object-storage.enabled' = 'true'"
    shared.sql(
        f"ALTER TABLE {{t}} SET TBLPROPERTIES ({modes})",
        "INSERT INTO {t} VALUES ('2024-03-09', 91), ('2024-03-09', 92)",
        "ALTER TABLE {t} CREATE BRANCH kept",
        "DELETE FROM {t} WHERE n = 92",
        "CALL {c}.system.compute_table_stats('{d}.figures')",
        "CALL {c}.system.compute_partition_stats('{d}.figures')",
    )
    place.refresh(2, [21])
    place.by_hand(1, [12])
    written = shared.folder / "data" / "0" / "part-of-a-commit-to-come.parquet"
    age(shared.folder)
    written.parent.mkdir()
    written.write_bytes(b"PAR1")
    maintain(shared)
    assert written.exists(), "files of the last day may be of a commit to come"
    assert shared.theirs() == place.rows() == {1: [12], 2: [21], 9: [91]}
    assert [row["n"] for row in shared.sql("SELECT n FROM {t} VERSION AS OF 'kept' WHERE ds = '2024-03-09' ORDER BY n")] == [
        91,
        92,
    ]
    assert shared.sql("SELECT count(*) AS n FROM {t}.partitions") == [{"n": 3}]
    shared.sql("CALL {c}.system.rewrite_data_files(table => '{d}.figures', options => map('rewrite-all', 'true'))", EXPIRE)
    age(shared.folder)
    assert maintain(shared) > 0, "nothing refers any more to files of before"
    assert shared.theirs() == place.rows() == {1: [12], 2: [21], 9: [91]}


def test_a_table_whose_files_others_share_loses_none(shared: SharedTable) -> None:
    place = shared.place
    place.refresh(1, [11])
    shared.sql("ALTER TABLE {t} SET TBLPROPERTIES ('gc.enabled' = 'false')")
    for number in range(12, 30):
        place.by_hand(1, [number])
    left = shared.folder / "data" / "left.parquet"
    left.write_bytes(b"PAR1")
    age(shared.folder)
    before = len(shared.snapshots())
    assert maintain(shared) == 0
    assert left.exists()
    place.clock.time += timedelta(days=400)
    expire(place.workspace, place.table)
    assert len(shared.snapshots()) == before, "no version is forgotten"
    with pytest.raises(ConfigurationError, match=r"has the property gc\.enabled=false, .* drop the table without its files"):
        drop(place.workspace, place.table, purge=True)
    assert shared.theirs() == place.rows() == {1: [29]}
    drop(place.workspace, place.table)
    assert left.exists()
