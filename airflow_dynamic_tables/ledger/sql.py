"""The ledger in a SQL database."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any, Unpack
from uuid import uuid4

from sqlalchemy import Connection, RowMapping, bindparam, case, delete, func, insert, select, text, update

from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.database.tables import installation, refreshes, stages
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.exceptions import CommitRejectedError, ConflictError
from airflow_dynamic_tables.ledger.base import (
    HOLDING,
    UNFINISHED,
    Refresh,
    RefreshChanges,
    RefreshState,
    ReportState,
    Stage,
    StageState,
)
from airflow_dynamic_tables.ledger.details import SqlFailures, SqlNames, SqlPartitions, count_from_zero, prune_failures
from airflow_dynamic_tables.ledger.jobs import SqlJobs, prune_jobs
from airflow_dynamic_tables.ledger.late_tables import SqlLateTables
from airflow_dynamic_tables.ledger.latest import SqlLatest
from airflow_dynamic_tables.ledger.readings import SqlReadings, forget_made, lock_table, prune_readings, record_made
from airflow_dynamic_tables.redaction import without_secrets

_LATEST = 1_000
"""Refreshes of a table that are searched for versions."""

_OWNED = (StageState.OPEN, StageState.COMMITTING)
_FINISHED = tuple(set(RefreshState) - {RefreshState.RUNNING, RefreshState.QUARANTINED})


class SqlLedger(SqlPartitions, SqlJobs, SqlFailures, SqlLatest, SqlLateTables, SqlNames, SqlReadings):
    """Stages and refreshes in a database. Times are timezone-aware; every method may raise CatalogUnavailableError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def open_stage(self, stage: Stage) -> tuple[Stage, ...]:
        """Insert an OPEN stage atomically, unless it overlaps stages that are ``HOLDING``.

        Idempotent: opening the same token again has the same result while the stage is OPEN.

        :return: the conflicting stages; empty when the stage is now open.
        :raises ConflictError: when the token was used before and its stage is no longer OPEN.
        """
        with self._database.transaction() as connection:
            lock_table(self._database, connection, stage.table)
            known = _stage(connection, stage.token)
            if known is not None:
                if known.state is StageState.OPEN:
                    return ()
                raise ConflictError(
                    f"Stage {stage.token} of {stage.table} is {known.state} already; a new try needs a new token."
                )
            blockers = tuple(_overlapping(connection, stage))
            if not blockers:
                last = connection.scalar(select(func.max(stages.c.ordinal)).where(stages.c.table_name == str(stage.table)))
                connection.execute(insert(stages).values(_columns({**_values(stage), "ordinal": (last or 0) + 1})))
            return blockers

    def resume_stage(self, token: str, process: str, lease_until: datetime) -> tuple[Stage, ...]:
        """Move a QUARANTINED stage to COMMITTING atomically, unless it overlaps stages that are ``HOLDING``.

        :return: the conflicting stages; empty when the process now owns the stage.
        :raises ConflictError: when it is not (or no longer) in quarantine: it is being published, or was rejected.
        """
        with self._database.transaction() as connection:
            stage = _stage(connection, token)
            if stage is None:
                raise ConflictError(f"Stage {token} is unknown to the ledger.")
            lock_table(self._database, connection, stage.table)
            blockers = tuple(other for other in _overlapping(connection, stage) if other.token != token)
            if blockers:
                return blockers
            resumed = update(stages).where(stages.c.token == token, stages.c.state == StageState.QUARANTINED)
            taken = {"state": StageState.COMMITTING, "process": process, "lease_until": lease_until}
            if connection.execute(resumed.values(taken)).rowcount == 0:
                raise ConflictError(f"Stage {token} of {stage.table} is no longer in quarantine: another process decides on it.")
            return ()

    def get_stage(self, token: str) -> Stage | None:
        """Return a stage in any state."""
        with self._database.transaction() as connection:
            return _stage(connection, token)

    def list_stages(self, table: TableIdentifier | None = None, states: Collection[StageState] = UNFINISHED) -> list[Stage]:
        """Return the stages in one of the states, oldest first."""
        query = select(stages).where(stages.c.state.in_(states)).order_by(stages.c.opened_at, stages.c.token)
        if table is not None:
            query = query.where(stages.c.table_name == str(table))
        with self._database.transaction() as connection:
            return [_to_stage(row) for row in connection.execute(query).mappings()]

    def last_stage(self, table: TableIdentifier, but_of: Collection[str] = ()) -> Stage | None:
        """Return the last opened stage of a table in any state, except those of some owners; ``None`` if there is none."""
        of_others = select(stages).where(stages.c.table_name == str(table), stages.c.owner.not_in(but_of))
        with self._database.transaction() as connection:
            return next(map(_to_stage, connection.execute(of_others.order_by(stages.c.ordinal.desc()).limit(1)).mappings()), None)

    def renew_lease(self, token: str, until: datetime) -> StageState:
        """Extend the lease of an OPEN or COMMITTING stage.

        :return: the current state.
        :raises ConflictError: when the stage is in another state, so that its owner lost it.
        """
        change = update(stages).where(stages.c.token == token, stages.c.state.in_(_OWNED)).values(lease_until=until)
        with self._database.transaction() as connection:
            state = connection.scalar(change.returning(stages.c.state))
            if state is None:
                raise ConflictError(f"Stage {token} was taken away from its owner.")
            return StageState(state)

    def move_stage(
        self,
        token: str,
        from_states: Collection[StageState],
        to_state: StageState,
        refresh: RefreshChanges | None = None,
        *,
        held_by: str | None = None,
    ) -> bool:
        """Compare-and-swap the state; moving a stage to its current state does nothing.

        :param refresh: fields of its refresh to change atomically with the state.
        :param held_by: the process that must own the stage, when its owner may have changed.
        :return: whether it was moved; False when it was in ``to_state`` already.
        :raises CommitRejectedError: when the stage is missing, owned by another process, or in none of these states.
        """
        others = [state for state in from_states if state is not to_state]
        change = update(stages).where(stages.c.token == token, stages.c.state.in_(others)).values(state=to_state)
        if held_by is not None:
            change = change.where(stages.c.process == held_by)
        with self._database.transaction() as connection:
            if connection.execute(change).rowcount:
                _update(connection, token, refresh or {})
                if to_state is StageState.COMMITTED:
                    count_from_zero(connection, token)
                    record_made(connection, token)
                return True
            stage = _stage(connection, token)
            if stage is None or stage.state is not to_state:
                now = f"is {stage.state}" if stage else "is unknown to the ledger"
                raise CommitRejectedError(f"Stage {token} {now}; it can no longer become {to_state}.")
            if held_by not in (None, stage.process):
                raise CommitRejectedError(f"Stage {token} was taken away; it is {stage.state} by another process now.")
            return False

    def record(self, refresh: Refresh) -> None:
        """Insert or replace the complete refresh of that token.

        :raises ConflictError: when its stage is no longer OPEN: the process that closed it would not update this refresh.
        """
        values = _columns(_values(refresh))
        upsert = self._database.insert(refreshes).values(values)
        state = select(stages.c.state).where(stages.c.token == refresh.token).with_for_update()
        with self._database.transaction() as connection:
            if connection.scalar(state) not in (None, StageState.OPEN):
                raise ConflictError(f"Stage {refresh.token} of {refresh.table} was taken away from its owner.")
            connection.execute(upsert.on_conflict_do_update(index_elements=[refreshes.c.token], set_=values))

    def update_refresh(self, token: str, **changes: Unpack[RefreshChanges]) -> None:
        """Change some fields of a refresh; an unknown token is ignored (its row may have been pruned)."""
        with self._database.transaction() as connection:
            _update(connection, token, changes)

    def extend(self, refresh: Refresh, instead_of: str = "") -> None:
        """Insert a refresh, or move the end and validity of the existing one forward; they never move backward.

        A later schedule time is another occurrence.

        :param instead_of: token of a skipped refresh that this one replaces; it is deleted.
        """
        values = _columns(_values(refresh))
        names = ("reason", "schedule_time", "finished_at", "complete_until", "watermark")
        time = refreshes.c.data_timestamp
        later = {name: values[name] for name in names}
        is_another = refreshes.c.schedule_time < values["schedule_time"]
        later["occurrences"] = refreshes.c.occurrences + case((is_another, 1), else_=0)
        holds_later = refreshes.c.finished_at < values["finished_at"]
        if refresh.data_timestamp is not None:
            later["data_timestamp"] = case((time > refresh.data_timestamp, time), else_=refresh.data_timestamp)
            holds_later |= time < refresh.data_timestamp
        insertion = self._database.insert(refreshes).values(values)
        told = (refreshes.c.token == instead_of) & (refreshes.c.state == RefreshState.SKIPPED)
        with self._database.transaction() as connection:
            connection.execute(delete(refreshes).where(told))
            connection.execute(insertion.on_conflict_do_update(index_elements=[refreshes.c.token], set_=later, where=holds_later))

    def get_refresh(self, token: str) -> Refresh | None:
        """Return a refresh."""
        with self._database.transaction() as connection:
            row = connection.execute(select(refreshes).where(refreshes.c.token == token)).mappings().first()
            return _to_refresh(row) if row is not None else None

    def list_refreshes(
        self, table: TableIdentifier | None = None, limit: int = 20, *, but: Collection[RefreshAction] = ()
    ) -> list[Refresh]:
        """Return the latest refreshes, newest first, except those of some actions."""
        query = select(refreshes).order_by(refreshes.c.started_at.desc(), refreshes.c.token.desc()).limit(limit)
        query = query.where(refreshes.c.action.not_in(but))
        if table is not None:
            query = query.where(refreshes.c.table_name == str(table))
        with self._database.transaction() as connection:
            return [_to_refresh(row) for row in connection.execute(query).mappings()]

    def list_tokens(self, table: TableIdentifier, states: Collection[RefreshState]) -> set[str]:
        """Return the tokens of the refreshes of a table that are in one of these states."""
        query = select(refreshes.c.token).where(refreshes.c.table_name == str(table), refreshes.c.state.in_(states))
        with self._database.transaction() as connection:
            return set(connection.scalars(query))

    def list_versions(self, table: TableIdentifier, number: int) -> dict[str, int]:
        """Return the versions, by token, that refreshes of a table made with that number or a later one, without UNDONE ones.

        Only the latest thousand refreshes are searched.
        """
        of_table = select(refreshes.c.token, refreshes.c.version, refreshes.c.state).where(refreshes.c.table_name == str(table))
        latest = of_table.order_by(refreshes.c.started_at.desc()).limit(_LATEST).subquery()
        query = select(latest.c.token, latest.c.version)
        query = query.where(latest.c.state == RefreshState.SUCCEEDED, latest.c.version >= number)
        with self._database.transaction() as connection:
            return {row.token: row.version for row in connection.execute(query.order_by(latest.c.version))}

    def mark_undone(self, errors: Mapping[str, str]) -> None:
        """Mark successful refreshes as UNDONE.

        :param errors: the error text of each, by token.
        """
        succeeded = (refreshes.c.token == bindparam("of")) & (refreshes.c.state == RefreshState.SUCCEEDED)
        change = update(refreshes).where(succeeded).values(state=RefreshState.UNDONE, error=bindparam("why"))
        if errors:
            with self._database.transaction() as connection:
                connection.execute(change, [{"of": token, "why": error} for token, error in errors.items()])
                forget_made(connection, errors)

    def list_due_reports(self, since: datetime) -> list[Refresh]:
        """Return refreshes that succeeded since then and whose report is DUE, oldest first."""
        due = select(refreshes).where(refreshes.c.report == ReportState.DUE, refreshes.c.state == RefreshState.SUCCEEDED)
        due = due.where(refreshes.c.finished_at >= since)
        with self._database.transaction() as connection:
            return [_to_refresh(row) for row in connection.execute(due.order_by(refreshes.c.finished_at)).mappings()]

    def mark_reported(self, tokens: Collection[str]) -> None:
        """Record that the versions of these refreshes were reported to the scheduler."""
        made = update(refreshes).where(refreshes.c.token == bindparam("of")).values(report=ReportState.MADE)
        if tokens:
            with self._database.transaction() as connection:
                connection.execute(made, [{"of": token} for token in tokens])

    def installation(self) -> str:
        """Return the id of this installation. It is stored in the ledger, so a copy of the database has the same id."""
        with self._database.transaction() as connection:
            known = connection.scalar(select(installation.c.id).order_by(installation.c.id))
            if known is not None:
                return str(known)
            made = str(uuid4())  # deleted, for example after copying the database
            connection.execute(insert(installation).values(id=made))
            return made

    def tables(self) -> list[TableIdentifier]:
        """Return every table that was ever refreshed, sorted."""
        with self._database.transaction() as connection:
            return sorted(map(TableIdentifier.parse, connection.scalars(select(refreshes.c.table_name).distinct())))

    def prune(self, before: datetime) -> int:
        """Delete old jobs, finished refreshes with their sources, and finished stages; the latest success of a table is kept.

        :return: the number of deleted rows.
        """
        succeeded = refreshes.c.state == RefreshState.SUCCEEDED
        newest = select(func.max(refreshes.c.started_at)).where(succeeded).group_by(refreshes.c.table_name).scalar_subquery()
        ended = refreshes.c.state.in_(_FINISHED)
        old_refreshes = delete(refreshes).where(refreshes.c.started_at < before, ended, refreshes.c.started_at.not_in(newest))
        # A NO_DATA refresh may have started long ago and been extended since.
        old_refreshes = old_refreshes.where((refreshes.c.action != RefreshAction.NO_DATA) | (refreshes.c.finished_at < before))
        old_stages = delete(stages).where(stages.c.opened_at < before, stages.c.state.not_in(UNFINISHED))
        with self._database.transaction() as connection:
            deleted = connection.execute(old_refreshes).rowcount + connection.execute(old_stages).rowcount
            prune_readings(connection)
            prune_jobs(connection, before)
            prune_failures(connection, before)
            return deleted

    def upgrade(self) -> None:
        """Upgrade the storage to this release's schema; idempotent."""
        self._database.upgrade()

    def check(self) -> None:
        """Check the connection."""
        with self._database.transaction() as connection:
            connection.execute(text("SELECT 1"))

    def close(self) -> None:
        """Close connections; idempotent."""
        self._database.close()


def _overlapping(connection: Connection, stage: Stage) -> Iterator[Stage]:
    holding = select(stages).where(stages.c.table_name == str(stage.table), stages.c.state.in_(HOLDING))
    others = map(_to_stage, connection.execute(holding.order_by(stages.c.opened_at)).mappings())
    return (other for other in others if other.overlaps(stage))


def _stage(connection: Connection, token: str) -> Stage | None:
    row = connection.execute(select(stages).where(stages.c.token == token)).mappings().first()
    return _to_stage(row) if row is not None else None


def _update(connection: Connection, token: str, changes: Mapping[str, Any]) -> None:
    if changes:
        connection.execute(update(refreshes).where(refreshes.c.token == token).values(_columns(changes)))


def _values(record: Stage | Refresh) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert fields to columns; a column named ``table`` would require quoting everywhere."""
    words = {name: without_secrets(values[name]) for name in ("reason", "error") if values.get(name)}
    return {"table_name" if name == "table" else name: _column(value) for name, value in {**values, **words}.items()}


def _column(value: Any) -> Any:
    """Convert a value for a column; PostgreSQL rejects NUL characters, which an error of the job may contain."""
    if isinstance(value, TableIdentifier):
        return str(value)
    if isinstance(value, str):
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return value if isinstance(value, datetime) else to_plain(value)


def _fields(row: RowMapping) -> dict[str, Any]:
    others = {name: value for name, value in row.items() if name != "table_name"}
    return {**others, "table": TableIdentifier.parse(row["table_name"])}


def _to_stage(row: RowMapping) -> Stage:
    return from_plain(Stage, _fields(row))


def _to_refresh(row: RowMapping) -> Refresh:
    return from_plain(Refresh, {**_fields(row), "expectations": row["expectations"] or ()})  # missing in rows of earlier releases
