"""Traceable steps: audit events (:func:`sys.audit`) named ``airflow_dynamic_tables.<step>``.

To trace a refresh, or to test what happens when its process is killed at a step, add a hook (:func:`sys.addaudithook`). Its
argument is the token of the refresh; for ``listed`` it is the table.

==========  ========================================================================================
begin       nothing was done yet
opened      the stage is in the ledger, the refresh is not
planned     the plan is written beside the stage; the job is next
commit      the job ended; its result was not read yet
restoring   the rollback is in the ledger; the table is unchanged
publishing  the ledger records that the table is about to change; once for every attempt
naming      the table of a CREATE TABLE AS has its rows under a temporary name, and is renamed next
published   the table has the new version; the ledger does not record it
completed   the ledger records it; success is not reported yet
settling    a stage was revoked from its owner (``stages.settle``); its files exist
deleted     its files are deleted; the ledger does not record it
asked       the job of a stream asks for a batch, before it is handled; the argument is the stream
answered    the batch is committed, and the job is informed
listed      unreferenced files are about to be deleted; it was not checked yet which are held
==========  ========================================================================================
"""

from __future__ import annotations

import sys
from enum import StrEnum


class Step(StrEnum):
    """The steps; the table above defines when each occurs."""

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
    """Raise the audit event of a step."""
    sys.audit(f"airflow_dynamic_tables.{step}", subject)
