"""The question whether a quarantined stage is published or aborted. It reads staged rows, and so imports Arrow."""

from __future__ import annotations

import logging
import re

from airflow_dynamic_tables.core.refresh.expectations import Action
from airflow_dynamic_tables.formats.data_files import staged_rows
from airflow_dynamic_tables.ledger.base import Stage
from airflow_dynamic_tables.services.workspace import Workspace
from airflow_dynamic_tables.services.writes.publishing import read_plan, read_result

log = logging.getLogger(__name__)

_ROWS_SHOWN = 5
_LONGEST_CELL = 60
_MARKDOWN = re.compile(r"[!-/:-@\[-`{-~]")
"""Characters with a possible meaning in Markdown; each of them may be escaped with a backslash."""


def question(workspace: Workspace, stage: Stage) -> str:
    """Return a Markdown message for deciding on a quarantined stage.

    It contains the failed expectations, the partitions, their current row counts, and some of the staged rows. Unreadable parts
    are omitted, because the question must be asked in any case.
    """
    refresh = workspace.ledger.get_refresh(stage.token)
    outcomes = refresh.expectations if refresh is not None else ()
    tripped = [_escaped(str(outcome)) for outcome in outcomes if outcome.violations and outcome.action == Action.QUARANTINE]
    parts = ["; ".join(tripped), f"It replaces {_escaped(stage.partitions.brief)}."]
    for read in (_rows_there, _rows_waiting):
        try:
            parts.append(read(workspace, stage))
        except Exception:  # a decision is possible without this part
            log.exception("Stage %s of %s cannot be described completely.", stage.token, stage.table)
    decide = "*Publish* commits the new rows. *Abort* deletes them, and the table stays as it is."
    return "\n\n".join((*filter(None, parts), decide))


def _rows_there(workspace: Workspace, stage: Stage) -> str:
    """Describe how many rows the current version has in the partitions that a stage replaces."""
    table = workspace.table(stage.table, stage.format)
    current, counts = table.current(), table.count(stage.partitions)
    if current is None:
        return "The table has no version yet."
    if counts is None:
        return f"The current version is {current.number}."
    among = "" if stage.partitions.is_whole else f" in {counts.held} of these {len(stage.partitions)} partitions"
    return f"The current version, {current.number}, has {counts.replaced:,} rows{among}; {counts.total:,} rows in all."


def _rows_waiting(_workspace: Workspace, stage: Stage) -> str:
    """Describe how many rows a stage has, with the first of them if they are in a small file."""
    planned = read_plan(stage)
    result = read_result(planned)
    counted = f"{result.rows:,} rows are in quarantine"
    rows = staged_rows(planned, result, _ROWS_SHOWN)
    if not rows:
        return f"{counted}."
    lines = (list(rows[0]), ["---"] * len(rows[0]), *(row.values() for row in rows))
    table = "\n".join(f"| {' | '.join(_cell(value) for value in line)} |" for line in lines)
    return f"{counted}, for example:\n\n{table}"


def _cell(value: object) -> str:
    text = " ".join(("null" if value is None else str(value)).split())
    return text if text == "---" else _escaped(text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 1]}…")


def _escaped(text: str) -> str:
    """Escape Markdown, so that row values cannot become links or pictures."""
    return _MARKDOWN.sub(r"\\\g<0>", text)
