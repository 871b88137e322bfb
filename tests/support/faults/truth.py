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
    found: dict[str, list[int]] = {}
    try:
        rows = workspace.existing_table(REVENUE).sample(100_000) if _exists(workspace) else []
    except TableNotFoundError:
        return {}
    for row in rows:
        found.setdefault(row["ds"], []).append(row["n"])
    return {day: sorted(numbers) for day, numbers in sorted(found.items())}


def columns(workspace: Workspace) -> list[str]:
    layout = workspace.existing_table(REVENUE).layout() if _exists(workspace) else None
    return [column.name for column in layout.columns] if layout is not None else []


def versions(workspace: Workspace) -> list[Version]:
    return workspace.existing_table(REVENUE).versions() if _exists(workspace) else []


def _exists(workspace: Workspace) -> bool:
    return workspace.catalog(REVENUE.catalog).table_exists(REVENUE.path)


def data_files(site: Site, token: str) -> list[str]:
    """What lies in the stage of a token."""
    return [path for path, stage in _in_stages(site, withdirs=False) if stage == token]


def check_all_settled(site: Site, workspace: Workspace) -> None:
    """No process works any more: table, catalog, ledger and disk agree, and nothing is left behind."""
    landed = {version.token: version for version in versions(workspace)}
    assert [version.number for version in landed.values()] == list(range(1, len(landed) + 1)), "a version is missing or twice"
    stages = {stage.token: stage.state for stage in workspace.ledger.list_stages(states=tuple(StageState))}
    compactions = {token: state for token, state in stages.items() if token.startswith("compaction-")}
    assert set(compactions.values()) <= {StageState.COMMITTED, StageState.ABORTED}
    wanted = {token: StageState.COMMITTED if token in landed else StageState.ABORTED for token in stages}
    assert stages == wanted | compactions
    _check_history(workspace, landed)
    kept = landed.keys() | {token for token, state in compactions.items() if state is StageState.COMMITTED}
    left = {stage for _, stage in _in_stages(site, withdirs=True) if stage not in kept}
    assert not left, f"stages that nobody will commit are still there: {left}"
    check_names(site, workspace)


def check_names(site: Site, workspace: Workspace) -> None:
    """A table has one name and one folder, or one name and one row in its server; without a version there is no table."""
    catalog = workspace.catalog(REVENUE.catalog)
    exists = _exists(workspace)
    if site.tables_url is not None:
        with psycopg.connect(site.tables_url) as connection:
            tables = connection.execute(
                "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
            )
            known = {name for (name,) in tables} - {"_dynamic_tables", "_dynamic_table_commits"}
            held = workspace.ledger.list_stages(REVENUE, (StageState.QUARANTINED,))
            assert known == {*(["revenue"] if versions(workspace) else []), *(f"revenue__stage_{stage.token}" for stage in held)}
            if exists:
                assert connection.execute("SELECT table_name FROM _dynamic_tables").fetchall() == [("revenue",)]
        return
    names = catalog.list_tables(REVENUE.database) if catalog.database_exists(REVENUE.database) else []
    assert names == (["revenue"] if exists else [])
    folders = {folder for folder, _ in _below_tables(site, withdirs=False)}
    assert len(folders) <= len(names), folders


def _check_history(workspace: Workspace, landed: dict[str, Version]) -> None:
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


def _below_tables(site: Site, *, withdirs: bool) -> Iterator[tuple[str, list[str]]]:
    """The folder of a table, and the path of something in it."""
    system, warehouse = url_to_fs(site.tables)
    system.invalidate_cache()
    for path in system.find(warehouse, withdirs=withdirs):
        parts = path.removeprefix(warehouse).rstrip("/").split("/")[1:]  # an object that marks a folder ends with a slash
        database = next((place for place, part in enumerate(parts) if part in ("sales", "sales.db")), len(parts))
        if below := parts[database + 2 :]:
            yield parts[database + 1], below


def _in_stages(site: Site, *, withdirs: bool) -> Iterator[tuple[str, str]]:
    """Everything below the tables but metadata and marks, and its stage: folders and tables are named after their token."""
    if site.tables_url is not None:
        with psycopg.connect(site.tables_url) as connection:
            names = connection.execute("SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE %s", (f"%{STAGE}%",))
            yield from ((name, name.partition(STAGE)[2]) for (name,) in names)
    for _, below in _below_tables(site, withdirs=withdirs):
        match below:
            case (
                ["metadata" | "_delta_log" | "_installations", *_]
                | ["_versions", "_tables", *_]
                | ["data" | "_stages" | "_versions"]
            ):
                pass
            case ["data" | "_stages" | "_versions", stage, *_] | [stage, *_]:
                yield "/".join(below), stage
