"""What has moved of a source: whatever is not surely the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_dynamic_tables.core.refresh.key_sources import KeyColumn, KeySource, PartitionMapping
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from tests.support.source_states import difference

BEFORE = SourceState("v1", "id", "/data", "schema", {"ds=1": "a", "ds=2": "b"})


def test_the_same_has_not_moved() -> None:
    assert difference(BEFORE, BEFORE) is None
    assert difference(BEFORE, replace(BEFORE, version="v2")) is None, "a commit that changed no partition"


@pytest.mark.parametrize(
    ("now", "partitions"),
    [
        (None, None),
        (replace(BEFORE, partitions=None), None),
        (replace(BEFORE, identity="other"), None),
        (replace(BEFORE, location="/other"), None),
        (replace(BEFORE, schema="other"), None),
        (replace(BEFORE, partitions={"ds=1": "a"}), {"ds=2"}),
        (replace(BEFORE, partitions={"ds=1": "x", "ds=2": "b", "ds=3": "c"}), {"ds=1", "ds=3"}),
    ],
)
def test_what_moved_is_told(now: SourceState | None, partitions: set[str] | None) -> None:
    found = difference(BEFORE, now)
    assert found is not None
    assert found.partitions == (None if partitions is None else frozenset(partitions))


def test_rows_in_other_files_have_not_moved() -> None:
    compacted = replace(BEFORE, version="v3", partitions={"ds=1": "x", "ds=2": "y"}, same_rows=("v2", "v1"))
    assert difference(BEFORE, compacted) is None
    assert difference(replace(BEFORE, unsettled=("ds=2",)), compacted) is not None
    assert difference(replace(BEFORE, version="v0"), compacted) is not None
    assert difference(BEFORE, replace(compacted, identity="other")) is not None


def test_what_was_not_settled_may_have_moved() -> None:
    found = difference(replace(BEFORE, unsettled=("ds=2",)), BEFORE)
    assert found is not None
    assert found.partitions == frozenset({"ds=2"})


@pytest.mark.parametrize(
    ("text", "kind", "concerns"),
    [
        ("day=2024-01-01", "string", True),
        ("day=2024-01-02", "string", False),
        ("day=2024-1-2", "date", True),
        ("day=2024-01-02", "date", False),
        ("day=2024-01-02", "timestamp", True),
        ("day=__HIVE_DEFAULT_PARTITION__", "string", True),
        ("other=2024-01-02", "string", True),
        ("", "string", True),
    ],
)
def test_partitions_are_apart_only_when_their_values_surely_are(text: str, kind: str, concerns: bool) -> None:
    moved = PartitionMapping({"ds": KeySource((KeyColumn("day"),))}, {"ds": kind})
    assert moved.affected([text]).include({"ds": "2024-01-01"}) is concerns
    assert moved.affected([text]).include({})
    assert moved.affected(None).include({"ds": "2024-01-01"})
    assert PartitionMapping({}, {"ds": kind}).affected([text]).include({"ds": "2024-01-01"}), "it is not known which key it is"
