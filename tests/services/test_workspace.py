"""A workspace is a value: put together in one place, of any parts."""

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.manager import CatalogManager
from airflow_dynamic_tables.catalog.sql.catalog import MemoryCatalog
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConfigurationError
from airflow_dynamic_tables.ledger.sql import SqlLedger
from airflow_dynamic_tables.services.maintenance.sweeping import check_available, upgrade
from airflow_dynamic_tables.services.settings import WorkspaceSettings, embedded_settings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def test_a_workspace_is_a_value_of_any_parts(tmp_path: Path) -> None:
    settings = embedded_settings({"AIRFLOW_HOME": str(tmp_path)})
    catalogs = CatalogManager()
    catalogs.register(MemoryCatalog("scratch"))
    with Workspace(settings, SqlLedger(Database(settings.database_url)), catalogs, lambda: NOON) as workspace:
        assert workspace.now() == NOON
        assert isinstance(workspace.catalog("scratch"), MemoryCatalog)
        check_available(workspace)
        with pytest.raises(FrozenInstanceError):
            workspace.ledger = SqlLedger(Database("sqlite:////elsewhere/state.db"))  # type: ignore[misc]


def test_opening_a_workspace_touches_nothing(tmp_path: Path) -> None:
    with open_workspace(embedded_settings({"AIRFLOW_HOME": str(tmp_path)})):
        assert list(tmp_path.iterdir()) == []


def test_an_upgrade_makes_the_database_and_may_be_repeated(tmp_path: Path) -> None:
    with open_workspace(embedded_settings({"AIRFLOW_HOME": str(tmp_path)})) as workspace:
        upgrade(workspace)
        upgrade(workspace)
        assert workspace.ledger.list_stages() == []
    assert (tmp_path / "dynamic_tables/state.db").is_file()


def test_what_does_not_answer_is_not_available(tmp_path: Path) -> None:
    with (
        open_workspace(WorkspaceSettings("postgresql://user@localhost:1/none", str(tmp_path))) as workspace,
        pytest.raises(CatalogUnavailableError, match="Cannot reach"),
    ):
        check_available(workspace)


def test_a_malformed_database_url_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="malformed"):
        open_workspace(WorkspaceSettings("nonsense", str(tmp_path)))
