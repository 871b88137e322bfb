"""What a catalog holds, as values: databases, tables, dynamic tables, views, functions, partitions, statistics.

Tables as JSON, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeGuard

from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.schedule.refresh_mode import RefreshMode
from airflow_dynamic_tables.core.tables.formats import DEFAULT_FORMAT
from airflow_dynamic_tables.core.tables.partitions import PartitionSpec
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.exceptions import CatalogError


@dataclass(frozen=True, slots=True)
class CatalogDatabase:
    """A database: a comment and properties."""

    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table that something else fills: how to read it is in ``format``, ``location`` and ``options``."""

    columns: tuple[Column, ...] = ()
    comment: str | None = None
    partition_keys: tuple[str, ...] = ()
    format: str = DEFAULT_FORMAT
    location: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


ONE_OFF = "airflow_dynamic_tables.one_off"
"""Property of tables that CREATE TABLE AS made: the token that made the first version."""


class JobState(StrEnum):
    """State of the job or workflow that refreshes a dynamic table."""

    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"

    @property
    def words(self) -> str:
        """As a person reads it: RUNNING would be taken for a refresh that runs now."""
        return {"INITIALIZING": "waits for its first refresh", "RUNNING": "enabled", "SUSPENDED": "suspended"}[self.value]


_SUSPENDED_BECAUSE = "suspendedBecause"
"""Key of the detail of a suspended table."""

_RENAMED_FROM = "renamedFrom"
"""Key of the detail of a table that is being renamed."""


@dataclass(frozen=True, slots=True)
class RefreshHandler:
    """Which job or workflow refreshes a dynamic table (seed: RefreshJobHandler).

    ``job_detail`` is ``{"schedulerType", "endpoint", "workflowId"}`` in FULL and INCREMENTAL mode and
    ``{"clusterType", "clusterId", "jobId"}`` in CONTINUOUS mode, and of a suspended table it also says why, see :meth:`in_state`.
    """

    actual_refresh_mode: RefreshMode
    job_state: JobState = JobState.INITIALIZING
    job_detail: Mapping[str, str] = field(default_factory=dict)

    @property
    def suspended_because(self) -> str:
        """Why the table is suspended; empty when it is not, or nobody said why."""
        return self.job_detail.get(_SUSPENDED_BECAUSE, "")

    @property
    def renamed_from(self) -> str:
        """The full name that the table had, while not everything that goes by its name has followed; else empty."""
        return self.job_detail.get(_RENAMED_FROM, "")

    def being_renamed(self, name: str) -> RefreshHandler:
        """The same handler of a table that had a name; an empty one: everything has followed."""
        detail = {key: value for key, value in self.job_detail.items() if key != _RENAMED_FROM}
        return replace(self, job_detail={**detail, **({_RENAMED_FROM: name} if name else {})})

    def in_state(self, state: JobState, reason: str = "") -> RefreshHandler:
        """The same handler in a state.

        :param reason: why, when the table is suspended; no other state has one.
        """
        # Not a field of its own: an earlier release could not read a table that has one.
        detail = {key: value for key, value in self.job_detail.items() if key != _SUSPENDED_BECAUSE}
        if reason and state is JobState.SUSPENDED:
            detail[_SUSPENDED_BECAUSE] = reason
        return replace(self, job_state=state, job_detail=detail)


@dataclass(frozen=True, slots=True)
class CatalogDynamicTable:
    """A table whose content is defined by a query and kept fresh (seed: CatalogDynamicTable).

    ``freshness`` is normalised text such as ``1 day``; ``declared_refresh_mode`` may be AUTO, the handler has the actual
    one. ``snapshot`` is the format's id of the current version, ``None`` before the first commit. ``definition`` is the whole
    declaration as JSON (``definitions.normalised``), ``None`` when the release that wrote the table did not keep it.
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
        """The same table with other options."""
        return replace(self, options=dict(options))


@dataclass(frozen=True, slots=True)
class CatalogView:
    """A view: its text as written and with every name fully qualified."""

    original_query: str
    expanded_query: str
    columns: tuple[Column, ...] = ()
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CatalogFunction:
    """A function: ``language`` is ``java`` (``name`` a class) or ``python`` (``name`` is ``module:callable``).

    Properties that a refresh knows: ``returns`` (Spark DDL of the result; python needs it), ``jars`` and ``py_files`` (URIs of
    the code, separated by commas).
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
    """Statistics of one column; ``None`` means unknown. ``minimum`` and ``maximum`` are text."""

    nulls: int | None = None
    distinct: int | None = None
    minimum: str | None = None
    maximum: str | None = None


AnyTable = CatalogTable | CatalogDynamicTable | CatalogView


def is_one_off(table: AnyTable) -> bool:
    """Whether CREATE TABLE AS made it."""
    return isinstance(table, CatalogTable) and ONE_OFF in table.properties


def is_own(table: AnyTable | None) -> TypeGuard[CatalogDynamicTable | CatalogTable]:
    """Whether the versions of a table are ours: of a dynamic one, or one that CREATE TABLE AS made."""
    return isinstance(table, CatalogDynamicTable) or (table is not None and is_one_off(table))


_KINDS: dict[str, type[AnyTable]] = {"table": CatalogTable, "dynamic_table": CatalogDynamicTable, "view": CatalogView}


def encode(table: AnyTable) -> dict[str, Any]:
    """``kind`` and ``value`` of a table."""
    kind = next(name for name, cls in _KINDS.items() if cls is type(table))
    return {"kind": kind, "value": to_plain(table)}


def decode(kind: str, value: Any, table: object) -> AnyTable:
    """What :func:`encode` was given.

    :param table: whose entry it is.
    :raises CatalogError: when it is something else.
    """
    try:
        return from_plain(_KINDS[kind], value)
    except (ValueError, TypeError, KeyError) as error:
        raise unreadable(table, error) from error


def decode_text(text: str, table: object) -> AnyTable:
    """As :func:`decode`, of the JSON of what :func:`encode` gives."""
    try:
        stored = json.loads(text)
        kind, value = stored["kind"], stored["value"]
    except (ValueError, TypeError, KeyError) as error:
        raise unreadable(table, error) from error
    return decode(kind, value, table)


def unreadable(table: object, error: Exception) -> CatalogError:
    """The error of an entry that cannot be decoded."""
    why = f"{type(error).__name__}: {error}"
    return CatalogError(
        f"What the catalog keeps of {table} cannot be read ({why}): it is damaged, or a later release of this package wrote it. "
        "Use that release, or restore the entry."
    )
