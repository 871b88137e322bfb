"""From a stage that the job has written to a version of the table: for the refresh itself, and for whoever publishes it later."""

from __future__ import annotations

from collections.abc import Callable

from airflow_dynamic_tables.clients.files import read_text
from airflow_dynamic_tables.core.refresh.plan import PLAN_FILE, RefreshPlan, RefreshResult
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.exceptions import StageRejectedError
from airflow_dynamic_tables.formats.base import CommitRequest, StagedTable
from airflow_dynamic_tables.ledger.base import Stage


def read_plan(stage: Stage) -> RefreshPlan:
    """The plan beside a stage.

    :raises StageRejectedError: when it is missing or damaged.
    """
    try:
        return RefreshPlan.from_json(read_text(f"{stage.location}/{PLAN_FILE}"))
    except (FileNotFoundError, ValueError) as error:
        raise StageRejectedError(f"The plan of stage {stage.token} of {stage.table} is missing or damaged: {error}") from error


def read_result(planned: RefreshPlan) -> RefreshResult:
    """What the job says it wrote.

    :raises StageRejectedError: when it says nothing, or nothing whole.
    """
    try:
        return RefreshResult.from_json(read_text(planned.result_location))
    except FileNotFoundError as error:
        raise StageRejectedError(f"The job of {planned.identifier} ended without a result; nothing was committed.") from error
    except (OSError, ValueError) as error:
        raise StageRejectedError(f"The result of the job of {planned.identifier} is damaged: {error}") from error


def versions_read(planned: RefreshPlan) -> dict[str, str]:
    """The version of every table that the query reads."""
    return {source.identifier: source.version for source in planned.sources}


def land(staged: StagedTable, planned: RefreshPlan, result: RefreshResult, before_publish: Callable[[], None]) -> Version:
    """Make the stage visible in one step; see :meth:`~airflow_dynamic_tables.formats.base.StagedTable.commit`."""
    request = CommitRequest(
        result=result,
        data_timestamp=planned.data_timestamp,
        sources=versions_read(planned),
        partition_keys=planned.partition_keys,
        partitions=planned.partitions,
        comment=planned.comment,
    )
    return staged.commit(request, before_publish)
