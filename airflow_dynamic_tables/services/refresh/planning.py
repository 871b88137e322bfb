"""Planning: what one refresh will do, with every source bound to a version."""

from __future__ import annotations

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.refresh.actions import Reason, RefreshAction
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.spark_settings import decides_rows
from airflow_dynamic_tables.core.tables.dates import check_dates
from airflow_dynamic_tables.core.tables.formats import FORMATS
from airflow_dynamic_tables.core.tables.partition_values import normalised
from airflow_dynamic_tables.core.tables.partitions import NO_PARTITIONS, PartitionSet
from airflow_dynamic_tables.core.tables.schema import Rebuild, TableLayout
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.queries.editing import replace_tables
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.formats.base import LakeTable
from airflow_dynamic_tables.ledger.base import Stage
from airflow_dynamic_tables.services.queries.functions import bind_functions
from airflow_dynamic_tables.services.queries.views import inline_views
from airflow_dynamic_tables.services.refresh.binding import bind_sources
from airflow_dynamic_tables.services.refresh.preview import statement
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, requested_partitions
from airflow_dynamic_tables.services.tables.lifecycle import FORGOTTEN_COMMENTS
from airflow_dynamic_tables.services.watermarks.growth import Growth
from airflow_dynamic_tables.services.workspace import Workspace

Why = tuple[RefreshAction, Reason]
"""What a refresh does, and why."""


def planned_partitions(workspace: Workspace, request: RefreshRequest, growth: Growth | None = None) -> PartitionSet:
    """The partitions that a request replaces, spelled as the columns of the table spell them: two spellings are one lease.

    Where sources have a watermark, that says which time partitions are complete, and no schedule does.

    :param growth: those sources, as somebody has looked at them.
    :raises ConfigurationError: when a value is none of its column's type, or none that its date formatter gives.
    """
    columns = workspace.catalog(request.table.identifier.catalog).get_table(request.table.identifier.path).columns
    try:
        requested = requested_partitions(request)
        if growth is not None and request.partitions is None and request.table.formatters and not request.full_refresh:
            requested = growth.published.union(request.updated or NO_PARTITIONS)
        partitions = normalised(requested, columns)
        for spec in () if request.partitions is None or partitions.is_whole else partitions:
            check_dates(spec, request.table.formatters)
    except ValueError as error:
        raise ConfigurationError(f"{request.table.identifier}: {error}.") from error
    return partitions


def fitting_layout(request: RefreshRequest, table: LakeTable) -> tuple[TableLayout | None, Rebuild]:
    """What the rows of a refresh have to fit, ``None`` before the first commit, and what the refresh may change of it.

    :raises SchemaEvolutionError: when the definition has other partition keys than the table, and they have to stay.
    """
    layout = table.layout()
    if layout is None:
        return None, Rebuild.NOTHING
    rebuild = layout.rebuild if request.full_refresh else Rebuild.NOTHING
    layout.check_keys(request.table.identifier, request.table.partition_keys, rebuild)
    return layout, rebuild


def plan(
    workspace: Workspace, request: RefreshRequest, stage: Stage, current: Version | None, why: Why, growth: Growth | None = None
) -> RefreshPlan:
    """Bind every source at the version it has now.

    :param why: see :func:`~airflow_dynamic_tables.services.refresh.requests.action_of`.
    :param growth: the sources that have a watermark.
    :raises DynamicTableError: see :func:`~airflow_dynamic_tables.services.refresh.binding.bind_sources`.
    """
    action, reason = why
    table = inline_views(workspace, request.table, request.sources)
    sources = bind_sources(workspace, table, request.sources, stage.partitions, growth)
    views = dict(zip(table.upstream, (quote(source.view) for source in sources), strict=True))
    query, functions = bind_functions(workspace, replace_tables(table.expanded_query, views))
    traits = FORMATS[table.format]
    return RefreshPlan(
        token=request.token,
        identifier=str(table.identifier),
        schedule_time=request.schedule_time,
        action=action,
        reason=reason.text,
        statement=statement(table.expanded_query, stage.partitions),
        query=query,
        stage=stage.location,
        file_format=traits.file_format,
        keys_in_files=traits.keys_in_files,
        partition_keys=table.partition_keys,
        partitions=stage.partitions,
        sources=sources,
        functions=functions,
        comment=table.comment,
        comments={**(_forgotten_comments(workspace, table) if current is not None else {}), **table.comments},
        timezone=table.timezone,
        expectations=table.expectations,
        # Partitions named by hand make the table as a whole no fresher.
        data_timestamp=request.schedule_time if request.partitions is None else None,
        base=current.snapshot if current is not None else None,
        settings={name: value for name, value in table.spark.conf.items() if decides_rows(name)},
        allowed=workspace.settings.allowed,
    )


def _forgotten_comments(workspace: Workspace, table: DynamicTable) -> dict[str, str]:
    """Empty comments for columns whose comments were taken out of the definition."""
    entry = workspace.catalog(table.identifier.catalog).get_table(table.identifier.path)
    definition = entry.definition if isinstance(entry, CatalogDynamicTable) else None
    return dict.fromkeys((definition or {}).get(FORGOTTEN_COMMENTS, ()), "")
