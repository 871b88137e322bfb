"""What a task says about a commit: its own result, and the same as extra of its asset events."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import Asset

from airflow_dynamic_tables.core.tables.partitions import WHOLE_TABLE, describe
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.ledger.base import Refresh

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


def report_commit(
    context: Context, outlets: Iterable[object], version: Version, refresh: Refresh | None, schedule_time: datetime | None
) -> dict[str, Any]:
    """Put the report into every outlet's event.

    :param refresh: what the ledger knows; ``None`` when it cannot be asked, then the rows are not told.
    :return: version, rows, partitions (none named: the whole table), schedule time and token (``refresh``) of the commit.
    """
    partitions = refresh.partitions if refresh else version.partitions or WHOLE_TABLE
    report: dict[str, Any] = {
        "version": version.number,
        "rows": refresh.rows if refresh else None,
        "partitions": [describe(spec) for spec in partitions if spec],
        "schedule_time": schedule_time.isoformat() if schedule_time else None,
        "refresh": version.token,  # Airflow would mask a key named token
    }
    for asset in outlets:
        if isinstance(asset, Asset):
            context["outlet_events"][asset].extra = dict(report)
    return report
