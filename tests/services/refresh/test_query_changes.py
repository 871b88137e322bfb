"""A changed definition and the deployed one, run on the same partition by Spark: which rows and columns differ."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.exceptions import ConflictError, JobFailedError, UnsupportedError
from airflow_dynamic_tables.services.refresh.query_changes import QueryChange, SampleRequest, sample_change
from tests.services.refresh.test_verifying import DAYS, MARCH, Bench, bench

__all__ = ["bench"]

pytestmark = pytest.mark.spark


def sampled(bench: Bench, *days: int, submit: Callable[[RefreshPlan], object] | None = None, rows: int = 10) -> QueryChange:
    definitions = bench.definitions()
    partitions = PartitionSet.of({"ds": str(day)} for day in days) if days else WHOLE_TABLE
    request = SampleRequest(definitions.tables[DAYS], definitions.sources, partitions, MARCH + timedelta(days=1), rows)
    return sample_change(bench.workspace, request, submit or bench.submit)


def test_rows_and_columns_of_a_changed_query(bench: Bench) -> None:
    bench.query = "SELECT ds, n, n AS old, CAST(n AS int) AS m, current_date AS today FROM raw.facts"
    before = bench.refresh()
    history = bench.workspace.ledger.list_refreshes(DAYS)
    bench.write(2, 2, 5)  # both read what the source has now
    bench.query = "SELECT ds, if(n = 5, 6, n) AS n, n AS new, n AS m, current_date AS today FROM raw.facts"
    found = sampled(bench, 2)
    assert (found.rows_before, found.rows_after, found.removed, found.added) == (2, 2, 1, 1)
    assert found.columns == {"old": "removed (bigint)", "new": "added (bigint)", "m": "int -> bigint"}
    (removed,), (added,) = found.removed_rows, found.added_rows
    assert removed == {"ds": "2", "n": "5", "m": "5", "today": "2024-03-02"}
    assert added == {**removed, "n": "6"}
    assert found.changed_values is None
    assert bench.stages() == []
    assert bench.workspace.existing_table(DAYS).current() == before
    assert bench.workspace.ledger.list_refreshes(DAYS) == history


@pytest.mark.large
def test_values_that_differ_by_column_where_rows_have_a_key(bench: Bench) -> None:
    bench.write(1, 1, 2, 3, 4, 5)
    query = "SELECT ds, n, IF(n = 4, NULL, n) AS a, DOUBLE('NaN') AS f, map('n', n) AS m FROM raw.facts WHERE ds = '1'"
    bench.query, bench.more = query, "expectations: [{unique: [n]}]"
    bench.refresh()
    assert sampled(bench).is_none
    bench.query = f"SELECT ds, n, IF(n = 2, NULL, coalesce(a, 0)) AS a, f, map('n', n % 3) AS m FROM ({query}) WHERE n <> 5"
    found = sampled(bench, rows=2)
    assert (found.rows_before, found.rows_after, found.removed, found.added) == (5, 4, 4, 3)
    assert found.changed_values == {"ds": 0, "a": 2, "f": 0, "m": 2}
    assert [row["n"] for row in found.removed_rows] == ["2", "3"]
    assert found.columns == {}


def test_what_cannot_be_compared_is_refused(bench: Bench) -> None:
    with pytest.raises(UnsupportedError, match="days is not deployed"):
        sampled(bench, 1)
    bench.refresh()
    bench.query = "SELECT ds, n, rand() AS r FROM raw.facts"
    with pytest.raises(UnsupportedError, match=r"new query of lake\.sales\.days may return other rows each time.* rand\(\)"):
        sampled(bench, 1)
    bench.query = "SELECT ds, n FROM raw.facts"
    definitions = bench.definitions()
    request = SampleRequest(definitions.tables[DAYS], definitions.sources, PartitionSet.of([{"n": "1"}]), MARCH, 10)
    with pytest.raises(UnsupportedError, match=r"n is no partition key of the deployed definition.* --sample all"):
        sample_change(bench.workspace, request, bench.submit)


@pytest.mark.large
def test_it_yields_to_refreshes_and_leaves_nothing_behind(bench: Bench) -> None:
    bench.refresh()

    def refreshed_meanwhile(_: RefreshPlan) -> None:
        bench.refresh("days", 1)

    with pytest.raises(ConflictError, match="began while its rows were compared"):
        sampled(bench, 1, submit=refreshed_meanwhile)

    def failing_later(plan: RefreshPlan) -> None:
        if plan.compares is not None:
            raise JobFailedError("no Spark")
        bench.submit(plan)

    with pytest.raises(JobFailedError, match="no Spark"):
        sampled(bench, 1, submit=failing_later)
    assert bench.stages() == []
    assert bench.workspace.ledger.list_stages() == []
