"""Sweeping: what no refresh and no callback cleaned up."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConflictError, DynamicTableError
from airflow_dynamic_tables.ledger.base import Stage, StageState
from airflow_dynamic_tables.services.maintenance.compacting import compact
from airflow_dynamic_tables.services.maintenance.expiring import Expired, expire
from airflow_dynamic_tables.services.stages.leases import is_abandoned
from airflow_dynamic_tables.services.stages.quarantine import why_over
from airflow_dynamic_tables.services.stages.settling import settle, staged_table
from airflow_dynamic_tables.services.workspace import Workspace

KEEP_HISTORY = timedelta(days=90)
"""How long finished refreshes stay in the ledger."""

ZOMBIE_WINDOW = timedelta(days=2)
"""How long after a stage was aborted a job that outlived it may still write into its folder."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SweepReport:
    """Tokens of stages that were aborted, turned out to be committed, or were left alone.

    ``compacted_files`` counts small files that became few others, ``expired`` snapshots that were forgotten, ``deleted_files``
    and ``deleted_bytes`` what nothing referred to any more, ``pruned`` ledger rows. ``failed`` are the tables that could not be
    tidied up; the log says why.
    """

    aborted: tuple[str, ...] = ()
    completed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    compacted_files: int = 0
    expired: int = 0
    deleted_files: int = 0
    deleted_bytes: int = 0
    pruned: int = 0
    failed: tuple[str, ...] = ()


def sweep(workspace: Workspace) -> SweepReport:
    """Settle every stage whose owner is gone, make few files of many small ones, forget old versions, delete what nothing needs,
    and prune the history.

    Living stages are not touched, nor those in quarantine that somebody may still publish.
    """
    now = workspace.now()
    ended: dict[StageState | None, list[str]] = {StageState.ABORTED: [], StageState.COMMITTED: [], None: []}
    for stage in workspace.ledger.list_stages():
        ended[_ended(workspace, stage)].append(stage.token)

    for stage in workspace.ledger.list_stages(states=(StageState.ABORTED,)):
        if stage.opened_at > now - ZOMBIE_WINDOW:
            _delete_again(workspace, stage)

    compacted = {table: _compacted(workspace, table) for table in workspace.ledger.tables()}
    expired = {table: _expired(workspace, table) for table in compacted}
    tidied = [went for went in expired.values() if went is not None]
    return SweepReport(
        aborted=tuple(ended[StageState.ABORTED]),
        completed=tuple(ended[StageState.COMMITTED]),
        kept=tuple(ended[None]),
        compacted_files=sum(files or 0 for files in compacted.values()),
        expired=sum(went.snapshots for went in tidied),
        deleted_files=sum(went.files for went in tidied),
        deleted_bytes=sum(went.bytes for went in tidied),
        pruned=workspace.ledger.prune(now - KEEP_HISTORY),
        failed=tuple(str(table) for table, went in expired.items() if went is None or compacted[table] is None),
    )


def end_abandoned(workspace: Workspace, stage: Stage) -> StageState | None:
    """Settle a stage whose owner is gone, or that is in quarantine while newer data are there.

    :return: how it ended, COMMITTED or ABORTED; ``None`` when it did not.
    :raises DynamicTableError: when that cannot be done now, OSError when its files cannot be deleted.
    """
    reason = why_over(workspace, stage) if stage.state is StageState.QUARANTINED else _why_abandoned(workspace, stage)
    state = settle(workspace, stage, reason) if reason else None
    return state if state in (StageState.COMMITTED, StageState.ABORTED) else None


def _ended(workspace: Workspace, stage: Stage) -> StageState | None:
    """As :func:`end_abandoned`; what fails is left to the next sweep."""
    try:
        return end_abandoned(workspace, stage)
    except (DynamicTableError, OSError):
        log.exception("Could not settle stage %s of %s; the next sweep tries again.", stage.token, stage.table)
        return None


def _why_abandoned(workspace: Workspace, stage: Stage) -> str | None:
    return "abandoned: its owner is gone" if is_abandoned(workspace, stage) else None


def _delete_again(workspace: Workspace, stage: Stage) -> None:
    try:
        staged_table(workspace, stage).abort(stage.location)
    except (DynamicTableError, OSError):
        log.exception("Could not delete what is left of stage %s of %s.", stage.token, stage.table)


def _compacted(workspace: Workspace, table: TableIdentifier) -> int | None:
    """How many small files of a table became few; ``None`` when that failed: it keeps nothing else from being tidied up."""
    try:
        return compact(workspace, table).files
    except CatalogUnavailableError as error:
        log.warning("%s is not compacted; the next sweep tries again: %s", table, error)
        return None
    except Exception:
        log.exception("Could not compact %s; the next sweep tries again.", table)
        return None


def _expired(workspace: Workspace, table: TableIdentifier) -> Expired | None:
    """What went of a table; ``None`` when that failed: no table may keep another from being tidied up."""
    try:
        return expire(workspace, table)
    except ConflictError as error:
        log.info("%s", error)
        return Expired()
    except CatalogUnavailableError as error:
        log.warning("%s is not tidied up; the next sweep tries again: %s", table, error)
        return None
    except Exception:
        log.exception("Could not tidy up %s; the next sweep tries again.", table)
        return None
