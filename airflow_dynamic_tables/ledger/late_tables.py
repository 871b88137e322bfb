"""Watched tables and notices of late ones in the ledger."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import delete, select, update

from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.database.tables import late_notices, watched_tables
from airflow_dynamic_tables.core.identifiers import TableIdentifier


class SqlLateTables:
    """The part of the ledger that notifies each callback of a late table once, whichever process checks the tables."""

    _database: Database

    def watched_since(self, tables: Collection[TableIdentifier], now: datetime) -> dict[TableIdentifier, datetime]:
        """Return since when each of these tables is watched: from now on, if it was not watched before."""
        every = select(watched_tables.c.table_name, watched_tables.c.since)
        with self._database.transaction() as connection:
            known = {row.table_name: row.since for row in connection.execute(every)}
            new = [{"table_name": str(table), "since": now} for table in tables if str(table) not in known]
            if new:
                # Another process may have inserted them meanwhile.
                connection.execute(self._database.insert(watched_tables).on_conflict_do_nothing(), new)
        return {table: known.get(str(table), now) for table in tables}

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
