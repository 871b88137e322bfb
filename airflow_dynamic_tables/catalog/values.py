"""Values that a catalog stores, with their JSON, and the states of dynamic tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeGuard

from airflow_dynamic_tables.core.formats import DEFAULT_FORMAT
from airflow_dynamic_tables.core.partitions import PartitionSpec
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.schedule import RefreshMode
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import CatalogError


@dataclass(frozen=True, slots=True)
class CatalogDatabase:
    """A database: a comment and properties."""

    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table written by another system; ``format``, ``location`` and ``options`` define how to read it."""

    columns: tuple[Column, ...] = ()
    comment: str | None = None
    partition_keys: tuple[str, ...] = ()
    format: str = DEFAULT_FORMAT
    location: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


ONE_OFF = "airflow_dynamic_tables.one_off"
"""Property of tables created by CREATE TABLE AS: the token of the first version."""


class JobState(StrEnum):
    """State of the job or workflow that refreshes a dynamic table."""

    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"

    @property
    def words(self) -> str:
        """The state in user-facing words: RUNNING would suggest a refresh in progress."""
        return {"INITIALIZING": "waits for its first refresh", "RUNNING": "enabled", "SUSPENDED": "suspended"}[self.value]


_SUSPENDED_BECAUSE = "suspendedBecause"
"""Key of the detail that holds the reason of a suspension."""

_RENAMED_FROM = "renamedFrom"
"""Key of the detail of a table that is being renamed."""


@dataclass(frozen=True, slots=True)
class RefreshHandler:
    """The job or workflow that refreshes a dynamic table (seed: RefreshJobHandler).

    ``job_detail`` is ``{"schedulerType", "endpoint", "workflowId"}`` in FULL and INCREMENTAL mode and
    ``{"clusterType", "clusterId", "jobId"}`` in CONTINUOUS mode. For a suspended table it also has the reason, see
    :meth:`in_state`.
    """

    actual_refresh_mode: RefreshMode
    job_state: JobState = JobState.INITIALIZING
    job_detail: Mapping[str, str] = field(default_factory=dict)

    @property
    def suspended_because(self) -> str:
        """Why the table is suspended; empty when it is not, or no reason was given."""
        return self.job_detail.get(_SUSPENDED_BECAUSE, "")

    @property
    def renamed_from(self) -> str:
        """The former full name while a rename is incomplete; otherwise empty."""
        return self.job_detail.get(_RENAMED_FROM, "")

    def being_renamed(self, name: str) -> RefreshHandler:
        """Return the handler with a former name; an empty name marks the rename as complete."""
        detail = {key: value for key, value in self.job_detail.items() if key != _RENAMED_FROM}
        return replace(self, job_detail={**detail, **({_RENAMED_FROM: name} if name else {})})

    def in_state(self, state: JobState, reason: str = "") -> RefreshHandler:
        """Return the handler in a state.

        :param reason: why the table is suspended; ignored in other states.
        """
        # Not a separate field, because an earlier release could not read a table that has it.
        detail = {key: value for key, value in self.job_detail.items() if key != _SUSPENDED_BECAUSE}
        if reason and state is JobState.SUSPENDED:
            detail[_SUSPENDED_BECAUSE] = reason
        return replace(self, job_state=state, job_detail=detail)


@dataclass(frozen=True, slots=True)
class CatalogDynamicTable:
    """A table whose content is defined by a query and kept fresh (seed: CatalogDynamicTable).

    ``freshness`` is normalised text such as ``1 day``; ``declared_refresh_mode`` may be AUTO, the handler has the effective
    mode. ``snapshot`` is the format's id of the current version, ``None`` before the first commit. ``definition`` is the
    complete declaration as JSON (``definitions.cache``), ``None`` when the release that wrote the table did not store it.
    """

    columns: tuple[Column, ...]
    original_query: str
    expanded_query: str
    freshness: str
    declared_refresh_mode: RefreshMode
    refresh_handler: RefreshHandler
    comment: str | None = None
    partition_keys: tuple[str, ...] = ()
    format: str = DEFAULT_FORMAT
    location: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    snapshot: str | None = None
    definition: Mapping[str, Any] | None = None

    @property
    def is_partitioned(self) -> bool:
        """Whether the table has partition keys."""
        return bool(self.partition_keys)

    def copy(self, options: Mapping[str, str]) -> CatalogDynamicTable:
        """Return the table with other options."""
        return replace(self, options=dict(options))


@dataclass(frozen=True, slots=True)
class CatalogView:
    """A view: its text as written, and with fully qualified names."""

    original_query: str
    expanded_query: str
    columns: tuple[Column, ...] = ()
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CatalogFunction:
    """A function: ``language`` is ``java`` (``name`` is a class) or ``python`` (``name`` is ``module:callable``).

    Properties that a refresh uses: ``returns`` (Spark DDL of the result, required for python), ``jars`` and ``py_files`` (URIs
    of the code, separated by commas), and ``deterministic`` (``true`` if the same arguments always give the same result).
    """

    name: str
    language: str = "java"
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """Size of a table or partition; ``None`` means unknown."""

    rows: int | None = None
    bytes: int | None = None
    files: int | None = None


@dataclass(frozen=True, slots=True)
class CatalogPartition:
    """One partition of a table; ``spec`` has exactly the table's partition keys."""

    spec: PartitionSpec
    location: str | None = None
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    statistics: TableStatistics = TableStatistics()


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Statistics of one column; ``None`` means unknown. ``minimum`` and ``maximum`` are strings."""

    nulls: int | None = None
    distinct: int | None = None
    minimum: str | None = None
    maximum: str | None = None


AnyTable = CatalogTable | CatalogDynamicTable | CatalogView


def is_one_off(table: AnyTable) -> bool:
    """Return whether CREATE TABLE AS created the table."""
    return isinstance(table, CatalogTable) and ONE_OFF in table.properties


def is_own(table: AnyTable | None) -> TypeGuard[CatalogDynamicTable | CatalogTable]:
    """Return whether this package writes the versions of a table: a dynamic table, or one created by CREATE TABLE AS."""
    return isinstance(table, CatalogDynamicTable) or (table is not None and is_one_off(table))


_KINDS: dict[str, type[AnyTable]] = {"table": CatalogTable, "dynamic_table": CatalogDynamicTable, "view": CatalogView}


def encode(table: AnyTable) -> dict[str, Any]:
    """Return ``kind`` and ``value`` of a table."""
    kind = next(name for name, cls in _KINDS.items() if cls is type(table))
    return {"kind": kind, "value": to_plain(table)}


def decode(kind: str, value: Any, table: object) -> AnyTable:
    """Return the table that was passed to :func:`encode`.

    :raises CatalogError: when the value is invalid.
    """
    try:
        return from_plain(_KINDS[kind], value)
    except (ValueError, TypeError, KeyError) as error:
        raise unreadable(table, error) from error


def decode_text(text: str, table: object) -> AnyTable:
    """As :func:`decode`, from the JSON text of the result of :func:`encode`."""
    try:
        stored = json.loads(text)
        kind, value = stored["kind"], stored["value"]
    except (ValueError, TypeError, KeyError) as error:
        raise unreadable(table, error) from error
    return decode(kind, value, table)


def unreadable(table: object, error: Exception) -> CatalogError:
    """Return the error for an entry that cannot be decoded."""
    why = f"{type(error).__name__}: {error}"
    return CatalogError(
        f"What the catalog keeps of {table} cannot be read ({why}): it is damaged, or a later release of this package wrote it. "
        "Use that release, or restore the entry."
    )


class Asked(StrEnum):
    """An operation on a table."""

    REGISTER = "register"
    """Add its definition to the catalog, or update it."""

    REFRESH = "refresh"
    """Start a scheduled or manual refresh."""

    FORCED_REFRESH = "forced refresh"
    """Start a manual refresh, regardless of the state."""

    SUSPEND = "suspend"

    RESUME = "resume"
    """Resume refreshes of a table that has a version."""

    RESUME_EMPTY = "resume without a version"

    RENAME = "rename"

    DROP = "drop"


_INITIALIZING, _RUNNING, _SUSPENDED = JobState.INITIALIZING, JobState.RUNNING, JobState.SUSPENDED
_AS_IT_WAS: Mapping[JobState | None, JobState | None] = {state: state for state in JobState}

STATES: Mapping[Asked, Mapping[JobState | None, JobState | None]] = MappingProxyType(
    {
        Asked.REGISTER: {None: _INITIALIZING, **_AS_IT_WAS},
        Asked.REFRESH: {None: _RUNNING, _INITIALIZING: _RUNNING, _RUNNING: _RUNNING},
        Asked.FORCED_REFRESH: {None: _RUNNING, _INITIALIZING: _RUNNING, _RUNNING: _RUNNING, _SUSPENDED: _SUSPENDED},
        Asked.SUSPEND: dict.fromkeys(JobState, _SUSPENDED),
        Asked.RESUME: {**_AS_IT_WAS, _SUSPENDED: _RUNNING},
        Asked.RESUME_EMPTY: {**_AS_IT_WAS, _SUSPENDED: _INITIALIZING},
        Asked.RENAME: _AS_IT_WAS,
        Asked.DROP: dict.fromkeys(JobState, None),
    }
)
"""The state of a table after an operation, by the state before; ``None`` is a table that does not exist.

Missing transitions are refused: a suspended table is not refreshed, and a table that does not exist can only be registered.
"""


def is_refused(asked: Asked, state: JobState | None) -> bool:
    """Return whether an operation is refused in a state."""
    return state not in STATES[asked]


def state_after(asked: Asked, state: JobState) -> JobState:
    """Return the state of a table after an operation.

    :raises ValueError: when the operation is refused, or removes the table.
    """
    after = STATES[asked].get(state)
    if after is None:
        raise ValueError(f"no table is {state} and goes on after {asked}")
    return after
