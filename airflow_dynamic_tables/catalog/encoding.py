"""Tables of a catalog as JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDynamicTable,
    CatalogTable,
    CatalogView,
)
from airflow_dynamic_tables.core.plain import from_plain, to_plain

_KINDS: dict[str, type[AnyTable]] = {"table": CatalogTable, "dynamic_table": CatalogDynamicTable, "view": CatalogView}


def encode(table: AnyTable) -> dict[str, Any]:
    """``kind`` and ``value`` of a table."""
    kind = next(name for name, cls in _KINDS.items() if cls is type(table))
    return {"kind": kind, "value": to_plain(table)}


def decode(kind: str, value: Mapping[str, Any]) -> AnyTable:
    """What :func:`encode` was given."""
    return from_plain(_KINDS[kind], value)
