"""The task ``decide`` of tables whose refreshes may be quarantined."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, Context
from airflow.sdk import exceptions as airflow_exceptions
from airflow.sdk.execution_time.hitl import upsert_hitl_detail

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, CommitUnknownError, DynamicTableError
from airflow_dynamic_tables.hooks.dynamic_table_catalog import DEFAULT_CONNECTION, DynamicTableCatalogHook
from airflow_dynamic_tables.ledger.base import Stage, StageState
from airflow_dynamic_tables.operators.lineage.emitting import EmitsLineage
from airflow_dynamic_tables.operators.reporting import ReportsCommits, is_reported, report_commit, skip
from airflow_dynamic_tables.operators.run_arguments import owner_of
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from airflow_dynamic_tables.services.writes.quarantine import publish, reject, stage_of_owner
from airflow_dynamic_tables.services.writes.quarantine_question import question
from airflow_dynamic_tables.services.writes.settling import reconcile, recorded_refresh
from airflow_dynamic_tables.triggers.quarantine import QuarantineTrigger

PUBLISH, ABORT = "Publish", "Abort"

_ANSWERS_RESUME = hasattr(airflow_exceptions, "TaskAwaitingInput")
"""Whether an answer resumes a deferred task, as in Airflow 3.3 and later."""

_CURABLE = (CatalogUnavailableError, CommitUnknownError)
"""Errors after which another try may find the decision carried out."""


class DecideOperator(ReportsCommits, EmitsLineage):
    """After a failed refresh, ask whether its quarantined stage is to be published, and carry out the answer.

    The task is deferred until a user answers under *Required Actions*, or the stage is published or aborted by other means. It
    succeeds, with an asset event, if the stage was committed, and is skipped if Airflow already has that event. It fails if the
    stage was aborted, or if the refresh failed for another reason, so that there is nothing to decide.

    :param poll_interval: seconds between two checks of the stage.
    :param most_partition_events: maximum number of partitions with an asset event each; 0: only the table has one.
    """

    ui_color = "#fbe9c6"

    def __init__(
        self,
        *,
        table: TableIdentifier,
        refresh_task_id: str = "refresh",
        catalog_conn_id: str = DEFAULT_CONNECTION,
        catalogs_file: Path | None = None,
        poll_interval: float = 30,
        most_partition_events: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.refresh_task_id = refresh_task_id
        self.catalog_conn_id = catalog_conn_id
        self.catalogs_file = catalogs_file
        self.poll_interval = poll_interval
        self.most_partition_events = most_partition_events

    def execute(self, context: Context) -> dict[str, Any]:
        """Ask for a decision, unless there is one.

        :return: version, rows, partitions, schedule time and token (``refresh``) of the commit, as in its asset event.
        """
        return self._decide_or_fail(context, {})

    def resume(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out the decision.

        :param event: the answer, or the event of :class:`QuarantineTrigger`.
        """
        return self._decide_or_fail(context, event)

    def _decide_or_fail(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        try:
            self._settings = DynamicTableCatalogHook(self.catalog_conn_id, self.catalogs_file).settings()
            with open_workspace(self._settings) as workspace:
                return self._decide(context, workspace, event)
        except DynamicTableError as error:
            kind = AirflowException if isinstance(error, _CURABLE) else AirflowFailException
            raise kind(str(error)) from None

    def _decide(self, context: Context, workspace: Workspace, event: Mapping[str, Any]) -> dict[str, Any]:
        ti = context["ti"]
        stage = stage_of_owner(workspace, self.table, owner_of(ti.dag_id, ti.run_id, self.refresh_task_id))
        if stage is None:
            raise AirflowFailException(f"Nothing is in quarantine; see why {self.refresh_task_id} failed.")
        answer = event.get("chosen_options") or ()
        if ABORT in answer:
            user = (event.get("responded_by_user") or {}).get("name") or "a user"
            reject(workspace, stage.token, f"aborted by {user} in Airflow")
        version = publish(workspace, stage.token) if PUBLISH in answer else reconcile(workspace, stage.token)
        if version is not None:
            refresh = recorded_refresh(workspace, version)
            if stage.state is StageState.COMMITTED and refresh is not None and is_reported(refresh):
                skip(context, f"Airflow has an asset event of version {version.number} of {self.table} already.")
            self.note_commits(version.token)
            return report_commit(context, self, version, refresh, refresh.schedule_time if refresh else None)
        refresh = workspace.ledger.get_refresh(stage.token)
        if stage.state is StageState.QUARANTINED and not answer:
            self.log.info("%s", refresh.error if refresh else "")
            self._ask(context, stage, question(workspace, stage))
        reason = refresh.error if refresh else "the reason is not known"
        raise AirflowFailException(f"Nothing of {self.table} was published: {reason}")

    def _ask(self, context: Context, stage: Stage, body: str) -> NoReturn:
        if _ANSWERS_RESUME:
            upsert_hitl_detail(
                ti_id=context["ti"].id, options=[PUBLISH, ABORT], subject=f"Publish {self.table}?", body=body, params={}
            )
        file = str(self.catalogs_file) if self.catalogs_file else None
        trigger = QuarantineTrigger(stage.token, self.catalog_conn_id, file, self.poll_interval)
        self.defer(trigger=trigger, method_name=self.resume.__name__)
