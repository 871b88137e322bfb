"""Airflow assets of tables."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote

from airflow.providers.common.compat.sdk import Asset

from airflow_dynamic_tables.core.identifiers import TableIdentifier


@lru_cache(maxsize=10_000)
def asset_of(identifier: TableIdentifier) -> Asset:
    """The Airflow asset of a table, dynamic or not."""
    parts = [quote(part, safe="") for part in (identifier.catalog, identifier.database, identifier.table)]
    return Asset(name=quote(str(identifier), safe="` "), uri=f"dynamic-table://{'/'.join(parts)}", group="dynamic-table")
