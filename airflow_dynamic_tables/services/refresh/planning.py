"""Planning: the plan of one refresh, with every source bound to a version."""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import Reason, RefreshAction
from airflow_dynamic_tables.core.schema import Rebuild, TableLayout
from airflow_dynamic_tables.core.sinks import tuned
from airflow_dynamic_tables.core.versions import Base, Version
from airflow_dynamic_tables.ledger.base import Stage
from airflow_dynamic_tables.services.increments import Growth
from airflow_dynamic_tables.services.refresh.binding import Bound, bind_inputs
from airflow_dynamic_tables.services.refresh.catching_up import fresh_then
from airflow_dynamic_tables.services.refresh.preview import statement
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, StreamBatch
from airflow_dynamic_tables.services.tables.entries import forgotten_comments
from airflow_dynamic_tables.services.workspace import RegisteredTable
from airflow_dynamic_tables.services.writes.protocol import StagedWrite

Why = tuple[RefreshAction, Reason]
"""The action of a refresh and its reason."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to fulfil a request."""

    request: RefreshRequest
    registered: RegisteredTable
    write: StagedWrite
    plan: RefreshPlan

    @property
    def stage(self) -> Stage:
        """The attempt's row in the ledger."""
        return self.write.stage


@dataclass(frozen=True, slots=True)
class ToDo:
    """The work of a refresh, as determined before it took the lease.

    ``partitions`` are the partitions to replace, ``growth`` the sources with a watermark. ``bound`` are the inputs if they were
    already compared with those of the version of token ``base``.
    """

    partitions: PartitionSet
    growth: Growth | None = None
    bound: Bound | None = None
    base: str | None = None

    def bound_since(self, current: Version | None) -> Bound | None:
        """Return the compared inputs if there was no commit since; a later commit may have read newer inputs."""
        return self.bound if current is not None and current.token == self.base else None


def plan(write: StagedWrite, request: RefreshRequest, registered: RegisteredTable, why: Why, to_do: ToDo) -> RefreshPlan:
    """Plan a refresh with every source bound to its current version. The sources of a stream were bound when it started.

    :param why: see :func:`~airflow_dynamic_tables.services.refresh.requests.action_of`.
    :raises SchemaEvolutionError: if the definition's partition keys differ from the table's and cannot be changed.
    :raises DynamicTableError: see :func:`~airflow_dynamic_tables.services.refresh.binding.bind_inputs`.
    """
    layout, rebuild = _fitting_layout(request, registered)
    if request.batch is not None:
        planned = _batch_plan(request, request.batch, write.stage, registered.current(), why)
    else:
        planned = _refresh_plan(write, request, registered, why, to_do)
    sink = write.staged.sink()
    limits = registered.lake_table.limits
    return replace(planned, layout=layout, rebuild=rebuild, sink=sink and tuned(sink, request.table.options), limits=limits)


def _fitting_layout(request: RefreshRequest, registered: RegisteredTable) -> tuple[TableLayout | None, Rebuild]:
    """Return the table layout that the rows must fit, ``None`` before the first commit, and what the refresh may rebuild.

    :raises SchemaEvolutionError: if the definition's partition keys differ from the table's and cannot be changed.
    """
    layout = registered.loaded.layout()
    if layout is None:
        return None, Rebuild.NOTHING
    rebuild = layout.rebuild if request.full_refresh else Rebuild.NOTHING
    layout.check_keys(request.table.identifier, request.table.partition_keys, rebuild)
    return layout, rebuild


def _refresh_plan(write: StagedWrite, request: RefreshRequest, registered: RegisteredTable, why: Why, to_do: ToDo) -> RefreshPlan:
    workspace, stage = write.workspace, write.stage
    current, entry = registered.current(), registered.entry
    action, reason = why
    bound = to_do.bound_since(current) or bind_inputs(workspace, request, stage.partitions, to_do.growth)
    fresh = fresh_then(workspace, registered, request, stage.partitions, has_watermark=to_do.growth is not None)
    forgotten = forgotten_comments(entry) if current is not None and isinstance(entry, CatalogDynamicTable) else {}
    allowed = workspace.settings.allowed
    planned = bound.plan(request.token, request.schedule_time, (action, reason.text), allowed, stage.location)
    return replace(
        planned,
        statement=statement(bound.table.expanded_query, stage.partitions),
        partitions=stage.partitions,
        comments={**forgotten, **bound.table.comments},
        base=current.snapshot if current is not None else None,
        recipe=bound.recipe,
        data_timestamp=fresh,
        # A version with an unknown number has no token.
        stands_on=Base(current.token, current.data_timestamp) if current is not None and current.token else None,
    )


def _batch_plan(request: RefreshRequest, batch: StreamBatch, stage: Stage, current: Version | None, why: Why) -> RefreshPlan:
    """Return the plan of a stream batch, derived from the plan of the stream, whose sources were bound when it started."""
    action, reason = why
    return replace(
        batch.plan,
        token=request.token,
        stage=stage.location,
        schedule_time=request.schedule_time,
        data_timestamp=request.schedule_time,
        action=action,
        reason=reason.text,
        base=current.snapshot if current is not None else None,
        stream=None,
        position=batch.position,
        follows=batch.follows,
    )
