"""What may be asked of a table in which state: the whole state machine."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.catalog.values import STATES, Asked, JobState, is_refused, state_after

NONE = "no table"
TABLE = """
asked                    | no table     | INITIALIZING | RUNNING   | SUSPENDED
register                 | INITIALIZING | INITIALIZING | RUNNING   | SUSPENDED
refresh                  | RUNNING      | RUNNING      | RUNNING   | refused
forced refresh           | RUNNING      | RUNNING      | RUNNING   | SUSPENDED
suspend                  | refused      | SUSPENDED    | SUSPENDED | SUSPENDED
resume                   | refused      | INITIALIZING | RUNNING   | RUNNING
resume without a version | refused      | INITIALIZING | RUNNING   | INITIALIZING
rename                   | refused      | INITIALIZING | RUNNING   | SUSPENDED
drop                     | refused      | no table     | no table  | no table
"""
ROWS = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()]


@pytest.mark.parametrize("row", ROWS[1:], ids=lambda row: row[0])
def test_every_wish_in_every_state(row: list[str]) -> None:
    asked = Asked(row[0])
    for before, after in zip(ROWS[0][1:], row[1:], strict=True):
        state = None if before == NONE else JobState(before)
        assert is_refused(asked, state) == (after == "refused"), before
        if after != "refused":
            assert (STATES[asked][state] or NONE) == after, before


def test_the_table_is_complete() -> None:
    assert [row[0] for row in ROWS[1:]] == list(Asked)
    assert ROWS[0][1:] == [NONE, *JobState]


def test_what_is_refused_has_no_state_after() -> None:
    for asked in (Asked.REFRESH, Asked.DROP):
        with pytest.raises(ValueError, match="no table is SUSPENDED"):
            state_after(asked, JobState.SUSPENDED)
