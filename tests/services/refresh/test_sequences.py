"""Random queries, changes of their sources, and whatever happens to their table: after each refresh it equals its query."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sequences import Score, check


@pytest.mark.sampled
@pytest.mark.filterwarnings(
    "ignore:Delete operation did not match any records"
)  # of PyIceberg, also when a partition is replaced
@pytest.mark.parametrize("seeds", [range(2), *(range(first, first + 20) for first in range(100, 2100, 20))], ids=str)
def test_the_table_equals_its_query(tmp_path: Path, empty_state: Path, seeds: range) -> None:
    score = Score()
    for seed in seeds:
        folder = tmp_path / str(seed)
        folder.mkdir()
        check(seed, folder, empty_state, score)
    print(score)
    assert all(ratio >= 1 for ratio in score.ratios), "dirty partitions are at least the needed ones"
