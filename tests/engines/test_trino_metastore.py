"""Trino on our Hive and Delta tables in a Hive metastore: it reads what refreshes wrote, and they keep what it inserts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from airflow_dynamic_tables.core.refresh.steps import Step
from tests.contracts.refreshing.place import Place
from tests.support.metastore import HiveMetastore
from tests.support.trino import Trino

pytestmark = pytest.mark.large

OF_EVERY_FORMAT = pytest.mark.parametrize("place", ["hive/parquet", "hive/orc", "hive/delta"], indirect=True)
OF_HIVE = pytest.mark.parametrize("place", ["hive/parquet", "hive/orc"], indirect=True)

Rows = dict[int, list[int]]


@dataclass(frozen=True)
class Connected:
    """The table of a place, and a catalog of Trino that has it."""

    place: Place
    trino: Trino
    catalog: str

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """Run a statement; ``{t}`` is the table."""
        return self.trino.sql(statement.format(t=f"{self.catalog}.{self.place.table.database}.{self.place.table.table}"))

    def rows(self) -> Rows:
        found: Rows = {}
        for row in self.sql("SELECT ds, n FROM {t} ORDER BY ds, n"):
            found.setdefault(int(row["ds"][-2:]), []).append(row["n"])
        assert self.sql("SELECT count(*) AS n FROM {t}") == [{"n": sum(map(len, found.values()))}]
        return found


@pytest.fixture
def connected(two_days: Place, trino: Trino, hive_metastore: HiveMetastore) -> Iterator[Connected]:
    catalog = f"lake_{uuid4().hex[:8]}"
    own = {"hive.non-managed-table-writes-enabled": "true"} if two_days.format != "delta" else {}
    connector = "delta_lake" if two_days.format == "delta" else "hive"
    trino.open_catalog(catalog, connector, {"hive.metastore.uri": hive_metastore.uri, "fs.hadoop.enabled": "true", **own})
    yield Connected(two_days, trino, catalog)
    trino.sql(f"DROP CATALOG {catalog}")


@OF_EVERY_FORMAT
def test_trino_reads_each_version(connected: Connected) -> None:
    place = connected.place
    assert connected.rows() == {1: [11], 2: [21]}
    place.by_hand(1, [12, 13])
    assert connected.rows() == place.rows() == {1: [12, 13], 2: [21]}
    assert connected.sql("SELECT n FROM {t} WHERE ds = '2024-03-02'") == [{"n": 21}]
    place.refresh(3, [31], full_refresh=True)
    assert connected.rows() == place.rows() == {1: [12, 13], 2: [21], 3: [31]}


@OF_HIVE
def test_rows_that_trino_inserts_stay(connected: Connected) -> None:
    place = connected.place
    connected.sql("INSERT INTO {t} (ds, n) VALUES ('2024-03-01', 12), ('2024-03-09', 91)")
    place.at(Step.COMMIT, "d3", lambda: _insert(connected))
    place.refresh(3, [31], token="d3")
    assert connected.rows() == place.rows() == {1: [11, 12], 2: [21, 22], 3: [31], 9: [91]}
    place.by_hand(1, [18])
    assert connected.rows() == place.rows() == {1: [18], 2: [21, 22], 3: [31], 9: [91]}


def _insert(connected: Connected) -> None:
    connected.sql("INSERT INTO {t} (ds, n) VALUES ('2024-03-02', 22)")


@OF_HIVE
def test_a_day_that_trino_deletes_is_refreshed_by_hand(connected: Connected) -> None:
    connected.sql("DELETE FROM {t} WHERE ds = '2024-03-01'")
    assert connected.rows() == connected.place.rows() == {2: [21]}
    connected.place.refresh(3, [31])
    connected.place.by_hand(1, [11])
    assert connected.rows() == connected.place.rows() == {1: [11], 2: [21], 3: [31]}


@OF_EVERY_FORMAT
def test_trino_analyzes(connected: Connected) -> None:
    """Statistics of rows that a refresh replaced are not used any more."""
    place = connected.place
    connected.sql("ANALYZE {t}")
    place.by_hand(1, [12, 13, 14])
    assert connected.rows() == place.rows() == {1: [12, 13, 14], 2: [21]}
    shown = {row["column_name"]: row["row_count"] for row in connected.sql("SHOW STATS FOR {t}")}
    assert shown[None] in (None, 4)
