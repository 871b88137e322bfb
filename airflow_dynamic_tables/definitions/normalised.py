"""A dynamic table as plain data, which a catalog keeps beside the table: a second source of the same definitions.

The keys are those of the YAML, with every default applied: the fields of ``DynamicTable`` may change while one is kept. Below
``resolved`` stands what the other definitions decided. It holds nothing that the YAML does not hold: no connection is looked up.
What was not said is left out, and secrets in Spark's settings are hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.refresh.awaited import AwaitedData
from airflow_dynamic_tables.core.refresh.expectations import Expectation, RowCount
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.core.schedule.refresh_mode import RefreshMode
from airflow_dynamic_tables.core.tables.retention import DEFAULT_RETENTION, Retention
from airflow_dynamic_tables.definitions.model import KEYS, NO_SCHEDULE, DynamicTable
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.redaction import without_secret_values

VERSION = 1
"""Version of the schema; a release reads its own and every earlier one."""


def normalised(table: DynamicTable) -> dict[str, Any]:
    """The declaration that means this table, wherever it was declared: JSON, lengths of time in seconds."""
    kept: dict[str, Any] = {"version": VERSION}
    for each in KEYS:
        value = getattr(table, each.field)
        if each.key.kept or value != each.default:
            plain = _KEPT[each.name](table) if each.name in _KEPT else to_plain(value)
            kept[each.name] = plain if each.key.part is None else _open(each.name, plain)
    return {key: value for key, value in {**kept, "resolved": _resolved(table)}.items() if value is not None}


_KEPT: Mapping[str, Callable[[DynamicTable], Any]] = {
    "name": lambda table: str(table.identifier),
    "freshness": lambda table: table.freshness.text,
    "schedule": lambda table: table.cron or (NO_SCHEDULE if table.on else None),
    "wait_for": lambda table: [_said(awaited) for awaited in table.wait_for],
    "versions_to_keep": lambda table: None if table.retention.thinned else table.retention.versions_to_keep,
    "version_max_age": lambda table: None if table.retention.thinned else to_plain(table.retention.version_max_age),
    "expectations": lambda table: [_said(expectation) for expectation in table.expectations],
    "row_counts": lambda table: [_said(bounds) for bounds in table.row_counts],
    "spark": lambda table: _said(_without_secrets(table.spark)),
}
"""What is kept of the keys that have another form than their field."""


def restored(declaration: Mapping[str, Any]) -> DynamicTable:
    """The table that :func:`normalised` was given, without the place where it was declared.

    :raises UnsupportedError: when a later release wrote it.
    """
    if declaration["version"] > VERSION:
        raise UnsupportedError(
            f"The definition of {declaration['name']} was written by a later release (schema version {declaration['version']})."
        )
    schedule = declaration.get("schedule")
    versions, seconds = declaration.get("versions_to_keep"), declaration.get("version_max_age")
    decided = {
        **_decided(declaration["resolved"], declaration["partitioned_by"]),
        "identifier": TableIdentifier.parse(declaration["name"]),
        "freshness": Freshness.parse(declaration["freshness"]),
        "cron": None if schedule == NO_SCHEDULE else schedule,
        "retention": DEFAULT_RETENTION
        if versions is None or seconds is None
        else Retention(versions, timedelta(seconds=seconds)),
    }
    said = {each.field: declaration[each.name] for each in KEYS if each.name in declaration}
    return from_plain(DynamicTable, {**said, **decided})


def _resolved(table: DynamicTable) -> dict[str, Any]:
    """What the table's own declaration does not say, because other definitions decide it."""
    return {
        "query": table.expanded_query,
        "upstream": [str(identifier) for identifier in table.upstream],
        "refresh_mode": table.mode.value,
        "reason": table.mode_reason,
        "formatters": dict(table.formatters),
    }


def _decided(resolved: Mapping[str, Any], partition_keys: Sequence[str]) -> dict[str, Any]:
    """The fields that :func:`_resolved` was made of."""
    patterns = resolved["formatters"]
    return {
        "expanded_query": resolved["query"],
        "upstream": tuple(TableIdentifier.parse(name) for name in resolved["upstream"]),
        "mode": RefreshMode(resolved["refresh_mode"]),
        "mode_reason": resolved["reason"],
        # A catalog may keep keys in any order, and date patterns go by the order of the partition keys.
        "formatters": {key: patterns[key] for key in partition_keys if key in patterns},
    }


def _without_secrets(settings: SparkSettings) -> SparkSettings:
    """Whoever may look at the catalog, in a metastore everybody, reads what is kept."""
    conf = without_secret_values(settings.conf)
    return replace(settings, conf=conf, env_vars=without_secret_values(settings.env_vars))


def _open(name: str, value: Any) -> Any:
    """Plain data without secrets: notifiers are made with them."""
    if isinstance(value, dict):
        return {key: _open(key, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_open(name, item) for item in value]
    return without_secret_values({name: value})[name] if isinstance(value, str) else value


def _said(value: AwaitedData | Expectation | RowCount | SparkSettings) -> dict[str, Any]:
    """The fields that say something."""
    return {name: content for name, content in to_plain(value).items() if content not in (None, [], {})}
