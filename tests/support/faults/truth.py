"""What must be true whatever happened: of the table, the ledger and the disk."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
from fsspec.core import url_to_fs

from airflow_dynamic_tables.clients.postgres.ddl import STAGE
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import TableNotFoundError
from airflow_dynamic_tables.ledger.base import RefreshState, StageState
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.faults.victims import REVENUE, Site


def content(workspace: Workspace) -> dict[str, list[int]]:
    """What a reader sees now."""
    found: dict[str, list[int]] = {}
    try:
        rows = workspace.table(REVENUE).sample(100_000)
    except TableNotFoundError:
        return {}
    for row in rows:
        found.setdefault(row["ds"], []).append(row["n"])
    return {day: sorted(numbers) for day, numbers in sorted(found.items())}


def columns(workspace: Workspace) -> list[str]:
    """The names of the columns of the table."""
    layout = workspace.table(REVENUE).layout()
    return [column.name for column in layout.columns] if layout is not None else []


def versions(workspace: Workspace) -> list[Version]:
    """All versions, oldest first."""
    return workspace.table(REVENUE).versions()


def data_files(site: Site, token: str) -> list[str]:
    """What lies in the stage of a token."""
    return [path for path, stage in _in_stages(site, withdirs=False) if stage == token]


def check_all_settled(site: Site, workspace: Workspace) -> None:
    """Nobody is at work any more: table, ledger and disk agree, and nothing is left behind."""
    landed = {version.token: version for version in versions(workspace)}
    assert [version.number for version in landed.values()] == list(range(1, len(landed) + 1)), "a version is missing or twice"
    _check_ledger(workspace, landed)
    left = {stage for _, stage in _in_stages(site, withdirs=True) if stage not in landed}
    assert not left, f"stages that nobody will commit are still there: {left}"


def _check_ledger(workspace: Workspace, landed: dict[str, Version]) -> None:
    stages = {stage.token: stage.state for stage in workspace.ledger.list_stages(states=tuple(StageState))}
    wanted = {token: StageState.COMMITTED if token in landed else StageState.ABORTED for token in stages}
    assert stages == wanted
    for refresh in workspace.ledger.list_refreshes(limit=10_000):
        version = landed.get(refresh.token)
        if version is None:
            assert refresh.state in (RefreshState.ABORTED, RefreshState.FAILED, RefreshState.SKIPPED), refresh
            assert (refresh.version, refresh.snapshot) == (None, None), refresh
            assert refresh.error or refresh.state is RefreshState.SKIPPED, refresh
        else:
            assert (refresh.state, refresh.error) == (RefreshState.SUCCEEDED, None), refresh
            assert (refresh.version, refresh.snapshot) == (version.number, version.snapshot), refresh
            assert refresh.rows is not None or refresh.action is RefreshAction.ROLLBACK, refresh
        assert refresh.finished_at is not None, refresh
    assert landed.keys() <= {refresh.token for refresh in workspace.ledger.list_refreshes(limit=10_000)}


def _in_stages(site: Site, *, withdirs: bool) -> Iterator[tuple[str, str]]:
    """Everything below the tables but metadata and marks, and its stage: folders and tables are named after their token."""
    if site.tables_url is not None:
        with psycopg.connect(site.tables_url) as connection:
            names = connection.execute("SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE %s", (f"%{STAGE}%",))
            yield from ((name, name.partition(STAGE)[2]) for (name,) in names)
    system, warehouse = url_to_fs(site.warehouse)
    system.invalidate_cache()
    for path in system.find(warehouse, withdirs=withdirs):
        match path.removeprefix(warehouse).split("/")[1:]:
            case [_, _, _, "metadata" | "_delta_log" | "_installations", *_] | [_, _, _, "data" | "_stages"]:
                pass
            case [_, _, _, "data" | "_stages", stage, *_] | [_, _, _, stage, *_]:
                yield path, stage
