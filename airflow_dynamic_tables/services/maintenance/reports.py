"""Reports: whoever scheduled a refresh hears of its version, also when the refresh died before it could tell."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.ledger.base import Refresh
from airflow_dynamic_tables.services.workspace import Workspace

REPORT_WINDOW = timedelta(days=7)
"""How long after a commit its report is made up for; after that it is no news, and the scheduler may have forgotten the first."""

CLOCK_MARGIN = timedelta(days=1)
"""How far the clock of the scheduler may be behind that of the worker which committed."""

Reported = Callable[[TableIdentifier, datetime], Collection[str]]
"""Tokens of which the scheduler has a report, of one table and since a time."""


def missing_reports(workspace: Workspace, reported: Reported, is_over: Callable[[str], bool]) -> list[Refresh]:
    """Refreshes whose version the scheduler has not heard of and will not hear of by themselves, the oldest first.

    What the scheduler has is the truth, and the ledger only remembers what need not be asked again. So a report that is made of
    these comes exactly once, provided that the scheduler refuses one of work that is over, and that one process at a time asks.

    :param is_over: whether the work of an owner (see :class:`~airflow_dynamic_tables.ledger.base.Stage`) came to its end, so that
        the scheduler takes no report from it any more; False also when the scheduler does not know it.
    """
    due = workspace.ledger.list_due_reports(workspace.now() - REPORT_WINDOW)
    ended = [refresh for refresh in _unreported(workspace, due, reported) if _is_over(workspace, refresh, is_over)]
    # Again: it may have told after the first look, and before it came to its end.
    return sorted(_unreported(workspace, ended, reported), key=lambda refresh: refresh.started_at)


def _unreported(workspace: Workspace, refreshes: Sequence[Refresh], reported: Reported) -> list[Refresh]:
    """Those of which the scheduler has no report; the ledger remembers the others."""
    unreported: list[Refresh] = []
    for table, group in groupby(sorted(refreshes, key=lambda refresh: refresh.table), key=lambda refresh: refresh.table):
        of_table = list(group)
        known = reported(table, min(refresh.started_at for refresh in of_table) - CLOCK_MARGIN)
        workspace.ledger.mark_reported([refresh.token for refresh in of_table if refresh.token in known])
        unreported += [refresh for refresh in of_table if refresh.token not in known]
    return unreported


def _is_over(workspace: Workspace, refresh: Refresh, is_over: Callable[[str], bool]) -> bool:
    stage = workspace.ledger.get_stage(refresh.token)
    return stage is not None and is_over(stage.owner)
