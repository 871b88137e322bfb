"""Holding a table: it is not refreshed while something else is done to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from airflow_dynamic_tables.services.outcomes import Operation
from airflow_dynamic_tables.services.registered import RegisteredTable
from airflow_dynamic_tables.services.stages.protocol import new_stage, staged_write
from airflow_dynamic_tables.services.workspace import Workspace


@contextmanager
def held(workspace: Workspace, registered: RegisteredTable, what: str) -> Iterator[None]:
    """Take the lease of a table for as long as the body runs.

    :param what: one word for what is done.
    :raises ConflictError: while it is refreshed.
    """
    token = f"{what}-{uuid4()}"
    location = f"{registered.loaded.folder() or ''}/{token}"  # nothing is written there
    stage = new_stage(workspace, registered, token, f"a {what} ({token})", location)
    with staged_write(workspace, Operation.HOLD, stage, registered.lake_table.stage(token)):
        yield
