"""Attempts: what one refresh works on from its beginning to its end, looked up once."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.formats.base import LakeTable, StagedTable
from airflow_dynamic_tables.ledger.base import Stage
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to do what a request asks for: ``stage`` is its row in the ledger, ``staged`` its stage in the table."""

    request: RefreshRequest
    table: LakeTable
    stage: Stage
    staged: StagedTable
    plan: RefreshPlan
