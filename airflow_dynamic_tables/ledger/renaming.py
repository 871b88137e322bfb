"""A table gets another name, or a stage its place: what the ledger knows of it follows."""

from __future__ import annotations

from abc import ABC, abstractmethod

from sqlalchemy import delete, func, select, update

from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.database.tables import failed_runs, published_partitions, refreshes, stages
from airflow_dynamic_tables.core.identifiers import TableIdentifier


class FollowsNames(ABC):
    """The part of a ledger that follows tables to other names."""

    @abstractmethod
    def rename_table(self, table: TableIdentifier, new: TableIdentifier) -> None:
        """Let refreshes, stages, published partitions and failures of a table be those of another name, in one step; idempotent.

        The history of an earlier table of that name stays before its own.
        """

    @abstractmethod
    def place_stage(self, token: str, location: str) -> None:
        """Note where the files of a stage are, when nobody knew that yet as it was opened; empty: nobody knows any more."""


class SqlNames(FollowsNames):
    """That part in a SQL database."""

    _database: Database

    def rename_table(self, table: TableIdentifier, new: TableIdentifier) -> None:
        """See :meth:`FollowsNames.rename_table`."""
        old_name, new_name = str(table), str(new)
        with self._database.transaction() as connection:
            last = connection.scalar(select(func.max(stages.c.ordinal)).where(stages.c.table_name == new_name)) or 0
            moved = {"table_name": new_name, "ordinal": stages.c.ordinal + last}
            connection.execute(update(stages).where(stages.c.table_name == old_name).values(moved))
            connection.execute(update(refreshes).where(refreshes.c.table_name == old_name).values(table_name=new_name))
            for register in (published_partitions, failed_runs):
                has_own = select(register.c.table_name).where(register.c.table_name == old_name).limit(1)
                if connection.scalar(has_own) is not None:
                    connection.execute(delete(register).where(register.c.table_name == new_name))  # of an earlier table
                    connection.execute(update(register).where(register.c.table_name == old_name).values(table_name=new_name))

    def place_stage(self, token: str, location: str) -> None:
        """See :meth:`FollowsNames.place_stage`."""
        with self._database.transaction() as connection:
            connection.execute(update(stages).where(stages.c.token == token).values(location=location))
