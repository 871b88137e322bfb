"""Watched tables, periods in which they were late, and notices of late ones in the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import bindparam, delete, select, update

from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.database.tables import late_notices, late_periods, watched_tables
from airflow_dynamic_tables.core.identifiers import TableIdentifier


@dataclass(frozen=True, slots=True)
class Watch:
    """Since when a table is watched, and its last check; a table that was not checked yet has none."""

    since: datetime
    checked_at: datetime | None = None
    late_from: datetime | None = None
    """The time from which it was, or would have been, late without another refresh."""


@dataclass(frozen=True, slots=True)
class LatePeriod:
    """A period in which a watched table was late."""

    since: datetime
    until: datetime
    is_certain: bool
    """Whether it was late; if not, it was not checked at that time."""


class SqlLateTables:
    """The part of the ledger that has the freshness of tables, and notifies each callback of a late table once.

    Several processes may check the tables.
    """

    _database: Database

    def watched(self) -> dict[TableIdentifier, Watch]:
        """Return the watched tables."""
        with self._database.transaction() as connection:
            rows = connection.execute(select(watched_tables)).all()
        return {TableIdentifier.parse(row.table_name): Watch(row.since, row.checked_at, row.late_from) for row in rows}

    def watches(self, tables: Collection[TableIdentifier], now: datetime) -> dict[TableIdentifier, Watch]:
        """Return how these tables are watched: from now on, if they were not watched before."""
        known = self.watched()
        new = [{"table_name": str(table), "since": now} for table in tables if table not in known]
        if new:
            with self._database.transaction() as connection:
                # Another process may have inserted them meanwhile.
                connection.execute(self._database.insert(watched_tables).on_conflict_do_nothing(), new)
        return {table: known.get(table, Watch(now)) for table in tables}

    def record_checks(
        self,
        late_from: Mapping[TableIdentifier, datetime],
        periods: Mapping[TableIdentifier, Sequence[LatePeriod]],
        now: datetime,
        keep_since: datetime,
    ) -> None:
        """Record a check of watched tables, and the late periods since their last check.

        Periods that end in the future are deleted: a wrong clock made them.

        :param late_from: see :class:`Watch`.
        :param keep_since: the end of periods to delete.
        """
        checks = [{"name": str(table), "checked_at": now, "late_from": time} for table, time in late_from.items()]
        checked = update(watched_tables).where(watched_tables.c.table_name == bindparam("name"))
        with self._database.transaction() as connection:
            if checks:
                connection.execute(checked.values(checked_at=bindparam("checked_at"), late_from=bindparam("late_from")), checks)
            connection.execute(delete(late_periods).where((late_periods.c.until <= keep_since) | (late_periods.c.until > now)))
            for table, those in periods.items():
                for period in those:
                    continued = (
                        (late_periods.c.table_name == str(table))
                        & (late_periods.c.until == period.since)
                        & (late_periods.c.is_certain == period.is_certain)
                    )
                    if not connection.execute(update(late_periods).where(continued).values(until=period.until)).rowcount:
                        row = {"table_name": str(table), **asdict(period)}
                        connection.execute(self._database.insert(late_periods).on_conflict_do_nothing(), row)

    def late_periods(self) -> dict[TableIdentifier, list[LatePeriod]]:
        """Return the retained late periods, in order; those of several processes may overlap."""
        found = defaultdict(list)
        with self._database.transaction() as connection:
            for row in connection.execute(select(late_periods).order_by(late_periods.c.since)):
                found[TableIdentifier.parse(row.table_name)].append(LatePeriod(row.since, row.until, row.is_certain))
        return found

    def claim_notice(self, table: TableIdentifier, callback: str, now: datetime, until: datetime) -> bool:
        """Claim the notice of a late table, unless it was sent, or another process claimed it and its claim has not expired.

        :param callback: identifies the callback.
        :param until: the end of the claim, when the notice is claimed again if it was not sent.
        """
        key = {"table_name": str(table), "callback": callback}
        is_free = late_notices.c.notified_at.is_(None) & (late_notices.c.claimed_until <= now)
        claim = self._database.insert(late_notices).values(**key, claimed_until=until)
        claim = claim.on_conflict_do_update(index_elements=list(key), set_={"claimed_until": until}, where=is_free)
        with self._database.transaction() as connection:
            return connection.scalar(claim.returning(late_notices.c.table_name)) is not None

    def record_notice(self, table: TableIdentifier, callback: str, now: datetime) -> None:
        """Record that a notice was sent; it is not sent again before the table was fresh."""
        of = (late_notices.c.table_name == str(table)) & (late_notices.c.callback == callback)
        with self._database.transaction() as connection:
            connection.execute(update(late_notices).where(of).values(notified_at=now))

    def forget_notices(self, fresh: Collection[TableIdentifier]) -> None:
        """Delete the notices of tables that are not late any more."""
        with self._database.transaction() as connection:
            noted = set(connection.scalars(select(late_notices.c.table_name).distinct()))
            if over := noted.intersection(map(str, fresh)):
                connection.execute(delete(late_notices).where(late_notices.c.table_name.in_(over)))
