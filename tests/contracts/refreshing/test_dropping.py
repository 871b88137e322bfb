"""A refresh is held up just before it publishes, and its table is dropped, and made again: it wakes up, and changes nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_dynamic_tables.core.refresh.steps import Step
from airflow_dynamic_tables.exceptions import CommitUnknownError, DynamicTableError, TableNotFoundError
from airflow_dynamic_tables.services.lifecycle.dropping import drop
from tests.contracts.refreshing.place import MARCH, Place


def dropped(place: Place, who: str) -> None:
    if who == "others":
        place.drop_by_others()
    else:
        drop(place.workspace, place.table, purge=who == "purge")


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("first", "who", "again"),
    [
        (False, "drop", False),
        (False, "drop", True),
        pytest.param(False, "purge", True, marks=pytest.mark.needs("purge")),
        (False, "others", False),
        (False, "others", True),
        (True, "drop", True),
        pytest.param(True, "others", True, marks=pytest.mark.needs("a table before its first version")),
    ],
)
def test_a_refresh_that_wakes_up_after_a_drop_changes_nothing(place: Place, first: bool, who: str, again: bool) -> None:
    """It was the ``first`` one of the table, or not."""
    if not first:
        place.refresh(1, [11], token="d1")
    done: list[str] = []

    def meanwhile() -> None:
        dropped(place, who)
        if again:
            place.by_hand(5, [51], token="new")
        done.append(who)

    place.at(Step.PUBLISHING, "zombie", meanwhile)
    with pytest.raises(DynamicTableError) as refused:
        place.by_hand(3, [666], token="zombie")
    assert done, refused.value
    assert not isinstance(refused.value, CommitUnknownError), "it is known that it did not land"
    state, version = place.history()["zombie"]
    assert (state in ("FAILED", "ABORTED"), version) == (True, None)
    if again:
        assert place.rows() == {5: [51]}
        assert place.history()["new"][0] == "SUCCEEDED"
    else:
        with pytest.raises(TableNotFoundError):
            place.rows()
    assert place.workspace.ledger.list_stages(place.table) == []
    del place.present["2024-03-03"]
    place.refresh(6, [61], token="next")
    assert place.rows() == {6: [61], **({5: [51]} if again else {})}
    assert first or place.history()["d1"] == ("UNDONE", 1), "it went with the table"


@pytest.mark.sampled
def test_a_table_that_is_made_again_has_no_partition_of_the_former_one(place: Place) -> None:
    """The history has both under one name."""
    for day in range(1, 4):
        place.refresh(day, [day])
    drop(place.workspace, place.table)
    place.refresh(1, [10])
    assert place.by_hand(3, [30]).data_timestamp == MARCH + timedelta(days=1)
    place.refresh(4, [40])
    assert place.rows() == {1: [10], 2: [2], 3: [30], 4: [40]}
