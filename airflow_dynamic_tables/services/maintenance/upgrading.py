"""Upgrading: the databases of an installation are brought to the schema of this release."""

from __future__ import annotations

from airflow_dynamic_tables.services.workspace import Workspace


def upgrade(workspace: Workspace) -> None:
    """Bring the database of the ledger and those of all catalogs to this release's schema; idempotent.

    :raises CatalogUnavailableError: when one cannot be reached.
    """
    workspace.ledger.upgrade()
    workspace.catalogs.upgrade()
