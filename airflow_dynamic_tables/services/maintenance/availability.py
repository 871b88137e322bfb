"""Availability: whether everything that an installation consists of answers."""

from __future__ import annotations

from airflow_dynamic_tables.services.workspace import Workspace


def check_available(workspace: Workspace) -> None:
    """Connect to the ledger and to every catalog.

    :raises CatalogUnavailableError: when one cannot be reached.
    """
    workspace.ledger.check()
    for name in workspace.catalogs.names():
        workspace.catalogs.get(name).list_databases()
