"""Bulk queries of the latest refreshes and versions of many tables."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Column, ColumnElement, FromClause, ScalarSelect, String, bindparam, cast, func, select

from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.database.tables import refreshes
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode, RefreshAction
from airflow_dynamic_tables.core.versions import Version


@dataclass(frozen=True, slots=True)
class RefreshStart:
    """Action, reason and start of a refresh."""

    action: str
    reason: str
    started_at: datetime


@dataclass(frozen=True, slots=True)
class Latest:
    """The most recently started refresh of a table, and its latest version; ``None`` where there is none.

    ``token``, ``snapshot``, ``finished_at`` and ``sources`` are those of the version, and ``action`` is the action that made
    it. ``tick_time`` is the latest schedule time of a refresh that was not limited to partitions named by a user,
    ``tick_state`` and ``tick_error`` are the state and error of that refresh. ``begun`` and ``tick`` describe the most recently
    started refresh and that of the tick.
    """

    state: str | None = None
    error: str | None = None
    token: str | None = None
    version: int | None = None
    data_timestamp: datetime | None = None
    action: str | None = None
    tick_time: datetime | None = None
    tick_state: str | None = None
    tick_error: str | None = None
    snapshot: str | None = None
    finished_at: datetime | None = None
    sources: Mapping[str, str] | None = None
    begun: RefreshStart | None = None
    tick: RefreshStart | None = None

    @property
    def made(self) -> Version | None:
        """The version, as far as the history has it."""
        if self.token is None or self.version is None or self.finished_at is None:
            return None
        return Version(self.version, self.token, self.snapshot or "", self.data_timestamp, self.finished_at, self.sources or {})


@dataclass(frozen=True, slots=True)
class Held:
    """Time until which a refresh is valid, and the watermark of its sources; ``None`` where there is none."""

    data_timestamp: datetime | None
    watermark: datetime | None


_LOOKED_AT = 200
"""Refreshes of a table that are searched for the number of a version, so that an unknown snapshot does not cost a full scan.
"""


class SqlLatest:
    """The part of the ledger that queries many tables at once, with two index lookups per table however long its history is."""

    _database: Database

    def latest(self, tables: Collection[TableIdentifier]) -> dict[TableIdentifier, Latest]:
        """Return the latest history of each of these tables; unknown tables are omitted."""
        listed = self._listed
        began, made, tick = (refreshes.alias(name) for name in ("began", "made", "tick"))
        has_version = (refreshes.c.state == "SUCCEEDED") & refreshes.c.version.is_not(None)
        is_refresh = refreshes.c.action != RefreshAction.VERIFY
        is_of_tick = (func.coalesce(refreshes.c.reason_code, "") != ReasonCode.ASKED_FOR) & is_refresh
        told = (
            *(listed.c.value, began.c.state, began.c.error, made.c.token, made.c.version, made.c.data_timestamp, made.c.action),
            *(tick.c.schedule_time, tick.c.state, tick.c.error, made.c.snapshot, made.c.finished_at, made.c.sources),
        )
        attempts = [column for one in (began, tick) for column in (one.c.action, one.c.reason, one.c.started_at)]
        newest = began.c.token == _newest(listed, is_refresh)
        newest_version = made.c.token == _newest(listed, has_version)
        newest_tick = tick.c.token == _newest(listed, is_of_tick, refreshes.c.schedule_time)
        joined = listed.join(began, newest).outerjoin(made, newest_version).outerjoin(tick, newest_tick)
        query = select(*told, *attempts).select_from(joined)
        with self._database.transaction() as connection:
            rows = connection.execute(query, {"listed": json.dumps([str(table) for table in tables])}).all()
        return {TableIdentifier.parse(name): _latest(*last) for name, *last in rows}

    def held(self, tokens: Collection[str]) -> dict[str, Held]:
        """Return the validity of the refreshes with these tokens; unknown tokens are omitted."""
        listed = self._listed
        told = (refreshes.c.token, refreshes.c.data_timestamp, refreshes.c.watermark)
        query = select(*told).join(listed, refreshes.c.token == listed.c.value)
        with self._database.transaction() as connection:
            rows = connection.execute(query, {"listed": json.dumps([*tokens])})
            return {token: Held(data_timestamp, watermark) for token, data_timestamp, watermark in rows}

    def version_numbers(self, snapshots: Collection[tuple[str, str]]) -> dict[tuple[str, str], int]:
        """Return version numbers by the full name of a table and the format's id of a snapshot.

        Only the latest refreshes of each table are searched; snapshots that are not among them are omitted.
        """
        listed = self._listed
        table, snapshot = (self._part(listed, position) for position in (0, 1))
        counted = refreshes.alias("counted")
        latest = select(counted.c.started_at).where(counted.c.table_name == table).order_by(counted.c.started_at.desc())
        oldest = latest.limit(1).offset(_LOOKED_AT - 1).correlate(listed).scalar_subquery()
        is_it = (refreshes.c.table_name == table) & (refreshes.c.snapshot == snapshot) & refreshes.c.version.is_not(None)
        versions = select(refreshes.c.version).where(
            is_it, refreshes.c.started_at >= func.coalesce(oldest, refreshes.c.started_at)
        )
        number = versions.order_by(refreshes.c.started_at.desc()).limit(1).correlate(listed).scalar_subquery()
        with self._database.transaction() as connection:
            rows = connection.execute(select(table, snapshot, number).select_from(listed), {"listed": json.dumps([*snapshots])})
            return {(name, told): version for name, told, version in rows if version is not None}

    def _part(self, listed: FromClause, position: int) -> ColumnElement[str]:
        if self._database.is_sqlite:
            return func.json_extract(listed.c.value, f"$[{position}]", type_=String)
        text: ColumnElement[str] = cast(listed.c.value, JSON)[position].as_string()
        return text

    @property
    def _listed(self) -> FromClause:
        """Return strings as rows of one parameter.

        One parameter per string would be a new statement for every number of strings.
        """
        parameter = bindparam("listed", type_=String)
        if self._database.is_sqlite:
            return func.json_each(parameter).table_valued("value").alias("listed")
        return func.json_array_elements_text(cast(parameter, JSON)).table_valued("value").render_derived("listed")


def _latest(*told: Any) -> Latest:
    *history, began, why, since, tick, why_tick, since_tick = told
    of_tick = RefreshStart(tick, why_tick, since_tick) if tick is not None else None
    return replace(Latest(*history), begun=RefreshStart(began, why, since), tick=of_tick)


def _newest(listed: FromClause, condition: ColumnElement[bool], *by: Column[datetime]) -> ScalarSelect[str]:
    """Return the token of a table's newest refresh that meets the condition.

    :param by: the columns that define newer; the last one is the start time.
    """
    of_table = select(refreshes.c.token).where(refreshes.c.table_name == listed.c.value, condition)
    order = [column.desc() for column in (*by, refreshes.c.started_at)]
    return of_table.order_by(*order).limit(1).correlate(listed).scalar_subquery()
