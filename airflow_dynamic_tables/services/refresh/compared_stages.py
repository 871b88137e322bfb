"""Stages whose rows are compared and never published. They yield to all other writes of their table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import uuid4

from airflow_dynamic_tables.clients.files import write_text
from airflow_dynamic_tables.core.partition_dates import normalised
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult
from airflow_dynamic_tables.exceptions import ConflictError, JobFailedError
from airflow_dynamic_tables.ledger.base import Stage, StageState
from airflow_dynamic_tables.services.outcomes import Operation
from airflow_dynamic_tables.services.refresh.running import make_folder
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace
from airflow_dynamic_tables.services.writes.leases import VERIFICATION
from airflow_dynamic_tables.services.writes.protocol import new_stage, staged_write
from airflow_dynamic_tables.services.writes.publishing import read_result

Submit = Callable[[RefreshPlan], object]
"""Runs the job of a plan to its end and raises if it failed."""


@dataclass(frozen=True, slots=True)
class ComparedStage:
    """An open stage of some partitions, and the jobs that write below it."""

    workspace: Workspace
    stage: Stage
    submit: Submit

    def run(self, planned: RefreshPlan) -> RefreshResult:
        """Run the job of a plan and return its result.

        :raises ConflictError: if the stage was given up for a refresh.
        """
        write_text(planned.plan_location, planned.to_json(), private=self.workspace.settings.private_files)
        try:
            self.submit(planned)
        except JobFailedError:
            self._check_held()
            raise
        self._check_held()
        return read_result(planned)

    def _check_held(self) -> None:
        stage = self.workspace.ledger.get_stage(self.stage.token)
        if stage is None or stage.state is not StageState.OPEN:
            raise ConflictError(f"A refresh of {self.stage.table} began while its rows were compared; try again.")


@contextmanager
def compared_stage(
    workspace: Workspace,
    registered: RegisteredTable,
    partitions: PartitionSet,
    submit: Submit,
    on_lost: Callable[[], None] | None = None,
) -> Iterator[ComparedStage]:
    """Open a stage that is deleted at the end of the body, whatever happens.

    :param on_lost: called from another thread if a refresh takes precedence; it should stop the job.
    :raises ConflictError: if the partitions are being refreshed.
    """
    token = f"verification-{uuid4()}"
    staged = registered.lake_table.stage(token)
    opened = new_stage(workspace, registered, token, VERIFICATION, staged.begin())
    stage = replace(opened, partitions=normalised(partitions, registered.columns))
    with staged_write(workspace, Operation.VERIFICATION, stage, staged, on_lost):
        registered.reload()
        make_folder(workspace, stage, registered)
        yield ComparedStage(workspace, stage, submit)
