"""Holding a table: nobody refreshes it while something else is done to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import ConflictError
from airflow_dynamic_tables.ledger.base import Stage
from airflow_dynamic_tables.services.stages.leases import lease_kept, new_lease, open_stage
from airflow_dynamic_tables.services.stages.settling import give_up
from airflow_dynamic_tables.services.workspace import Workspace


@contextmanager
def held(workspace: Workspace, identifier: TableIdentifier, table_format: str, what: str) -> Iterator[None]:
    """Take the lease of a whole table for as long as the body runs.

    :param what: one word for what is done.
    :raises ConflictError: while somebody refreshes the table.
    """
    token = f"{what}-{uuid4()}"
    stage = Stage(
        token=token,
        table=identifier,
        location=f"{workspace.table(identifier, table_format).folder() or ''}/{token}",  # nothing is written there
        owner=f"a {what} ({token})",
        format=table_format,
        **new_lease(workspace),
    )
    open_stage(workspace, stage)
    try:
        with lease_kept(workspace, stage.token):
            yield
    finally:
        give_up(workspace, stage.token, ConflictError(f"nothing was refreshed: it was a {what}"))
