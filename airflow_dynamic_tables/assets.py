"""Airflow assets of dynamic tables, for DAGs that are to run when a table has a new version."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeGuard
from urllib.parse import quote

from airflow.providers.common.compat.sdk import Asset

from airflow_dynamic_tables.core.identifiers import TableIdentifier

_SCHEME = "dynamic-table://"


@lru_cache(maxsize=10_000)
def dynamic_table_asset(table: str | TableIdentifier) -> Asset:
    """The Airflow asset of a dynamic table.

    :param table: its full name, ``catalog.database.table``.
    :raises ValueError: when that is no full name.
    """
    identifier = TableIdentifier.parse(table) if isinstance(table, str) else table
    parts = [quote(part, safe="") for part in (identifier.catalog, identifier.database, identifier.table)]
    # One name for both, as Asset(uri) has it: of two assets that share only the URI, Airflow activates only one.
    return Asset(f"{_SCHEME}{'/'.join(parts)}", group="dynamic-table")


def is_dynamic_table(asset: Any) -> TypeGuard[Asset]:
    """Whether something that a task has as outlet or inlet is the asset of a dynamic table, whatever its name."""
    return isinstance(asset, Asset) and asset.uri.startswith(_SCHEME)
