"""Scheduled runs that failed for good: how many of a table did in a row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime

from sqlalchemy import Connection, delete, func, select, update

from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.database.tables import failed_runs, refreshes, stages
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.actions import RefreshAction


class CountsFailures(ABC):
    """The part of a ledger that counts failed runs. A refresh that succeeds sets the count back in the same step."""

    @abstractmethod
    def record_failure(self, table: TableIdentifier, run: str, now: datetime, *, counts: bool = True) -> int:
        """Note that a scheduled run failed; once for each run, what is told first.

        One that ended before another refresh of the table succeeded, or that landed itself, does not count.

        :param run: the owner of its stages.
        :param counts: whether the table is to blame.
        :return: how many failed in a row.
        """

    @abstractmethod
    def failures_in_a_row(self, table: TableIdentifier) -> int:
        """How many runs of a table failed since a refresh of it succeeded."""

    @abstractmethod
    def forget_failures(self, table: TableIdentifier) -> None:
        """Count from zero again."""


class SqlFailures(CountsFailures):
    """That part in a SQL database."""

    _database: Database

    def record_failure(self, table: TableIdentifier, run: str, now: datetime, *, counts: bool = True) -> int:
        """See :meth:`CountsFailures.record_failure`."""
        name = str(table)
        with self._database.transaction() as connection:
            known = select(failed_runs.c.run).where(failed_runs.c.table_name == name, failed_runs.c.run == run)
            if connection.scalar(known) is None:
                is_told_late = _succeeded_since(connection, name, run)
                row = {"table_name": name, "run": run, "noted_at": now, "counts": counts and not is_told_late}
                connection.execute(self._database.insert(failed_runs).values(row).on_conflict_do_nothing())
            return _count(connection, name)

    def failures_in_a_row(self, table: TableIdentifier) -> int:
        """See :meth:`CountsFailures.failures_in_a_row`."""
        with self._database.transaction() as connection:
            return _count(connection, str(table))

    def forget_failures(self, table: TableIdentifier) -> None:
        """See :meth:`CountsFailures.forget_failures`."""
        with self._database.transaction() as connection:
            connection.execute(update(failed_runs).where(failed_runs.c.table_name == str(table)).values(counts=False))


def count_from_zero(connection: Connection, token: str) -> None:
    """The refresh of that token succeeded; a rollback is none."""
    of = select(refreshes.c.table_name).where(refreshes.c.token == token, refreshes.c.action != RefreshAction.ROLLBACK)
    # The rows stay, so that a run of which is told again does not count again.
    counted = update(failed_runs).where(failed_runs.c.table_name == of.scalar_subquery(), failed_runs.c.counts)
    connection.execute(counted.values(counts=False))


def prune_failures(connection: Connection, before: datetime) -> None:
    """Delete what was noted before then and counts no more."""
    connection.execute(delete(failed_runs).where(failed_runs.c.noted_at < before, ~failed_runs.c.counts))


def _count(connection: Connection, table: str) -> int:
    counted = select(func.count()).where(failed_runs.c.table_name == table, failed_runs.c.counts)
    return connection.scalar(counted) or 0


def _succeeded_since(connection: Connection, table: str, run: str) -> bool:
    """Whether a refresh of a table succeeded whose stage is the last one of a run, or was opened later."""
    of_run = (stages.c.table_name == table) & (stages.c.owner == run)
    ordinal = connection.scalar(select(func.max(stages.c.ordinal)).where(of_run))
    if ordinal is None:
        return False
    later = select(stages.c.token).join(refreshes, refreshes.c.token == stages.c.token)
    succeeded = later.where(
        stages.c.table_name == table,
        stages.c.ordinal >= ordinal,
        stages.c.state == "COMMITTED",
        refreshes.c.action != RefreshAction.ROLLBACK,
    )
    return connection.scalar(succeeded.limit(1)) is not None
