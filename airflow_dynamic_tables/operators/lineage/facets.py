"""Conversion of the lineage of refreshes to datasets, facets and events of OpenLineage. It needs the extra ``openlineage``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from airflow.providers.openlineage import conf
from airflow.providers.openlineage.api.core import emit
from airflow.providers.openlineage.extractors import OperatorLineage
from airflow.providers.openlineage.plugins import macros
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import DatasetFacet, JobFacet, OutputDatasetFacet, RunFacet
from openlineage.client.generated.column_lineage_dataset import ColumnLineageDatasetFacet, Fields, InputField, Transformation
from openlineage.client.generated.data_quality_assertions_dataset import Assertion, DataQualityAssertionsDatasetFacet
from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
from openlineage.client.generated.job_type_job import JobTypeJobFacet
from openlineage.client.generated.lifecycle_state_change_dataset import (
    LifecycleStateChange,
    LifecycleStateChangeDatasetFacet,
    PreviousIdentifier,
)
from openlineage.client.generated.nominal_time_run import NominalTimeRunFacet
from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet
from openlineage.client.generated.parent_run import Job as ParentJob
from openlineage.client.generated.parent_run import ParentRunFacet, Root, RootJob, RootRun
from openlineage.client.generated.parent_run import Run as ParentRun
from openlineage.client.generated.schema_dataset import SchemaDatasetFacet, SchemaDatasetFacetFields
from openlineage.client.generated.sql_job import SQLJobFacet
from openlineage.client.generated.symlinks_dataset import Identifier, SymlinksDatasetFacet

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.lineage import asset_dataset
from airflow_dynamic_tables.core.refresh.expectations import Action
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.operators.lineage.refresh_facet import NAME, DynamicTableRefreshRunFacet, refresh_facet
from airflow_dynamic_tables.services.lineage import Dataset, RefreshLineage
from airflow_dynamic_tables.services.refresh.requests import Skipped

TaskLineage = OperatorLineage[Any, Any]

_DIALECT = "spark"

_LIFECYCLE = {RefreshAction.INITIALIZE: LifecycleStateChange.CREATE, RefreshAction.FULL: LifecycleStateChange.OVERWRITE}
"""Actions that change the complete dataset."""


def of_query(query: str | None) -> TaskLineage:
    """Return the lineage of a task of which only the query is known."""
    return OperatorLineage(job_facets=_job_facets(query))


def of_skip(table: TableIdentifier, skipped: Skipped, query: str | None) -> TaskLineage:
    """Return the lineage of a task that was skipped."""
    reason = skipped.reason
    facet = DynamicTableRefreshRunFacet(str(table), str(RefreshAction.SKIP), reason.text, str(reason.code))
    return OperatorLineage(run_facets={NAME: facet}, job_facets=_job_facets(query))


def of_refresh(lineage: RefreshLineage, former: TableIdentifier | None = None) -> TaskLineage:
    """Return the lineage of a refresh.

    :param former: the name of the table before the refresh renamed it.
    """
    output = lineage.output
    return OperatorLineage(
        inputs=[_input(dataset) for dataset in lineage.inputs.values()],
        outputs=[_output(lineage, output, former)] if output is not None else [],
        run_facets=_run_facets(lineage),
        job_facets=_job_facets(lineage.query),
    )


def emit_commit(lineage: RefreshLineage, task_instance: Any, former: TableIdentifier | None = None) -> None:
    """Emit the COMPLETE event of a commit that is not the last one of its task: a run of its own, whose parent is the task.

    The id of the run is that of the commit, so that an event that is sent twice is of the same run.
    """
    refresh = lineage.refresh
    of_task = of_refresh(lineage, former)
    parent = ParentRunFacet(
        run=ParentRun(macros.lineage_run_id(task_instance)),
        job=ParentJob(conf.namespace(), macros.lineage_job_name(task_instance)),
        root=Root(
            RootRun(macros.lineage_root_run_id(task_instance)),
            RootJob(macros.lineage_root_job_namespace(task_instance), macros.lineage_root_job_name(task_instance)),
        ),
    )
    job = f"{macros.lineage_job_name(task_instance)}.commit"
    job_type = JobTypeJobFacet(processingType="BATCH", integration="AIRFLOW", jobType="COMMIT")
    emit(
        RunEvent(
            eventType=RunState.COMPLETE,
            eventTime=_text(refresh.finished_at or refresh.started_at),
            run=Run(str(uuid5(NAMESPACE_URL, f"dynamic-table:{refresh.token}")), {**of_task.run_facets, "parent": parent}),
            job=Job(conf.namespace(), job, {**of_task.job_facets, "jobType": job_type}),
            inputs=of_task.inputs,
            outputs=of_task.outputs,
        )
    )


def _text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat()


def _job_facets(query: str | None) -> dict[str, JobFacet]:
    return {"sql": SQLJobFacet(query, dialect=_DIALECT)} if query else {}


def _run_facets(lineage: RefreshLineage) -> dict[str, RunFacet]:
    time = _text(lineage.refresh.schedule_time)
    return {"nominalTime": NominalTimeRunFacet(time), NAME: refresh_facet(lineage)}


def _input(dataset: Dataset) -> InputDataset:
    first = dataset.names[0]
    return InputDataset(first.namespace, first.name, facets=_facets(dataset))


def _output(lineage: RefreshLineage, output: Dataset, former: TableIdentifier | None) -> OutputDataset:
    first, refresh = output.names[0], lineage.refresh
    facets = _facets(output)
    if lineage.origins:
        facets["columnLineage"] = _column_lineage(lineage)
    if (change := _lifecycle(refresh.action, former)) is not None:
        facets["lifecycleStateChange"] = change
    if refresh.expectations:
        # The specification lists it for inputs. An expectation checks the rows that are written, which are no input.
        facets["dataQualityAssertions"] = _assertions(lineage)  # type: ignore[assignment]
    statistics: dict[str, OutputDatasetFacet] = {
        "outputStatistics": OutputStatisticsOutputDatasetFacet(rowCount=refresh.rows, size=refresh.bytes, fileCount=refresh.files)
    }
    return OutputDataset(first.namespace, first.name, facets=facets, outputFacets=statistics)


def _facets(dataset: Dataset) -> dict[str, DatasetFacet]:
    facets: dict[str, DatasetFacet] = {}
    if dataset.columns:
        facets["schema"] = SchemaDatasetFacet(
            [SchemaDatasetFacetFields(column.name, column.type, column.comment) for column in dataset.columns]
        )
    if dataset.version is not None:
        facets["version"] = DatasetVersionDatasetFacet(dataset.version)
    if len(dataset.names) > 1:
        facets["symlinks"] = SymlinksDatasetFacet([Identifier(one.namespace, one.name, "TABLE") for one in dataset.names[1:]])
    return facets


def _column_lineage(lineage: RefreshLineage) -> ColumnLineageDatasetFacet:
    fields = {}
    for column, origins in lineage.origins.items():
        named = []
        for origin in origins:
            source = lineage.inputs[origin.table].names[0]
            how = Transformation("DIRECT", "IDENTITY" if origin.is_copy else "TRANSFORMATION")
            named.append(InputField(source.namespace, source.name, origin.column, [how]))
        fields[column] = Fields(named)
    return ColumnLineageDatasetFacet(fields)


def _lifecycle(action: RefreshAction, former: TableIdentifier | None) -> LifecycleStateChangeDatasetFacet | None:
    if former is not None:
        name = asset_dataset(former)
        return LifecycleStateChangeDatasetFacet(LifecycleStateChange.RENAME, PreviousIdentifier(name.name, name.namespace))
    change = _LIFECYCLE.get(action)
    return LifecycleStateChangeDatasetFacet(change) if change is not None else None


def _assertions(lineage: RefreshLineage) -> DataQualityAssertionsDatasetFacet:
    return DataQualityAssertionsDatasetFacet(
        [
            Assertion(
                assertion=one.name,
                success=not one.violations,
                severity="warn" if one.action in (Action.WARN, Action.DROP) else "error",
                name=one.name,
                actual=str(one.violations),
                description=one.detail,
            )
            for one in lineage.refresh.expectations
        ]
    )
