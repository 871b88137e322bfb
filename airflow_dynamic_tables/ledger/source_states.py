"""Rows that say what every source of a refresh was like.

A source is one row, with the fingerprints of all its partitions in one JSON value: they are written and read together, ten
thousand at a time, and a row each would be a quarter of a million rows a day for a table that is refreshed every hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, RowMapping, delete, insert, select

from airflow_dynamic_tables.clients.database.tables import refreshes, source_states
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.ledger.base import RefreshState

_WITHOUT_VERSION = (RefreshState.FAILED, RefreshState.ABORTED, RefreshState.SKIPPED)


def write_states(connection: Connection, token: str, states: Mapping[str, SourceState]) -> None:
    """Insert or replace those of a refresh."""
    connection.execute(delete(source_states).where(source_states.c.token == token))
    if states:
        rows = [{"token": token, "source": source, **to_plain(state)} for source, state in states.items()]
        connection.execute(insert(source_states), rows)


def read_states(connection: Connection, token: str) -> dict[str, SourceState]:
    """Those of a refresh, by source."""
    rows = connection.execute(select(source_states).where(source_states.c.token == token)).mappings()
    return {row["source"]: from_plain(SourceState, _fields(row)) for row in rows}


def _fields(row: RowMapping) -> dict[str, Any]:
    fields = {name: row[name] for name in row if name not in ("token", "source")}
    return {**fields, "unsettled": fields["unsettled"] or []}  # earlier releases did not say


def prune_states(connection: Connection) -> None:
    """Delete those of refreshes that are gone, and of those that ended without a version."""
    kept = select(refreshes.c.token).where(refreshes.c.state.not_in(_WITHOUT_VERSION))
    connection.execute(delete(source_states).where(source_states.c.token.not_in(kept)))
