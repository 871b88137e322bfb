"""From a dynamic table to the keys of a definitions file that declare it, where no defaults are: what goes without saying is left
out.

It says what the table means, wherever it was declared. Kinds of expectations that are short for a predicate are predicates, and
a query that reads views of the definitions has them written out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any

from airflow_dynamic_tables.core.identifiers import TableIdentifier, join_name
from airflow_dynamic_tables.core.refresh.awaited import AwaitedData
from airflow_dynamic_tables.core.refresh.expectations import Expectation, RowCount
from airflow_dynamic_tables.core.schedule.cron import cron_for
from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.core.schedule.refresh_mode import RefreshMode, decide
from airflow_dynamic_tables.core.tables.retention import DEFAULT_RETENTION
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration
from airflow_dynamic_tables.definitions.model import KEYS, NO_SCHEDULE, AssetReference, Callback, DynamicTable, KeyField, Updates
from airflow_dynamic_tables.definitions.queries.editing import expand, unclear_names
from airflow_dynamic_tables.definitions.queries.text import Target, analyse
from airflow_dynamic_tables.definitions.validating import takes_variables
from airflow_dynamic_tables.redaction import HIDDEN
from airflow_dynamic_tables.yaml_files.variables import escaped, scalars


def declaration_of(table: DynamicTable) -> dict[str, Any]:
    """The entry that declares the table below ``dynamic_tables``: texts, numbers, truth values, lists and mappings.

    All names in it are full ones, and no variable of the environment is asked for.
    """
    said = {each.name: _printed(each, table) for each in KEYS if each.name not in ("name", "query")}
    said = {"name": str(table.identifier), **said, "query": full_query(table)}
    said = {key: value for key, value in said.items() if value is not None}
    return {key: _escaped(value) if takes_variables(TableDeclaration, key) else value for key, value in said.items()}


def hidden_settings(table: DynamicTable) -> list[str]:
    """The settings of which a catalog keeps no more than that they are secret, as dotted names."""
    every = scalars(declaration_of(table), ())
    return [
        ".".join(map(str, location)) for location, text in every if HIDDEN in text and location[0] not in ("query", "comment")
    ]


def full_query(table: DynamicTable) -> str:
    """The query with the full names of tables: as it is written but for them, if it reads no view of the definitions."""
    analysis = analyse(table.query)
    own = (table.identifier.catalog, table.identifier.database)
    tables = {name: name for name in table.upstream}
    text = analysis.text
    for reference in reversed(analysis.references):
        missing = own[: 3 - len(reference.parts)]
        name = TableIdentifier(*missing, *(part.text for part in reference.parts))
        if name not in tables:
            return table.expanded_query
        if missing:
            start = reference.parts[0].start
            text = f"{text[:start]}{join_name(*missing)}.{text[start:]}"
    if text == analysis.text:
        return table.query
    return text if _expanded(text) == table.expanded_query else table.expanded_query


def _expanded(query: str) -> str | None:
    """What a query with full names alone is expanded to."""
    analysis = analyse(query)
    names = [TableIdentifier(*(part.text for part in reference.parts)) for reference in analysis.references]
    targets = [Target(name, name.sql) for name in names]
    return None if analysis.problems or unclear_names(analysis, targets) else expand(analysis, targets)


def _printed(each: KeyField, table: DynamicTable) -> Any:
    """The value of a key; ``None`` for what goes without saying."""
    if each.name in _PRINTED:
        return _PRINTED[each.name](table)
    value = getattr(table, each.field)
    return None if value == each.default else _plain(value)


def _freshness(table: DynamicTable) -> str | None:
    derived = decide(table.declared_mode, None)
    is_derived = (derived.mode, derived.freshness, derived.reason) == (table.mode, table.freshness, table.mode_reason)
    return None if is_derived else table.freshness.text


def _schedule(table: DynamicTable) -> str | None:
    is_derived = table.is_continuous or table.cron == _derived_cron(table.freshness)
    return None if is_derived else table.cron or NO_SCHEDULE


def _derived_cron(freshness: Freshness) -> str | None:
    try:
        return cron_for(freshness)
    except ValueError:
        return None


def _plain(value: Any) -> Any:
    """A setting as it is declared."""
    if isinstance(value, timedelta):
        return Freshness(int(value.total_seconds())).text
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Callback):
        return value.path if value.arguments is None else {"notifier": value.path, "arguments": _plain(value.arguments)}
    if dataclasses.is_dataclass(value):
        every = ((field.name, getattr(value, field.name), _default(field)) for field in dataclasses.fields(value))
        return {name: _plain(item) for name, item, default in every if item != default}
    return value


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def _kept_versions(name: str, table: DynamicTable) -> Any:
    return None if table.retention == DEFAULT_RETENTION else _plain(getattr(table.retention, name))


def _updates(on: Updates | None) -> Any:
    assets = [_asset(asset) for asset in on.assets] if on is not None else None
    return {"all": assets} if on is not None and on.every else assets


def _asset(asset: AssetReference) -> Any:
    return {"name": asset.name} if asset.name is not None else str(asset)


def _awaited(awaited: AwaitedData) -> dict[str, Any]:
    if awaited.source is None:
        return {"path": awaited.text}
    said: dict[str, Any] = {"source": str(awaited.source)}
    if awaited.text:
        said["partition"] = awaited.text
    if awaited.rows is not None:
        said["rows"] = awaited.rows.least
    return said


def _expectation(expectation: Expectation) -> dict[str, Any]:
    said = {"unique": list(expectation.unique)} if expectation.unique else {"predicate": expectation.predicate}
    return {"name": expectation.name, "action": expectation.action.value, **said}


def _row_count(bounds: RowCount) -> dict[str, Any]:
    said = {key: getattr(bounds, key) for key in ("min", "max") if getattr(bounds, key) is not None}
    for key in ("max_decrease", "max_increase"):
        share = getattr(bounds, key)
        if share is not None:
            said[key] = _percentage(share)
    return {"name": bounds.name, "action": bounds.action.value, "row_count": said}


def _percentage(share: float) -> str:
    """A share as the shortest percentage that means it."""
    exact = Decimal(repr(share)) * 100
    return f"{exact.normalize():f}%"


_PRINTED: Mapping[str, Callable[[DynamicTable], Any]] = {
    "freshness": _freshness,
    "refresh_mode": lambda table: None if table.declared_mode is RefreshMode.AUTO else table.declared_mode.value.lower(),
    "schedule": _schedule,
    "on": lambda table: _updates(table.on),
    "wait_for": lambda table: [_awaited(awaited) for awaited in table.wait_for] or None,
    "expectations": lambda table: [*map(_expectation, table.expectations), *map(_row_count, table.row_counts)] or None,
    "row_counts": lambda _: None,
    **{name: partial(_kept_versions, name) for name in ("versions_to_keep", "version_max_age")},
}
"""What is printed of the keys that have another form than their field."""


def _escaped(value: Any) -> Any:
    """A value in which nothing is taken for a variable of the environment."""
    if isinstance(value, Mapping):
        return {key: _escaped(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return escaped(value) if isinstance(value, str) else value
