"""Commit of a stage that a job has written, for refreshes and for publishing from quarantine."""

from __future__ import annotations

import logging
from collections.abc import Callable

from airflow_dynamic_tables.clients.files import exists, read_text
from airflow_dynamic_tables.core.partition_transforms import plain_keys
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import PLAN_FILE, RefreshPlan, RefreshResult
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, StageRejectedError
from airflow_dynamic_tables.formats.base import CommitRequest, StagedTable
from airflow_dynamic_tables.ledger.base import Stage
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace

log = logging.getLogger(__name__)

_DAMAGED = (FileNotFoundError, IsADirectoryError, ValueError)
"""Errors of reading a missing or incomplete file; other errors mean that the storage is unavailable."""


def read_plan(stage: Stage) -> RefreshPlan:
    """Read the plan stored beside a stage.

    :raises StageRejectedError: if it is missing or damaged.
    :raises CatalogUnavailableError: if its storage cannot be read.
    """
    what = f"The plan of stage {stage.token} of {stage.table}"
    try:
        return RefreshPlan.from_json(read_text(f"{stage.location}/{PLAN_FILE}"))
    except _DAMAGED as error:
        todo = f"run dynamic-tables abort {stage.token}, and refresh again"
        raise StageRejectedError(f"{what} is missing or damaged: {error}; {todo}.") from error
    except OSError as error:
        raise _unreadable(what, error) from error


def read_result(planned: RefreshPlan) -> RefreshResult:
    """Read the result that the job has written.

    :raises StageRejectedError: if it is missing or damaged.
    :raises CatalogUnavailableError: if its storage cannot be read.
    """
    what = f"The result of the job of {planned.identifier}"
    try:
        return RefreshResult.from_json(read_text(planned.result_location))
    except FileNotFoundError as error:
        if not exists(planned.stage):  # the plan is gone with it
            gone = f"The stage of {planned.identifier} is gone ({planned.stage}): it was deleted while the job ran"
            raise StageRejectedError(f"{gone}; nothing was committed, so refresh again.") from error
        raise StageRejectedError(f"The job of {planned.identifier} ended without a result; nothing was committed.") from error
    except _DAMAGED as error:
        raise StageRejectedError(f"{what} is damaged: {error}; nothing was committed, so refresh again.") from error
    except OSError as error:
        raise _unreadable(what, error) from error


def _unreadable(what: str, error: OSError) -> CatalogUnavailableError:
    return CatalogUnavailableError(f"{what} cannot be read: {error.strerror or error}; try again when its storage answers.")


def versions_read(planned: RefreshPlan) -> dict[str, str]:
    """Return the version of every table that the query reads."""
    return {source.identifier: source.version for source in planned.sources}


def publish_stage(
    staged: StagedTable, planned: RefreshPlan, result: RefreshResult, before_publish: Callable[[], None]
) -> Version:
    """Commit the stage; see :meth:`~airflow_dynamic_tables.formats.base.StagedTable.commit`."""
    of_rows = planned.follows is not None and plain_keys(planned.partition_keys)
    request = CommitRequest(
        result=result,
        data_timestamp=planned.data_timestamp,
        sources=versions_read(planned),
        partition_keys=planned.partition_keys,
        partitions=PartitionSet.of(result.partitions) if of_rows else planned.partitions,
        comment=planned.comment,
        rebuild=planned.rebuild,
        position=planned.position,
        follows=planned.follows,
        adds_to=planned.merge.current.version if planned.merge is not None and planned.merge.only_adds else None,
        stage=planned.stage,
        base=planned.stands_on,
    )
    return staged.commit(request, before_publish)


def record_state(workspace: Workspace, registered: RegisteredTable, planned: RefreshPlan, version: Version) -> None:
    """Record the table's state after a commit, for detecting changes by other engines; without it no refresh is skipped."""
    try:
        left = registered.reload().read().state
        if left is not None and left.version == version.snapshot:
            workspace.ledger.record_source_states(registered.identifier, planned.token, {planned.identifier: left})
    except Exception:
        log.exception("The state of %s could not be recorded; its next refresh is not skipped.", planned.identifier)
