"""What became of each time partition of a table since it was published: whether it is complete, and who has heard of that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select

from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.database.tables import published_partitions
from airflow_dynamic_tables.core.identifiers import TableIdentifier


@dataclass(frozen=True, slots=True)
class PublishedPartition:
    """A partition by its text, ``token`` of the version that made its rows last, and when one did first.

    ``done`` is the version for which its policies ran, ``offered`` the one that a task wanted to tell the scheduler, ``told`` the
    one of which the scheduler has an event. As long as one of them is another than ``token``, that is still to do.
    """

    partition: str
    token: str
    published_at: datetime
    done: str | None = None
    offered: str | None = None
    told: str | None = None


class RemembersPartitions(ABC):
    """The part of a ledger that keeps published partitions."""

    @abstractmethod
    def published_partitions(self, table: TableIdentifier) -> list[PublishedPartition]:
        """Those of a table, in order of their texts."""

    @abstractmethod
    def record_published(self, table: TableIdentifier, partitions: Collection[PublishedPartition]) -> None:
        """Insert or replace some of a table."""


class SqlPartitions(RemembersPartitions):
    """That part in a SQL database."""

    _database: Database

    def published_partitions(self, table: TableIdentifier) -> list[PublishedPartition]:
        """See :meth:`RemembersPartitions.published_partitions`."""
        query = select(published_partitions).where(published_partitions.c.table_name == str(table))
        with self._database.transaction() as connection:
            rows = connection.execute(query.order_by(published_partitions.c.partition)).mappings().all()
        return [PublishedPartition(**{name: row[name] for name in row if name != "table_name"}) for row in rows]

    def record_published(self, table: TableIdentifier, partitions: Collection[PublishedPartition]) -> None:
        """See :meth:`RemembersPartitions.record_published`."""
        with self._database.transaction() as connection:
            for one in partitions:
                values = {name: getattr(one, name) for name in PublishedPartition.__slots__}
                insert = self._database.insert(published_partitions).values(table_name=str(table), **values)
                key = [published_partitions.c.table_name, published_partitions.c.partition]
                connection.execute(insert.on_conflict_do_update(index_elements=key, set_=values))
