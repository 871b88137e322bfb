"""Recovery of an installation: availability check, schema upgrade, and ending of abandoned refreshes."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_dynamic_tables.catalog.values import JobState
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import DynamicTableError
from airflow_dynamic_tables.ledger.base import Stage, StageState
from airflow_dynamic_tables.services.lifecycle.renaming import finish_rename
from airflow_dynamic_tables.services.maintenance.sweeping import end_abandoned
from airflow_dynamic_tables.services.registered import look_up
from airflow_dynamic_tables.services.tables.undone import note_undone
from airflow_dynamic_tables.services.workspace import Workspace


def check_available(workspace: Workspace) -> None:
    """Connect to the ledger and to every catalog.

    :raises CatalogUnavailableError: if one is unavailable.
    """
    workspace.ledger.check()
    for name in workspace.catalogs.names():
        workspace.catalogs.get(name).list_databases()


def upgrade(workspace: Workspace) -> None:
    """Upgrade the databases of the ledger and of all catalogs to this release's schema; idempotent.

    :raises CatalogUnavailableError: if one is unavailable.
    """
    workspace.ledger.upgrade()
    workspace.catalogs.upgrade()


@dataclass(frozen=True, slots=True)
class Recovered:
    """The result of the recovery of a table.

    ``completed`` and ``aborted`` are the tokens of refreshes that have landed, and of those that certainly have not.
    ``renamed_from`` is the former name of a completed rename. ``left`` lists unfinished refreshes with the reason and the remedy.
    """

    table: TableIdentifier
    state: JobState
    completed: tuple[str, ...] = ()
    aborted: tuple[str, ...] = ()
    renamed_from: str = ""
    left: tuple[str, ...] = ()


def recover(workspace: Workspace, identifier: TableIdentifier) -> Recovered:
    """Complete a rename, and end every refresh of a table whose owner is dead. Idempotent; live refreshes are not touched.

    The next refresh and the maintenance do the same; this does not wait for them.

    :raises TableNotFoundError: if the catalog has no such dynamic table.
    :raises ConflictError: see :func:`~airflow_dynamic_tables.services.lifecycle.renaming.finish_rename`.
    """
    registered = look_up(workspace, identifier)
    handler = registered.handler
    if handler.renamed_from:
        finish_rename(workspace, identifier)
    ended: dict[StageState, list[str]] = {StageState.COMMITTED: [], StageState.ABORTED: []}
    left = []
    for stage in workspace.ledger.list_stages(identifier):
        try:
            state = end_abandoned(workspace, stage)
        except (DynamicTableError, OSError) as error:
            left.append(f"Refresh {stage.token} cannot be ended now: {error}")
            continue
        if state is None:
            left.append(_why_left(stage))
        else:
            ended[state].append(stage.token)
    note_undone(workspace, registered)
    completed, aborted = (tuple(tokens) for tokens in ended.values())
    return Recovered(identifier, handler.job_state, completed, aborted, handler.renamed_from, tuple(left))


def _why_left(stage: Stage) -> str:
    if stage.state is StageState.QUARANTINED:
        todo = f"dynamic-tables publish {stage.token}, or dynamic-tables abort {stage.token}"
        return f"Refresh {stage.token} is in quarantine; decide over it: {todo}."
    return (
        f"Refresh {stage.token} of {stage.owner} is at work since {stage.opened_at.isoformat()}; if it is not, it can be ended "
        f"after {stage.lease_until.isoformat()}."
    )
