"""Reports of tasks: results, extras of asset events, failures, and the events that Airflow already has."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from airflow import __version__ as airflow_version
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    Asset,
    AssetAlias,
    BaseOperator,
    Context,
    get_parsing_context,
)
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import AssetResult, GetAssetByUri
from airflow.sdk.execution_time.context import OutletEventAccessor

from airflow_dynamic_tables.assets import dynamic_table_asset, is_dynamic_table
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet, describe
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.cache import restored
from airflow_dynamic_tables.exceptions import (
    ConfigurationError,
    DriftError,
    DynamicTableError,
    JobMisfitError,
    QuarantinedError,
    SchemaEvolutionError,
    UpstreamError,
)
from airflow_dynamic_tables.ledger.base import Refresh
from airflow_dynamic_tables.operators.run_arguments import events_since, run_of
from airflow_dynamic_tables.services.continuous.partition_commit import PartitionCommits
from airflow_dynamic_tables.services.maintenance.sweeping import CLOCK_MARGIN, missing_reports
from airflow_dynamic_tables.services.tables.entries import declared_part
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)

LATE_EVENTS = AssetAlias(name="dynamic-tables-late-events", group="dynamic-table")
"""Outlet for events of versions of other tasks: Airflow accepts any number of events of any assets from an alias."""

OTHER_EVENTS = AssetAlias(name="dynamic-tables-events", group="dynamic-table")
"""Outlet for events of an inactive asset and the active one, if another DAG declares its URI under another name."""

MOST_PARTITIONS = 50
"""Most complete partitions per task; the next task reports the others. Every event contains the versions of all of them."""

_LONGEST_KEY = 250
"""Most characters of a partition key in Airflow."""

_VERSIONS = "versions"
"""Extra of a partition event: the token of the version that wrote its rows."""

_OVER = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
"""States of task instances in which Airflow no longer accepts success and events."""

_HOPELESS = (ConfigurationError, UpstreamError, SchemaEvolutionError, JobMisfitError, QuarantinedError, DriftError)
"""Errors that another try would repeat."""


def check_partition_events(setting: str) -> None:
    """Check that this Airflow has asset events that name partitions.

    :param setting: the setting that needs them.
    :raises ConfigurationError: if it has none.
    """
    if not hasattr(OutletEventAccessor, "add_partitions"):
        lacks = f"Airflow {airflow_version} has no asset events that name partitions"
        raise ConfigurationError(f"{setting}: {lacks}; upgrade to Airflow 3.3, or remove it")


class UpstreamFailedError(AirflowFailException):
    """A refresh did not begin, because a table that it reads was not refreshed."""


def as_airflow(error: DynamicTableError) -> AirflowException:
    """Return the Airflow exception that permits or prevents retries, depending on the error."""
    if isinstance(error, UpstreamError):
        return UpstreamFailedError(str(error))
    return (AirflowFailException if isinstance(error, _HOPELESS) else AirflowException)(str(error))


class ReportsCommits(BaseOperator):
    """An operator that emits events of commits to its outlets."""

    hidden_outlets: Sequence[Asset] = ()
    """Assets that also get events, but that Airflow does not check before the task begins."""

    most_partition_events: int = 0
    """Maximum number of changed partitions that have an event each; 0: they have none."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if get_parsing_context().dag_id is not None:
            self.hide_assets()

    def hide_assets(self) -> None:
        """Remove table assets from outlets and inlets where the task is about to run; they still get events.

        Airflow does not start a task with an inactive asset, which results if another DAG declares its URI under another name.
        The DAGs of the scheduler still declare the assets, so Airflow shows the lineage.
        """
        self.hidden_outlets = [asset for asset in self.outlets if is_dynamic_table(asset)]
        self.inlets = [asset for asset in self.inlets if not is_dynamic_table(asset)]
        self.outlets = [asset for asset in self.outlets if not is_dynamic_table(asset)]


def report_commit(
    context: Context,
    task: ReportsCommits,
    version: Version,
    refresh: Refresh | None,
    schedule_time: datetime | None,
    earlier: Sequence[tuple[Version, Refresh | None]] = (),
) -> dict[str, Any]:
    """Emit the events of the commits of a task, and set the report of the last one as extra of every other outlet's event.

    :param refresh: the record of the ledger; ``None`` if unavailable, then the report contains no rows.
    :param earlier: the commits before, each with its record.
    :return: version, rows, partitions (empty for all), schedule time and token (``refresh``) of the last commit.
    """
    report = _report_of(version, refresh, schedule_time)
    reports = [*_reports_of(earlier), report]
    by_partition = _tell_changed(context, task, reports)
    if earlier:
        for asset in filter(is_dynamic_table, task.outlets):
            _tell_by_alias(context, task, _told(asset), reports[:-1])
    for asset in task.hidden_outlets:
        told = _told(asset)
        has_own = told == [asset] and asset not in by_partition
        _tell_by_alias(context, task, told, reports[:-1] if has_own else reports)
        task.outlets = [*task.outlets, *([asset] if has_own else [])]
    for asset in task.outlets:
        if isinstance(asset, Asset):
            context["outlet_events"][asset].extra = dict(report)
    task.outlets = [*task.outlets, *by_partition]
    return report


def report_commits(
    context: Context, task: ReportsCommits, commits: Sequence[tuple[Version, Refresh | None]]
) -> list[dict[str, Any]]:
    """Emit the events of any number of commits."""
    if not commits:
        return []
    reports = _reports_of(commits)
    by_partition = _tell_changed(context, task, reports)
    for asset in [*task.hidden_outlets, *filter(is_dynamic_table, task.outlets)]:
        _tell_by_alias(context, task, _told(asset), reports)
    task.outlets = [*task.outlets, *by_partition]
    return reports


def _tell_by_alias(context: Context, task: ReportsCommits, assets: Sequence[Asset], reports: Sequence[dict[str, Any]]) -> None:
    """Emit events by an alias, because Airflow accepts any number of events of any assets from it."""
    for asset in assets:
        for report in reports:
            task.outlets = [*task.outlets, *([] if OTHER_EVENTS in task.outlets else [OTHER_EVENTS])]
            context["outlet_events"][OTHER_EVENTS].add(asset, dict(report))


def _tell_changed(context: Context, task: ReportsCommits, reports: Sequence[dict[str, Any]]) -> list[Asset]:
    """Emit an event for each partition that the commits of a task changed, see :func:`_tell_partitions`."""
    if not task.most_partition_events:
        return []
    if not task.hidden_outlets:
        task.hide_assets()
    return _tell_partitions(context, task.hidden_outlets, task.most_partition_events, reports)


def _tell_partitions(context: Context, tables: Sequence[Asset], most: int, reports: Sequence[dict[str, Any]]) -> list[Asset]:
    """Emit an event for each partition that some commits changed, unless they are too many.

    If they are, or if a commit replaced the complete table, the reports say so by ``partitions_total`` (``None``: all).

    :return: the assets with these events; their other events need an alias. The caller adds them to the outlets of the task.
    """
    tokens = {partition: str(report["refresh"]) for report in reports for partition in report["partitions"]}
    total = len(tokens) if all(report["partitions"] for report in reports) else None
    fits = total is not None and total <= most and max(map(len, tokens)) <= _LONGEST_KEY
    assets = [asset for asset in tables if _told(asset) == [asset]] if fits else []
    if not assets:
        for report in reports:
            report["partitions_total"] = total
        log.info("Only the table has events, not its partitions: %s changed.", "all" if total is None else total)
    for asset in assets:
        _add_partitions(context, asset, tokens)
    return assets


def _add_partitions(context: Context, asset: Asset, tokens: Mapping[str, str]) -> None:
    """Emit an event for each partition, with its text as partition key; all of them have the same extra."""
    event = context["outlet_events"][asset]
    event.add_partitions(list(tokens))
    event.extra = {_VERSIONS: dict(tokens)}


def tell_partitions(context: Context, task: ReportsCommits, commits: PartitionCommits) -> list[str]:
    """Emit an event for each complete partition, with its text as partition key.

    Airflow is queried for its events, so each version of a partition is reported once. Such events only trigger DAGs with a
    partition-based timetable.

    :return: the reported partitions; the next task reports those that cannot be reported now.
    """
    complete = commits.complete()
    assets = [asset for asset in task.hidden_outlets if _told(asset) == [asset]]
    if not complete or not assets:
        return []
    commits.confirm(_partitions_told(commits.table, min(row.published_at for row in complete) - CLOCK_MARGIN))
    rows = [row for row in commits.complete() if len(row.partition) <= _LONGEST_KEY][:MOST_PARTITIONS]
    if not rows:
        return []
    commits.offer(rows)
    task.outlets = [*task.outlets, *assets]
    for asset in assets:
        _add_partitions(context, asset, {row.partition: row.token for row in rows})
    return [row.partition for row in rows]


def report_missing(context: Context, task: BaseOperator, workspace: Workspace) -> list[str]:
    """Emit missing events of versions to the alias of the task, and of their partitions, if no other task will."""
    missing = missing_reports(workspace, _reported, lambda owner: _is_over(context, owner))
    for table in dict.fromkeys(late.table for late in missing):
        reports = [
            _report(late.version, late.rows, late.partitions, late.schedule_time, late.token)
            for late in missing
            if late.table == table
        ]
        asset = dynamic_table_asset(table)
        if most := _most_partition_events(workspace, table):
            task.outlets = [*task.outlets, *_tell_partitions(context, [asset], most, reports)]
        for each in _told(asset):
            for report in reports:
                context["outlet_events"][LATE_EVENTS].add(each, report)
    return [late.token for late in missing]


def _most_partition_events(workspace: Workspace, table: TableIdentifier) -> int:
    """Return the number that the definition in the catalog allows; 0 if it cannot be read, so that other events are not lost."""
    try:
        entry = workspace.find_entry(table)
        declaration = declared_part(entry) if entry is not None else {}
        return restored(declaration).most_partition_events if declaration else 0
    except DynamicTableError:
        log.exception("Partitions of %s have no events: its definition cannot be read.", table)
        return 0


def skip(context: Context, reason: str) -> NoReturn:
    """Skip the task, with the reason as the last log line and as the XCom ``skipped``, for users and callbacks.

    Airflow passes callbacks no reason, and shows a run as successful if its tasks were skipped (see ``plugins.notes``).
    """
    context["ti"].xcom_push(key="skipped", value=reason)
    log.info("Skipped: %s", reason)
    raise AirflowSkipException(reason)


def is_reported(refresh: Refresh) -> bool:
    """Return whether Airflow has an asset event of the version of a refresh."""
    return refresh.token in _reported(refresh.table, refresh.started_at - CLOCK_MARGIN)


def _reports_of(commits: Sequence[tuple[Version, Refresh | None]]) -> list[dict[str, Any]]:
    times = [refresh.schedule_time if refresh else version.data_timestamp for version, refresh in commits]
    return [_report_of(version, refresh, time) for (version, refresh), time in zip(commits, times, strict=True)]


def _report_of(version: Version, refresh: Refresh | None, schedule_time: datetime | None) -> dict[str, Any]:
    partitions = refresh.partitions if refresh else version.partitions or WHOLE_TABLE
    return _report(version.number, refresh.rows if refresh else None, partitions, schedule_time, version.token)


def _report(
    number: int | None, rows: int | None, partitions: PartitionSet, schedule_time: datetime | None, token: str
) -> dict[str, Any]:
    return {
        "version": number,
        "rows": rows,
        "partitions": [describe(spec) for spec in partitions if spec],
        "schedule_time": schedule_time.isoformat() if schedule_time else None,
        "refresh": token,  # Airflow would mask a key named token
    }


def _reported(table: TableIdentifier, since: datetime) -> set[str]:
    return {str((event.extra or {}).get("refresh")) for event in events_since(table, since)}


def _partitions_told(table: TableIdentifier, since: datetime) -> set[tuple[str, str]]:
    """Return the partitions with an event in Airflow, each with the token of the reported version."""
    told: set[tuple[str, str]] = set()
    for event in events_since(table, since):
        versions = (event.extra or {}).get(_VERSIONS)
        if event.partition_key is not None and isinstance(versions, dict):
            told.add((event.partition_key, str(versions.get(event.partition_key))))
    return told


def _told(asset: Asset) -> list[Asset]:
    """Return an asset of ours, and the active one with its URI if it has another name: DAGs may depend on either."""
    active = task_runner.SUPERVISOR_COMMS.send(GetAssetByUri(uri=asset.uri))
    if not isinstance(active, AssetResult) or active.name == asset.name:
        return [asset]
    return [asset, Asset(active.name, active.uri)]


def _is_over(context: Context, owner: str) -> bool:
    """Return whether all tasks of an owner's run ended; False for runs that this Airflow does not know."""
    dag_id, run_id = run_of(owner)
    states = context["ti"].get_task_states(dag_id=dag_id, run_ids=[run_id]).get(run_id, {})
    return bool(states) and _OVER.issuperset(states.values())
