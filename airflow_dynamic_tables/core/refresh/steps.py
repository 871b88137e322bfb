"""Steps that can be traced: audit events (:func:`sys.audit`) named ``airflow_dynamic_tables.<step>``.

Whoever wants to trace a refresh, or to see what happens when its process dies there, adds a hook (:func:`sys.addaudithook`).
Its argument is the token of the refresh; of ``listed`` it is the table.

==========  ========================================================================================
begin       nothing was done yet
opened      the stage is in the ledger, the refresh is not
planned     the plan is written beside the stage; the job comes next
commit      the job ended; nobody looked at its result yet
restoring   the rollback is in the ledger; the table has not changed
publishing  the ledger knows that the table is about to change; once for every attempt
naming      the table of a CREATE TABLE AS has its rows under another name, and gets its own next
published   the table has the new version; the ledger does not know it
completed   the ledger knows; success is not reported yet
settling    a stage was taken away from its owner for good (``stages.settle``); its files are there
deleted     its files are deleted; the ledger does not know it
asked       the job of a stream asks for a batch, before anything is done about it; its argument is the stream
answered    the batch landed, and the job knows
listed      files that no version refers to are about to be deleted; nobody asked yet which are held
==========  ========================================================================================
"""

from __future__ import annotations

import sys
from enum import StrEnum


class Step(StrEnum):
    """What is traced; when each comes is in the table above."""

    BEGIN = "begin"
    OPENED = "opened"
    PLANNED = "planned"
    COMMIT = "commit"
    RESTORING = "restoring"
    PUBLISHING = "publishing"
    NAMING = "naming"
    PUBLISHED = "published"
    COMPLETED = "completed"
    SETTLING = "settling"
    DELETED = "deleted"
    ASKED = "asked"
    ANSWERED = "answered"
    LISTED = "listed"


def trace(step: Step, subject: str) -> None:
    """Raise the audit event of a step.

    :param subject: the token of the refresh, or the table.
    """
    sys.audit(f"airflow_dynamic_tables.{step}", subject)
