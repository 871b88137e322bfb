"""Durations decide between a merge and a replacement as soon as both are measured; before, the bytes that they read."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.core.refresh.merge_costs import ReadBytes, why_costlier

MIB = 1 << 20


def read(merge: float, replacement: float) -> ReadBytes:
    return ReadBytes(int(merge * MIB), int(replacement * MIB))


@pytest.mark.parametrize("merges", [[], [900.0, 900.0]])
def test_bytes_decide_before_three_merges_are_measured(merges: list[float]) -> None:
    why = "a merge of the new ones would read 2,000.0 MiB instead of 300.5 MiB"
    assert why_costlier(merges, [1.0], read(2000, 300.5)) == why
    assert why_costlier(merges, [1.0], read(300.5, 2000)) == ""


def test_bytes_decide_before_another_refresh_is_measured() -> None:
    assert why_costlier([1.0] * 3, [], read(3, 1))


def test_small_differences_do_not_count() -> None:
    assert why_costlier([], [], read(1.9, 1)) == ""
    assert why_costlier([], [], ReadBytes(int(1.9 * MIB) + 1, MIB)) != ""


def test_a_merge_is_tried_if_the_bytes_are_not_known() -> None:
    assert why_costlier([], [], None) == ""
    assert why_costlier([900.0] * 2, [1.0], None) == ""


def test_durations_outweigh_bytes() -> None:
    assert why_costlier([12.0, 1.0, 15.0], [1.0], read(1, 900)) == "earlier merges took longer"
    assert why_costlier([11.0, 1.0, 15.0], [1.0], read(900, 1)) == "", "ten seconds are not enough"


def test_only_the_latest_durations_count() -> None:
    assert why_costlier([1.0, 1.0, 1.0, 900.0, 900.0], [1.0], None) == ""
    assert why_costlier([90.0] * 3, [90.0] * 3 + [1.0] * 10, None) == ""


def test_a_merge_also_joins_rows() -> None:
    why = "a merge of the new ones would read 90.3 MiB instead of 90.5 MiB, which saves too little"
    assert why_costlier([], [], read(90.3, 90.5)) == why
    assert why_costlier([], [], read(80, 90.5)) == ""
