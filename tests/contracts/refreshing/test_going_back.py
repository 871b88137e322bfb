"""Other engines go back to an earlier version: the history says what was taken back, and the days since then are made again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa
import pytest

from airflow_dynamic_tables.core.refresh.steps import Step
from airflow_dynamic_tables.exceptions import ConflictError
from airflow_dynamic_tables.services.maintenance.sweeping import expire, recover
from airflow_dynamic_tables.services.status import list_tables, show_table
from tests.contracts.refreshing.conftest import POSTGRES
from tests.contracts.refreshing.place import MARCH, Place
from tests.support.other_engines import append_and_clean_away

pytestmark = pytest.mark.parametrize("place", ["sql/iceberg", "sql/delta", POSTGRES], indirect=True)
"""Where other engines can go back. Catalogs make no difference to that."""

ROLLS_BACK = pytest.mark.needs("snapshots")

LOOKS: dict[str, Callable[[Place], object]] = {
    "recover": lambda place: recover(place.workspace, place.table),
    "maintenance": lambda place: expire(place.workspace, place.table),
    "rollback": lambda place: place.roll_back(1, token="back"),
    "refresh": lambda place: place.refresh(4, [41], token="d4"),
}


def three_days(place: Place) -> Callable[[], None]:
    """Refresh three days; what goes back to the first one."""
    place.refresh(1, [11], token="d1")
    go_back = place.remember()
    place.refresh(2, [21], token="d2")
    place.refresh(3, [31], token="d3")
    return go_back


@pytest.mark.sampled
@pytest.mark.parametrize(
    "look", [pytest.param(look, id=name, marks=ROLLS_BACK if name == "rollback" else ()) for name, look in LOOKS.items()]
)
def test_the_history_says_which_versions_were_taken_back(place: Place, look: Callable[[Place], object]) -> None:
    go_back = three_days(place)
    go_back()
    look(place)
    history = place.history()
    assert [history[token] for token in ("d1", "d2", "d3")] == [("SUCCEEDED", 1), ("UNDONE", 2), ("UNDONE", 3)]
    said = "Version 3 is not in the table any more: another engine took the table back to version 1."
    assert (place.error("d1"), place.error("d3")) == ("", said)
    if {"d4", "back"}.isdisjoint(history):
        details = show_table(place.workspace, place.table)
        assert (details.status.version, details.status.data_timestamp) == (1, MARCH + timedelta(days=1))
        assert (details.status.last_refresh, details.status.last_error) == ("UNDONE", said)
        listed = list_tables(place.workspace, {}, complete=False).tables
        assert [status for status in listed if status.identifier == str(place.table)] == [details.status]
    if "d4" not in history:
        place.refresh(4, [41], token="d4")
    assert place.history()["d4"][0] == "SUCCEEDED"
    assert place.rows() == {1: [11], 2: [21], 3: [31], 4: [41]}


@pytest.mark.sampled
def test_a_day_that_a_user_makes_afterwards_hides_no_missing_one(place: Place) -> None:
    three_days(place)()
    version = place.by_hand(3, [32])
    assert version.data_timestamp == MARCH + timedelta(days=1)
    assert place.rows() == {1: [11], 3: [32]}
    place.refresh(4, [41])
    assert place.rows() == {1: [11], 2: [21], 3: [32], 4: [41]}


@pytest.mark.sampled
def test_days_are_made_again_when_others_went_back_while_a_refresh_ran(place: Place) -> None:
    go_back = three_days(place)
    place.at(Step.COMMIT, "d4", go_back)
    with pytest.raises(ConflictError, match=r"[Nn]othing was committed"):
        place.refresh(4, [41], token="d4")
    place.refresh(4)
    assert [place.history()[token][0] for token in ("d1", "d2", "d3")] == ["SUCCEEDED", "UNDONE", "UNDONE"]
    assert place.rows() == {1: [11], 2: [21], 3: [31], 4: [41]}


@pytest.mark.needs("snapshots")
def test_days_are_made_again_when_it_is_not_known_to_which_version_others_went_back(place: Place) -> None:
    three_days(place)()
    append_and_clean_away(place.workspace, place.table, place.format, pa.table({"ds": ["2024-03-09"], "n": pa.array([9])}))
    status = show_table(place.workspace, place.table).status
    assert (status.version, status.data_timestamp) == (0, None)
    place.refresh(4, [41])
    assert place.rows() == {1: [11], 2: [21], 3: [31], 4: [41], 9: [9, 9]}
    history = place.history()
    assert [history[token][0] for token in ("d2", "d3")] == ["UNDONE", "UNDONE"]
    assert "is not known to be in the table any more" in place.error("d3")


@ROLLS_BACK
def test_a_rollback_of_our_own_is_in_the_history_and_makes_no_version_undone(place: Place) -> None:
    three_days(place)
    place.roll_back(1, token="back")
    place.refresh(4, [41], token="d4")
    assert {state for state, _ in place.history().values()} == {"SUCCEEDED"}
    assert place.rows() == {1: [11], 2: [21], 3: [31], 4: [41]}


@pytest.mark.sampled
def test_numbers_that_come_again_are_told_apart(place: Place) -> None:
    """A restored dump brings the table of commits back, too, so that its numbers come again."""
    three_days(place)()
    second = place.refresh(2, [22], token="again")
    states = place.history()
    assert states["again"] == ("SUCCEEDED", second.number)
    assert (states["d2"], states["d3"]) == (("UNDONE", 2), ("UNDONE", 3))
    place.by_hand(4, [41])
    place.by_hand(3, [31])
    assert place.refresh(4).data_timestamp == MARCH + timedelta(days=4)
    assert place.rows() == {1: [11], 2: [22], 3: [31], 4: [41]}
