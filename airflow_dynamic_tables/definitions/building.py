"""Conversion of validated entries to definition values: defaults applied, fields in their final types."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.core.cron import cron_for
from airflow_dynamic_tables.core.formats import FORMATS, counted_formats
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partition_dates import FORMATTER
from airflow_dynamic_tables.core.refresh.reasons import OnChange
from airflow_dynamic_tables.core.refresh.sources import AwaitedData, AwaitedRows, Source, path_problem
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.core.schedule import Freshness, ModeDecision, RefreshMode, decide
from airflow_dynamic_tables.core.sinks import concerns
from airflow_dynamic_tables.core.streaming.source_watermarks import CompleteWhen, WholeBy, is_ours, read_watermark
from airflow_dynamic_tables.core.streaming.stream_plans import EventTime
from airflow_dynamic_tables.core.versions import DEFAULT_RETENTION, Retention
from airflow_dynamic_tables.definitions.declarations.settings import DefaultsDeclaration
from airflow_dynamic_tables.definitions.declarations.source import EventTimeDeclaration, SourceDeclaration
from airflow_dynamic_tables.definitions.declarations.table import (
    AssetItem,
    AwaitedDeclaration,
    TableDeclaration,
    build_expectations,
    build_row_counts,
)
from airflow_dynamic_tables.definitions.entries import Entry, Expansion, format_of
from airflow_dynamic_tables.definitions.model import KEYS, NO_SCHEDULE, OWN_DAG, AssetReference, DynamicTable, Updates
from airflow_dynamic_tables.redaction import has_password, is_secret_name

_TABLE_SCHEME = "dynamic-table:"

_LONGEST_URI = 1_500
"""Maximum length of an asset's name or URI in Airflow's database."""

OF_SCHEDULES = ("schedule", "dag", "deadline", "verify_every")
"""Keys whose defaults apply to scheduled tables only, because a continuously refreshed table cannot use them."""

Named = Callable[[str], tuple[TableIdentifier, Entry | None]]
"""Resolves a name in some file; the entry is ``None`` if a broken file declares it. Raises ``ValueError`` for an unknown name."""


def build_source(entry: Entry, declared: SourceDeclaration) -> Source:
    """Build a source from its declaration."""
    return Source(
        identifier=entry.identifier,
        format=declared.format,
        path=_data_path(declared.path, entry.document.path),
        partition_keys=declared.partitioned_by,
        schema=declared.schema_,
        options={option: value for option, value in declared.options.items() if not is_ours(option)},
        comment=declared.comment,
        watermark=read_watermark(declared.options, _complete_when(declared)) if declared.watermark == "source" else None,
        event_time=_event_time(declared),
        conn_id=declared.conn_id,
        version_column=declared.version_column,
        max_age=declared.max_age,
        file=entry.document.path,
        line=entry.document.line(entry.location),
    )


def _event_time(declared: SourceDeclaration) -> EventTime | None:
    said = declared.watermark
    return EventTime(said.column, said.delay, said.deduplicate) if isinstance(said, EventTimeDeclaration) else None


def _complete_when(declared: SourceDeclaration) -> CompleteWhen:
    """Return the completeness check of partitions; by default the metastore if there is one, otherwise a marker file."""
    if declared.complete_when is not None:
        return declared.complete_when
    return CompleteWhen(WholeBy.METASTORE) if FORMATS[declared.format].lists_partitions else CompleteWhen()


def _data_path(path: str | None, file: Path) -> str | None:
    """Resolve a local path relative to the declaring file; URIs are unchanged."""
    if path is None or "://" in path or path.startswith("file:"):
        return path
    return str(file.parent.absolute() / path)


def build_table(entry: Entry, declared: TableDeclaration, expansion: Expansion, named: Named) -> DynamicTable:
    """Build a dynamic table from its declaration and the defaults of its file; its rules must have found no mistake."""
    decision = mode_decision(entry, declared)
    merged = declared.over(_defaults_for(entry, decision))
    built: dict[str, Any] = {
        "identifier": entry.identifier,
        "query": entry.query.text.strip() if entry.query else "",
        "expanded_query": expansion.query,
        "upstream": tuple(expansion.origins),
        "declared_mode": RefreshMode((merged.refresh_mode or "auto").upper()),
        "mode": decision.mode,
        "mode_reason": decision.reason,
        "freshness": decision.freshness,
        "cron": _cron(merged.schedule, decision),
        "on": _updates(declared, named),
        "wait_for": tuple(awaited_data(entry, awaited, named) for awaited in declared.wait_for),
        "on_change": {str(named(name)[0]): OnChange(choice) for name, choice in declared.on_change.items()},
        "max_lag": {str(named(name)[0]): lag for name, lag in declared.max_lag.items()},
        "partition_keys": declared.partition_keys,
        "formatters": formatters(entry, declared),
        "options": _options(entry, declared),
        "retention": _retention(merged),
        "comments": {column: comment for column, comment in declared.columns.items() if comment},
        "expectations": build_expectations(declared.expectations, lambda name: named(name)[0]),
        "row_counts": build_row_counts(declared.expectations),
        "spark": SparkSettings(**merged.spark.model_dump(exclude_none=True)),
        "continuous": merged.continuous.built(),
        "tags": tuple(dict.fromkeys(merged.tags)),
        "params": {name: param.built() for name, param in merged.params.items()},
        "dag": dag_of(merged),
        "start_date": calendar_time(merged, "start_date"),
        "end_date": calendar_time(merged, "end_date"),
        "path": entry.document.path,
        "line": entry.document.line(entry.location),
        "file": entry.file,
        "text": entry.document.excerpt(entry.location),
    }
    others = {each.field: getattr(merged, each.name) for each in KEYS if each.field not in built}
    return DynamicTable(**built, **{name: value for name, value in others.items() if value is not None})


def awaited_data(entry: Entry, declared: AwaitedDeclaration, named: Named) -> AwaitedData:
    """Build the data that a refresh waits for.

    :raises ValueError: when waiting for it is unsupported; the message gives the reason.
    """
    if declared.source is None:
        awaited = AwaitedData(str(_data_path(declared.path, entry.document.path)))
        if problem := path_problem(declared.path):
            raise ValueError(problem)
    elif declared.rows is not None:
        awaited = _awaited_rows(declared.source, declared.partition or "", declared.rows, named)
    else:
        identifier, source = named(declared.source)
        known = source.declaration if source is not None else None
        if source is not None and not (isinstance(known, SourceDeclaration) and FORMATS[known.format].lists_partitions):
            raise ValueError(f"no metastore lists the partitions of {identifier}; await a file by its 'path' instead")
        awaited = AwaitedData(str(declared.partition), identifier)
    awaited.check()
    return awaited


def _awaited_rows(name: str, partition: str, least: int, named: Named) -> AwaitedData:
    identifier, entry = named(name)
    if entry is None or not entry.sound:
        raise ValueError(f"the definition of {identifier} has mistakes; its rows can be counted when those are mended")
    known = entry.declaration
    if not isinstance(known, SourceDeclaration) or not FORMATS[known.format].counts_rows:
        *others, last = counted_formats()
        raise ValueError(
            f"the rows of {identifier} cannot be counted without reading them; those of {', '.join(others)} and {last} sources "
            "can; await a file by its 'path' instead"
        )
    if problem := path_problem(known.path):
        raise ValueError(problem)
    source = build_source(entry, known)
    awaited = AwaitedData(partition, identifier, AwaitedRows(least, source.format, source.path))
    if FORMATS[source.format].is_folder and (unknown := sorted(awaited.partition.keys() - set(source.partition_keys))):
        keys = ", ".join(source.partition_keys) or "none"
        raise ValueError(f"{identifier} has no partition key {unknown[0]!r} (its 'partitioned_by': {keys})")
    return awaited


def _defaults_for(entry: Entry, decision: ModeDecision) -> DefaultsDeclaration:
    is_scheduled = decision.mode is not RefreshMode.CONTINUOUS
    return entry.defaults if is_scheduled else entry.defaults.model_copy(update=dict.fromkeys(OF_SCHEDULES))


def _updates(declared: TableDeclaration, named: Named) -> Updates | None:
    if declared.on is None:
        return None
    every = dict.fromkeys(asset_reference(item, named) for item in declared.on.items)
    return Updates(tuple(every), declared.on.every)


def asset_reference(item: AssetItem, named: Named) -> AssetReference:
    """Resolve an asset.

    :raises ValueError: when it cannot be resolved; the message gives the reason.
    """
    if len(item.text) > _LONGEST_URI:
        raise ValueError(f"an asset's URI or name has at most {_LONGEST_URI:,} characters")
    if item.is_name:
        return AssetReference(name=item.text)
    if ":" in item.text and "`" not in item.text:
        return _asset_of_uri(item.text)
    try:
        identifier, entry = named(item.text)
    except ValueError as error:
        raise ValueError(f"{error} (an asset of others goes by its URI, or by {{name: …}})") from error
    if entry is None or isinstance(entry.declaration, TableDeclaration):
        return AssetReference(table=identifier)
    if not isinstance(entry.declaration, SourceDeclaration):
        raise ValueError(f"{identifier} is a view, which is never refreshed; name the tables that it reads")
    uri = build_source(entry, entry.declaration).asset_uri
    if uri is None:
        raise ValueError(f"only who writes {identifier} knows its asset; write the URI that their DAG has as its outlet")
    return AssetReference(uri=uri)


def _asset_of_uri(uri: str) -> AssetReference:
    no_asset = f"{uri!r} is no URI of an asset; write for example s3://bucket/orders"
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise ValueError(f"{no_asset} ({error})") from error
    if not parts.scheme or parts.scheme == "airflow":
        raise ValueError(no_asset)
    if has_password(uri) or any(is_secret_name(name) for name, _ in parse_qsl(parts.query)):
        raise ValueError("an asset's URI may not hold a password: Airflow shows it to everybody")
    if f"{parts.scheme}:" != _TABLE_SCHEME:
        return AssetReference(uri=uri)
    names = [unquote(name) for name in (parts.netloc, *parts.path.strip("/").split("/"))]
    if len(names) != 3 or not all(names):
        raise ValueError(f"{uri!r} is no dynamic table; write {_TABLE_SCHEME}//catalog/database/table")
    return AssetReference(table=TableIdentifier(*names).checked())


def _options(entry: Entry, declared: TableDeclaration) -> dict[str, str]:
    """Return its own options and the applicable defaults: a formatter applies only if the table has that partition key."""
    options = dict(declared.options)
    table_format = format_of(entry, declared)
    for option, value in entry.defaults.options.items():
        match = FORMATTER.fullmatch(option)
        if match["column"] in declared.partition_keys if match else concerns(option, table_format):
            options.setdefault(option, value)
    return options


def _retention(merged: TableDeclaration) -> Retention:
    said = {name: value for name in ("versions_to_keep", "version_max_age") if (value := getattr(merged, name)) is not None}
    return Retention(**said) if said else DEFAULT_RETENTION


def dag_of(merged: TableDeclaration) -> str | None:
    """Return the DAG that a table shares with others; ``None`` when it has its own."""
    return None if merged.dag == OWN_DAG else merged.dag


def calendar_time(merged: TableDeclaration, key: Literal["start_date", "end_date"]) -> datetime | None:
    """Return the first or the last time of the schedule, in UTC.

    :raises OverflowError: when the time is out of range in UTC: it is on the first or the last possible day.
    """
    time: datetime | None = getattr(merged, key)
    return time and (time if time.tzinfo else time.replace(tzinfo=ZoneInfo(merged.timezone or "UTC"))).astimezone(UTC)


def mode_decision(entry: Entry, declared: TableDeclaration) -> ModeDecision:
    """Return the refresh mode and freshness of a table, and the reason."""
    mode = declared.refresh_mode or entry.defaults.refresh_mode or "auto"
    freshness = declared.freshness or entry.defaults.freshness
    return decide(RefreshMode(mode.upper()), Freshness.parse(freshness) if freshness else None, entry.threshold)


def formatters(entry: Entry, declared: TableDeclaration) -> dict[str, str]:
    """Return the partition keys that have a date pattern, in their order."""
    patterns = {
        match["column"]: pattern
        for option, pattern in {**entry.defaults.options, **declared.options}.items()
        if (match := FORMATTER.fullmatch(option))
    }
    return {key: patterns[key] for key in declared.partition_keys if key in patterns}


def _cron(schedule: str | None, decision: ModeDecision) -> str | None:
    """Return the cron expression; ``None`` for a table that is refreshed continuously or only by asset updates."""
    if schedule:
        return None if schedule == NO_SCHEDULE else schedule
    return None if decision.mode is RefreshMode.CONTINUOUS else cron_for(decision.freshness)
