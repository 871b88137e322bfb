"""Which tables a stream can keep fresh, and the plan by which its job runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from airflow_dynamic_tables.core.identifiers import TableIdentifier, quote
from airflow_dynamic_tables.core.plain import to_plain
from airflow_dynamic_tables.core.refresh.actions import RefreshAction
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, SourceBinding
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.refresh.spark_settings import decides_rows
from airflow_dynamic_tables.core.tables.formats import FORMATS, endless_format, streamed_formats
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.queries.editing import replace_tables
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.services.continuous.streams.sources import INSTEAD, stream_source
from airflow_dynamic_tables.services.queries.functions import bind_functions
from airflow_dynamic_tables.services.queries.views import inline_views
from airflow_dynamic_tables.services.refresh.binding import view_name
from airflow_dynamic_tables.services.workspace import Workspace

_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
"""The plan of a stream is of no schedule time; those of its batches are."""


def stream_plan(workspace: Workspace, table: DynamicTable, sources: Mapping[TableIdentifier, Source]) -> RefreshPlan:
    """The plan of a stream, but for where it runs and where its batches are written.

    :raises UnsupportedError: when a stream cannot keep this table fresh; says why, and what to do.
    """
    _check(workspace, table)
    inlined = inline_views(workspace, table, sources)
    bindings = tuple(
        stream_source(workspace, inlined, identifier, sources.get(identifier), view_name(inlined, number))
        for number, identifier in enumerate(inlined.upstream)
    )
    if not bindings:
        raise UnsupportedError(f"{table.identifier} reads no source, so there is nothing to stream; {INSTEAD}.")
    views = dict(zip(inlined.upstream, (quote(binding.view) for binding in bindings), strict=True))
    query, functions = bind_functions(workspace, replace_tables(inlined.expanded_query, views))
    traits = FORMATS[table.format]
    return RefreshPlan(
        token="",
        identifier=str(table.identifier),
        schedule_time=_NO_TIME,
        action=RefreshAction.ADD,
        reason="a stream",
        statement=inlined.expanded_query,
        query=query,
        stage="",
        file_format=traits.file_format,
        keys_in_files=traits.keys_in_files,
        partition_keys=table.partition_keys,
        sources=bindings,
        functions=functions,
        comment=table.comment,
        comments=table.comments,
        timezone=table.timezone,
        expectations=table.expectations,
        settings={name: value for name, value in table.spark.conf.items() if decides_rows(name)},
        allowed=workspace.settings.allowed,
    )


def recipe_of(plan: RefreshPlan) -> str:
    """A digest of all that decides what a stream returns: with another one, what it remembers is worth nothing."""
    decisive = replace(plan, comment=None, comments={}, statement="", sources=tuple(map(_untuned, plan.sources)))
    return hashlib.sha256(json.dumps(to_plain(decisive), sort_keys=True).encode()).hexdigest()


def _untuned(source: SourceBinding) -> SourceBinding:
    endless = endless_format(source.format)
    tuning = endless.tuning if endless is not None else ()
    return replace(source, options={option: value for option, value in source.options.items() if option not in tuning})


def _check(workspace: Workspace, table: DynamicTable) -> None:
    """Check what a stream cannot do for any query.

    :raises UnsupportedError: says what.
    """
    name = table.identifier
    if not workspace.table(name, table.format, table.atomicity).can_add:
        fitting = " or ".join(streamed_formats())
        raise UnsupportedError(f"{name}: a stream adds rows in one step, which format {table.format} cannot; make it {fitting}.")
    if unique := [expected.name for expected in table.expectations if expected.unique]:
        raise UnsupportedError(f"{name}: a stream sees one batch at a time, so it cannot check {unique[0]!r}; {INSTEAD}.")
    if table.row_counts:
        raise UnsupportedError(f"{name}: rows of a stream come in batches of any size, so 'row_count' says nothing; {INSTEAD}.")
