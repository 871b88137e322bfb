"""The methods by which Airflow's OpenLineage provider gets the lineage of a task. Without the extra it calls none of them."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.services.lineage import RefreshLineage, refresh_lineages, unchanged_token
from airflow_dynamic_tables.services.outcomes import Ending, Operation, WriteOutcome
from airflow_dynamic_tables.services.refresh.requests import Skipped
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace

if TYPE_CHECKING:
    from airflow_dynamic_tables.operators.lineage.facets import TaskLineage


class EmitsLineage(BaseOperator):
    """An operator whose commits are outputs in OpenLineage: one COMPLETE event for each, also if a task has several.

    The last commit is in the event of the task. The others, oldest first, have events of their own, whose parent run is the task.
    A task that fails has no outputs: the events of its commits are sent with those of their assets, by the maintenance DAG.
    ``execute`` only notes tokens. The provider calls these methods in a process of its own, which reads ledger and catalogs.
    """

    _settings: WorkspaceSettings | None = None
    _wrote: tuple[str, ...] = ()
    _tried: str | None = None
    _former: TableIdentifier | None = None
    _unchanged: tuple[TableIdentifier, Skipped] | None = None

    @property
    def lineage_query(self) -> str | None:
        """The query of the task, if it has one."""
        return None

    def noting(self, workspace: Workspace) -> Workspace:
        """Return the workspace with a listener that notes the writes of this task."""
        return workspace.with_listener(self._note)

    def note_commits(self, *tokens: str) -> None:
        """Note commits whose events are those of this task, although it may not have made them."""
        self._wrote = (*self._wrote, *(token for token in tokens if token not in self._wrote))

    def note_skip(self, table: TableIdentifier, skipped: Skipped) -> None:
        """Note that nothing was written."""
        self._unchanged = (table, skipped)

    def _note(self, outcome: WriteOutcome) -> None:
        if outcome.operation is Operation.RENAME:
            self._former = outcome.table if outcome.ending is Ending.RELEASED else None
        elif outcome.ending is Ending.COMMITTED and outcome.version is not None:
            self.note_commits(outcome.version.token)
        elif outcome.operation is not Operation.HOLD:
            self._tried = outcome.token

    def get_openlineage_facets_on_start(self) -> TaskLineage:
        """Return the query: which versions are read is not known yet."""
        lineage: TaskLineage = _facets().of_query(self.lineage_query)
        return lineage

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> TaskLineage:
        """Return the lineage of the last commit, after emitting the events of the others."""
        facets, former = _facets(), self._former
        found = self._refreshes(*self._wrote) or self._refreshes(self._token_without_commit())
        for commit in found[:-1]:
            facets.emit_commit(commit, task_instance, former)
            former = None
        lineage: TaskLineage
        if found:
            lineage = facets.of_refresh(found[-1], former)
        elif self._unchanged is not None:
            lineage = facets.of_skip(*self._unchanged, self.lineage_query)
        else:
            lineage = facets.of_query(self.lineage_query)
        return lineage

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> TaskLineage:  # noqa: ARG002
        """Return what the failed refresh read; the provider adds the error."""
        tried = next((one for one in self._refreshes(self._tried) if one.output is None), None)
        lineage: TaskLineage = _facets().of_refresh(tried) if tried else _facets().of_query(self.lineage_query)
        return lineage

    def _refreshes(self, *tokens: str | None) -> list[RefreshLineage]:
        """Return the lineage of refreshes that the ledger has."""
        if self._settings is None or not any(tokens):
            return []
        with open_workspace(self._settings) as workspace:
            return refresh_lineages(workspace, [token for token in tokens if token is not None], self.lineage_query)

    def _token_without_commit(self) -> str | None:
        """Return the token of the refresh that wrote nothing: because nothing changed, or as it only compared rows."""
        if self._settings is None or self._unchanged is None or self._unchanged[1].up_to is None:
            return self._tried if self._unchanged is None else None
        with open_workspace(self._settings) as workspace:
            return unchanged_token(workspace, self._unchanged[0])


def _facets() -> ModuleType:
    from airflow_dynamic_tables.operators.lineage import facets

    return facets
