"""Tables of a catalog as JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDynamicTable,
    CatalogTable,
    CatalogView,
    JobState,
    RefreshHandler,
)
from airflow_dynamic_tables.core.schedule.refresh_mode import RefreshMode
from airflow_dynamic_tables.core.tables.schema import Column

_KINDS: dict[str, type[AnyTable]] = {"table": CatalogTable, "dynamic_table": CatalogDynamicTable, "view": CatalogView}


def encode(table: AnyTable) -> dict[str, Any]:
    """``kind`` and ``value`` of a table."""
    kind = next(name for name, cls in _KINDS.items() if cls is type(table))
    return {"kind": kind, "value": asdict(table)}


def decode(kind: str, value: Mapping[str, Any]) -> AnyTable:
    """What :func:`encode` was given."""
    values = {**value, "columns": tuple(Column(**column) for column in value["columns"])}
    if "partition_keys" in values:
        values["partition_keys"] = tuple(values["partition_keys"])
    if kind == "dynamic_table":
        handler = values["refresh_handler"]
        values["declared_refresh_mode"] = RefreshMode(values["declared_refresh_mode"])
        values["refresh_handler"] = RefreshHandler(
            RefreshMode(handler["actual_refresh_mode"]), JobState(handler["job_state"]), handler["job_detail"]
        )
    return _KINDS[kind](**values)
