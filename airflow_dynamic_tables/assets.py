"""Airflow assets of dynamic tables, for DAGs that are triggered by new versions of a table."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeGuard
from urllib.parse import quote, unquote

from airflow.providers.common.compat.sdk import Asset

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.lineage import ASSET_SCHEME, asset_dataset

if TYPE_CHECKING:
    from openlineage.client.event_v2 import Dataset


@lru_cache(maxsize=10_000)
def dynamic_table_asset(table: str | TableIdentifier) -> Asset:
    """Return the Airflow asset of a dynamic table.

    :param table: its full name, ``catalog.database.table``.
    :raises ValueError: if it is not a full name.
    """
    identifier = TableIdentifier.parse(table) if isinstance(table, str) else table
    parts = [quote(part, safe="") for part in (identifier.catalog, identifier.database, identifier.table)]
    # Name and URI are equal, as in Asset(uri): of two assets with the same URI, Airflow activates only one.
    return Asset(f"{ASSET_SCHEME}{'/'.join(parts)}", group="dynamic-table")


def is_dynamic_table(asset: Any) -> TypeGuard[Asset]:
    """Return whether an outlet or inlet is the asset of a dynamic table, regardless of its name."""
    return isinstance(asset, Asset) and asset.uri.startswith(ASSET_SCHEME)


def convert_asset_to_openlineage(asset: Asset, lineage_context: object) -> Dataset | None:  # noqa: ARG001 - of the provider
    """Return the dataset of an asset: a symlink of the one that the refreshes of the table write.

    Airflow's OpenLineage provider calls it for inlets and outlets of user tasks.
    """
    from openlineage.client.event_v2 import Dataset

    parts = asset.uri.removeprefix(ASSET_SCHEME).split("/")
    if len(parts) != 3:
        return None
    name = asset_dataset(TableIdentifier(*map(unquote, parts)))
    return Dataset(namespace=name.namespace, name=name.name)
