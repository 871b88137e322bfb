"""A dynamic table as plain data, which a catalog keeps beside the table: a second source of the same definitions.

The keys are those of the YAML, with every default applied: the fields of ``DynamicTable`` may change while one is kept. Below
``resolved`` stands what the other definitions decided. It holds nothing that the YAML does not hold: no connection is looked up.
What was not said is left out, and secrets in Spark's settings are hidden.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.refresh.actions import Initial
from airflow_dynamic_tables.core.refresh.awaited import AwaitedData
from airflow_dynamic_tables.core.refresh.expectations import Expectation, RowCount
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.core.schedule.continuous import DEFAULT_CONTINUOUS, ContinuousSettings
from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.core.schedule.refresh_mode import RefreshMode
from airflow_dynamic_tables.core.tables.retention import DEFAULT_RETENTION, Retention
from airflow_dynamic_tables.definitions.model import (
    AIRFLOW_SETTINGS,
    NO_SCHEDULE,
    AirflowSettings,
    DynamicTable,
    RunParam,
    Updates,
)
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.redaction import without_secret_values

VERSION = 1
"""Version of the schema; a release reads its own and every earlier one."""

_AS_THEY_ARE = (
    *("comment", "timezone", "options", "format", "atomicity", "scheduler", "dag", "dag_id_prefix"),
    *("suspend_after_failures", "renamed_from"),
)
"""Fields that have the name of their key and are plain data."""


def normalised(table: DynamicTable) -> dict[str, Any]:
    """The declaration that means this table, wherever it was declared: JSON, lengths of time in seconds."""
    declaration = {
        "version": VERSION,
        "name": str(table.identifier),
        "query": table.query,
        "comment": table.comment,
        "freshness": table.freshness.text,
        "refresh_mode": table.declared_mode.value,
        "schedule": table.cron or (NO_SCHEDULE if table.on else None),
        "on": to_plain(table.on) if table.on else None,
        "wait_for": [_said(awaited) for awaited in table.wait_for],
        "timezone": table.timezone,
        "partitioned_by": list(table.partition_keys),
        "options": dict(table.options),
        "format": table.format,
        "atomicity": table.atomicity,
        "versions_to_keep": None if table.retention.thinned else table.retention.versions_to_keep,
        "version_max_age": None if table.retention.thinned else _seconds(table.retention.version_max_age),
        "initial": None if table.initial is Initial.ALL else table.initial.value,
        "skip_unchanged": None if table.skip_unchanged else False,
        "suspend_after_failures": table.suspend_after_failures,
        "renamed_from": table.renamed_from,
        "columns": dict(table.comments),
        "expectations": [_said(expectation) for expectation in table.expectations],
        "row_counts": [_said(bounds) for bounds in table.row_counts],
        "spark": _said(_without_secrets(table.spark)),
        "continuous": to_plain(table.continuous) if table.continuous != DEFAULT_CONTINUOUS else None,
        "start_date": table.start_date.isoformat() if table.start_date else None,
        "end_date": table.end_date.isoformat() if table.end_date else None,
        "tags": list(table.tags),
        "params": to_plain(table.params) if table.params else None,
        "scheduler": table.scheduler,
        "dag": table.dag,
        "dag_id_prefix": table.dag_id_prefix,
        **{name: _open(name, to_plain(getattr(table, name))) for name in AIRFLOW_SETTINGS},
        "resolved": _resolved(table),
    }
    return {key: value for key, value in declaration.items() if value is not None}


def restored(declaration: Mapping[str, Any]) -> DynamicTable:
    """The table that :func:`normalised` was given, without the place where it was declared.

    :raises UnsupportedError: when a later release wrote it.
    """
    if declaration["version"] > VERSION:
        raise UnsupportedError(
            f"The definition of {declaration['name']} was written by a later release (schema version {declaration['version']})."
        )
    return DynamicTable(**_declared(declaration), **_decided(declaration["resolved"], declaration["partitioned_by"]))


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


def _retention(versions: int | None, seconds: float | None) -> Retention:
    return DEFAULT_RETENTION if versions is None or seconds is None else Retention(versions, timedelta(seconds=seconds))


def _declared(declaration: Mapping[str, Any]) -> dict[str, Any]:
    """All other fields."""
    start = declaration.get("start_date")
    end = declaration.get("end_date")
    schedule = declaration.get("schedule")
    airflow = from_plain(AirflowSettings, {name: declaration[name] for name in AIRFLOW_SETTINGS if name in declaration})
    return {
        "identifier": TableIdentifier.parse(declaration["name"]),
        "query": declaration["query"],
        "declared_mode": RefreshMode(declaration["refresh_mode"]),
        "freshness": Freshness.parse(declaration["freshness"]),
        "cron": None if schedule == NO_SCHEDULE else schedule,
        "wait_for": tuple(from_plain(AwaitedData, item) for item in declaration.get("wait_for", [])),
        "on": from_plain(Updates, declaration["on"]) if "on" in declaration else None,
        "partition_keys": tuple(declaration["partitioned_by"]),
        "retention": _retention(declaration.get("versions_to_keep"), declaration.get("version_max_age")),
        "initial": Initial(declaration.get("initial") or Initial.ALL),
        "skip_unchanged": declaration.get("skip_unchanged", True),
        "comments": declaration["columns"],
        "expectations": tuple(from_plain(Expectation, item) for item in declaration["expectations"]),
        "row_counts": tuple(from_plain(RowCount, item) for item in declaration["row_counts"]),
        "spark": from_plain(SparkSettings, declaration["spark"]),
        "continuous": from_plain(ContinuousSettings, declaration.get("continuous", {})),
        "start_date": datetime.fromisoformat(start) if start else None,
        "end_date": datetime.fromisoformat(end) if end else None,
        "tags": tuple(declaration["tags"]),
        "params": {name: from_plain(RunParam, param) for name, param in declaration.get("params", {}).items()},
        **{name: getattr(airflow, name) for name in AIRFLOW_SETTINGS},
        **{key: declaration.get(key) for key in _AS_THEY_ARE},
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


def _seconds(length: timedelta | None) -> float | None:
    return None if length is None else length.total_seconds()
