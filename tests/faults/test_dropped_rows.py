"""Kill -9 at each step of a refresh that keeps dropped rows: its two commits are both there, or the next refresh cleans up."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from tests.support.dropped_rows import YAML, dropped_of, job
from tests.support.faults.report import FaultReport
from tests.support.faults.truth import versions
from tests.support.faults.victims import MARCH, REVENUE, Site, kill, sweep, trail

DAY = "2024-03-01"
DROPPED = {3: ["even"], -5: ["positive", "even"]}


def refresh(site: Site, token: str, kept: int) -> None:
    """Refresh a day with a number that is kept and two that are dropped."""
    file = site.home / "dropping.yaml"
    file.write_text(YAML.format(table=REVENUE, format=site.format, more=""))
    table = load_definitions(file).tables[REVENUE]
    request = RefreshRequest(table, {}, MARCH, token, "dag/run/refresh", partitions=PartitionSet.of([{"ds": DAY}]))
    with site.open() as workspace:
        run(workspace, request, job(DAY, [kept, *DROPPED]))


@pytest.mark.large
@pytest.mark.parametrize("site", ["sqlite", "delta", pytest.param("hive/parquet", marks=pytest.mark.metastore)], indirect=True)
def test_killed_at_each_step(site: Site, fault_report: FaultReport) -> None:
    refresh(site, "first", 2)
    steps, error = trail(refresh, site, "trail", 4).answer()
    assert error is None
    assert {"opened", "commit", "publishing", "published", "completed"} <= {*steps}
    numbers = {"first": 2, "trail": 4}
    for number, step in enumerate(steps):
        numbers |= {(killed := f"killed {step}"): 10 + 4 * number, (again := f"after {step}"): 12 + 4 * number}
        kill(fault_report, step, refresh, site, killed, numbers[killed])
        check_seen(site, numbers)
        refresh(site, again, numbers[again])
        check_seen(site, numbers, current=again)
    sweep(site)
    check_seen(site, numbers, current=again)
    with site.open() as workspace:
        kept = dropped_of(workspace, REVENUE, site.format)
        committed = [one.token for one in workspace.ledger.list_refreshes(REVENUE, limit=100) if one.version is not None]
        assert kept == dict.fromkeys(committed, DROPPED), "those of refreshes that did not commit are gone"
        assert workspace.ledger.list_stages() == []


def check_seen(site: Site, numbers: dict[str, int], current: str | None = None) -> None:
    """Readers see one refresh as a whole, and the dropped rows of each version."""
    with site.open() as workspace:
        made = [version.token for version in versions(workspace)]
        rows = workspace.table(REVENUE, site.format).sample(100)
        assert [row["n"] for row in rows] == [numbers[made[-1]]]
        assert current in (None, made[-1])
        kept = dropped_of(workspace, REVENUE, site.format)
        assert all(kept[token] == DROPPED for token in made), "no version lacks its dropped rows"
