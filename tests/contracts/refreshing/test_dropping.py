"""A refresh is held up just before it publishes, and its table is dropped, and made again: it wakes up, and changes nothing."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.core.refresh.steps import Step
from airflow_dynamic_tables.exceptions import CommitUnknownError, DynamicTableError, TableNotFoundError
from airflow_dynamic_tables.services.changing.dropping import drop
from tests.contracts.refreshing.place import Place


def dropped(place: Place, who: str) -> None:
    """Drop the table."""
    if who == "others":
        place.drop_by_others()
    else:
        drop(place.workspace, place.table, purge=who == "purge")


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made again"])
@pytest.mark.parametrize("who", ["drop", "purge", "others"])
@pytest.mark.parametrize("first", [False, True], ids=["later", "first"])
def test_a_refresh_that_wakes_up_after_a_drop_changes_nothing(place: Place, who: str, again: bool, first: bool) -> None:
    if who == "purge" and place.format == "jdbc":
        who = "drop"
    if not first:
        place.refresh(1, [11], token="d1")

    def meanwhile() -> None:
        dropped(place, who)
        if again:
            place.by_hand(5, [51], token="new")

    place.at(Step.PUBLISHING, "zombie", meanwhile)
    with pytest.raises(DynamicTableError) as refused:
        place.by_hand(3, [666], token="zombie")
    assert not isinstance(refused.value, CommitUnknownError), "it is known that it did not land"
    state, version = place.history()["zombie"]
    assert (state in ("FAILED", "ABORTED"), version) == (True, None)
    if again:
        assert place.rows() == {5: [51]}
        assert place.history()["new"] == ("SUCCEEDED", 1)
    else:
        with pytest.raises(TableNotFoundError):
            place.rows()
    assert place.workspace.ledger.list_stages(place.table) == []
    del place.present["2024-03-03"]
    place.refresh(6, [61], token="next")
    assert place.rows() == {6: [61], **({5: [51]} if again else {})}
