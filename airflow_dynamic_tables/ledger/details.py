"""Failure counts, published partitions and renames in the ledger."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, select, update

from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.database.tables import (
    failed_runs,
    late_notices,
    late_periods,
    published_partitions,
    refreshes,
    stages,
    watched_tables,
)
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.ledger.readings import rename_readings


class SqlFailures:
    """The part of the ledger that counts failed scheduled runs. A successful refresh resets the count atomically."""

    _database: Database

    def record_failure(self, table: TableIdentifier, run: str, now: datetime, *, counts: bool = True) -> int:
        """Record that a scheduled run failed; only the first report of each run counts.

        A run that ended before another refresh of the table succeeded, or whose own commit landed, does not count.

        :return: the number of consecutive failures.
        """
        name = str(table)
        with self._database.transaction() as connection:
            known = select(failed_runs.c.run).where(failed_runs.c.table_name == name, failed_runs.c.run == run)
            if connection.scalar(known) is None:
                is_told_late = _succeeded_since(connection, name, run)
                row = {"table_name": name, "run": run, "noted_at": now, "counts": counts and not is_told_late}
                connection.execute(self._database.insert(failed_runs).values(row).on_conflict_do_nothing())
            return _count(connection, name)

    def failures_in_a_row(self, table: TableIdentifier) -> int:
        """Return the number of runs of a table that failed since its last successful refresh."""
        with self._database.transaction() as connection:
            return _count(connection, str(table))

    def forget_failures(self, table: TableIdentifier) -> None:
        """Reset the count."""
        with self._database.transaction() as connection:
            connection.execute(update(failed_runs).where(failed_runs.c.table_name == str(table)).values(counts=False))


def count_from_zero(connection: Connection, token: str) -> None:
    """Reset the count after the successful refresh of that token; a rollback does not count."""
    of = select(refreshes.c.table_name).where(refreshes.c.token == token, refreshes.c.action != RefreshAction.ROLLBACK)
    # Keep the rows, so that a run that is reported again is not counted again.
    counted = update(failed_runs).where(failed_runs.c.table_name == of.scalar_subquery(), failed_runs.c.counts)
    connection.execute(counted.values(counts=False))


def prune_failures(connection: Connection, before: datetime) -> None:
    """Delete records older than that which no longer count."""
    connection.execute(delete(failed_runs).where(failed_runs.c.noted_at < before, ~failed_runs.c.counts))


def _count(connection: Connection, table: str) -> int:
    counted = select(func.count()).where(failed_runs.c.table_name == table, failed_runs.c.counts)
    return connection.scalar(counted) or 0


def _succeeded_since(connection: Connection, table: str, run: str) -> bool:
    """Return whether a refresh of a table succeeded whose stage is the last one of a run, or was opened later."""
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


@dataclass(frozen=True, slots=True)
class PublishedPartition:
    """A partition as text, ``token`` of the version that last wrote its rows, and the time of the first one.

    ``done`` is the version whose commit policies ran, ``offered`` the one that a task tried to report to the scheduler,
    ``told`` the one of the scheduler's last event. A step is pending as long as its version differs from ``token``.
    """

    partition: str
    token: str
    published_at: datetime
    done: str | None = None
    offered: str | None = None
    told: str | None = None


class SqlPartitions:
    """The part of the ledger that stores published partitions."""

    _database: Database

    def published_partitions(self, table: TableIdentifier) -> list[PublishedPartition]:
        """Return the published partitions of a table, ordered by their texts."""
        query = select(published_partitions).where(published_partitions.c.table_name == str(table))
        with self._database.transaction() as connection:
            rows = connection.execute(query.order_by(published_partitions.c.partition)).mappings().all()
        return [PublishedPartition(**{name: row[name] for name in row if name != "table_name"}) for row in rows]

    def record_published(self, table: TableIdentifier, partitions: Collection[PublishedPartition]) -> None:
        """Insert or replace published partitions of a table."""
        with self._database.transaction() as connection:
            for one in partitions:
                values = {name: getattr(one, name) for name in PublishedPartition.__slots__}
                insert = self._database.insert(published_partitions).values(table_name=str(table), **values)
                key = [published_partitions.c.table_name, published_partitions.c.partition]
                connection.execute(insert.on_conflict_do_update(index_elements=key, set_=values))


class SqlNames:
    """The part of the ledger that renames tables."""

    _database: Database

    def rename_table(self, table: TableIdentifier, new: TableIdentifier) -> None:
        """Move everything that the ledger has of a table to another name, atomically; idempotent.

        The history of an earlier table of that name is kept, and precedes its own.
        """
        old_name, new_name = str(table), str(new)
        with self._database.transaction() as connection:
            last = connection.scalar(select(func.max(stages.c.ordinal)).where(stages.c.table_name == new_name)) or 0
            moved = {"table_name": new_name, "ordinal": stages.c.ordinal + last}
            connection.execute(update(stages).where(stages.c.table_name == old_name).values(moved))
            connection.execute(update(refreshes).where(refreshes.c.table_name == old_name).values(table_name=new_name))
            rename_readings(connection, old_name, new_name)
            for register in (published_partitions, failed_runs, watched_tables, late_periods, late_notices):
                has_own = select(register.c.table_name).where(register.c.table_name == old_name).limit(1)
                if connection.scalar(has_own) is not None:
                    connection.execute(delete(register).where(register.c.table_name == new_name))  # of an earlier table
                    connection.execute(update(register).where(register.c.table_name == old_name).values(table_name=new_name))

    def place_stage(self, token: str, location: str) -> None:
        """Record the location of a stage that was unknown when it was opened; an empty location marks it as unknown again."""
        with self._database.transaction() as connection:
            connection.execute(update(stages).where(stages.c.token == token).values(location=location))
