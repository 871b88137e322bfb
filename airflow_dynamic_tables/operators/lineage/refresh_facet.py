"""The run facet ``dynamicTables_refresh``. It needs the extra ``openlineage``; its schema is the JSON file beside it."""

from __future__ import annotations

from typing import ClassVar

import attrs
from openlineage.client.facet_v2 import RunFacet
from openlineage.client.utils import RedactMixin

from airflow_dynamic_tables.core.partitions import describe
from airflow_dynamic_tables.services.lineage import RefreshLineage

NAME = "dynamicTables_refresh"

_SCHEMA = (
    "https://raw.githubusercontent.com/airflow-dynamic-tables/airflow-dynamic-tables/main/"
    "airflow_dynamic_tables/operators/lineage/DynamicTableRefreshRunFacet.json#/$defs/DynamicTableRefreshRunFacet"
)
_MOST_PARTITIONS = 100


@attrs.define
class CheckedExpectation(RedactMixin):
    """The result of an expectation."""

    name: str
    action: str
    violations: int
    detail: str | None = None


@attrs.define
class DynamicTableRefreshRunFacet(RunFacet):
    """What a refresh did, and why."""

    table: str
    action: str
    reason: str
    reasonCode: str | None = None  # noqa: N815 - the names are those of the JSON
    refresh: str | None = None
    version: int | None = None
    dataTimestamp: str | None = None  # noqa: N815
    partitions: list[str] = attrs.field(factory=list)
    partitionsTotal: int | None = None  # noqa: N815
    savedSeconds: float | None = None  # noqa: N815
    expectations: list[CheckedExpectation] = attrs.field(factory=list)

    _additional_skip_redact: ClassVar[list[str]] = ["table", "action", "reasonCode", "refresh", "dataTimestamp", "partitions"]

    @staticmethod
    def _get_schema() -> str:
        return _SCHEMA


def refresh_facet(lineage: RefreshLineage) -> DynamicTableRefreshRunFacet:
    """Return the facet of a refresh."""
    refresh = lineage.refresh
    specs = [] if refresh.partitions.is_whole else list(refresh.partitions)
    return DynamicTableRefreshRunFacet(
        table=str(refresh.table),
        action=str(refresh.action),
        reason=refresh.reason,
        reasonCode=str(refresh.reason_code) if refresh.reason_code is not None else None,
        refresh=refresh.token,
        version=refresh.version,
        dataTimestamp=refresh.data_timestamp.isoformat() if refresh.data_timestamp is not None else None,
        partitions=[describe(spec) for spec in specs[:_MOST_PARTITIONS]],
        partitionsTotal=None if refresh.partitions.is_whole else len(specs),
        savedSeconds=lineage.saved_seconds,
        expectations=[CheckedExpectation(one.name, str(one.action), one.violations, one.detail) for one in refresh.expectations],
    )
