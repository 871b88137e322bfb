"""Trino on our Iceberg tables, in every kind of catalog that both know."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_dynamic_tables.services.status import show_table
from tests.contracts.refreshing.place import MARCH
from tests.support.iceberg_shared import CATALOGS, SharedTable

pytestmark = [pytest.mark.large]

IN_EVERY_CATALOG = pytest.mark.parametrize("trino_table", CATALOGS, indirect=True)


@IN_EVERY_CATALOG
def test_both_read_what_the_other_wrote(trino_table: SharedTable) -> None:
    place = trino_table.place
    place.refresh(1, [11, 12])
    place.refresh(2, [21])
    assert trino_table.theirs() == place.rows() == {1: [11, 12], 2: [21]}
    trino_table.sql("INSERT INTO {t} VALUES ('2024-03-01', 13), ('2024-03-09', 91)", "DELETE FROM {t} WHERE n = 11")
    assert trino_table.theirs() == place.rows() == {1: [12, 13], 2: [21], 9: [91]}
    status = show_table(place.workspace, place.table).status
    assert (status.version, status.data_timestamp) == (2, MARCH + timedelta(days=2)), "what others write is no version"
    place.by_hand(1, [14])
    assert trino_table.theirs() == place.rows() == {1: [14], 2: [21], 9: [91]}
    place.roll_back(2, "back")
    assert trino_table.theirs() == place.rows() == {1: [11, 12], 2: [21]}
