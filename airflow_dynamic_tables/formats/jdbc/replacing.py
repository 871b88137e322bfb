"""What a commit does to a table, within one transaction: the stage takes its place, or some of its rows are replaced."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_dynamic_tables.clients.postgres.locks import LOCK_NOT_AVAILABLE
from airflow_dynamic_tables.clients.postgres.names import TableName
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, PostgresError, literal, quote
from airflow_dynamic_tables.core.tables.partitions import PartitionSet
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.exceptions import CommitRejectedError, SchemaEvolutionError, StageRejectedError
from airflow_dynamic_tables.formats.jdbc.carrying import Structure, other_types, structure
from airflow_dynamic_tables.formats.jdbc.checking import check_conversions, check_inserted
from airflow_dynamic_tables.formats.jdbc.locking import Horizon, lock_for_itself
from airflow_dynamic_tables.formats.jdbc.physical import ServerTable, find

log = logging.getLogger(__name__)

_PATIENCE = 2.0
"""Seconds for which a stage tries to take the place of a table that others read; deleting and inserting lets them read on."""

_NOT_CARRIED = ("0A", "2B", "42")
"""Classes of SQLSTATE of what cannot be carried over after all: not supported, something depends on it, no right or column."""

_VIOLATIONS = "23"
"""Class of SQLSTATE of rows that a constraint does not let in."""


_REFERRING = """
SELECT conrelid::regclass::text AS referring, conname AS name, confdeltype::text AS action FROM pg_constraint
WHERE contype = 'f' AND confrelid = %(oid)s ORDER BY 1, 2
"""


class _StaysError(Exception):
    """The table stays, and its rows are replaced."""


@dataclass(frozen=True, slots=True)
class Replacing:
    """A stage whose rows replace those of a table, as far as planned.

    ``rows`` is how many there are, ``horizon`` a moment at which the stage was whole. ``patience`` are seconds that others are
    waited for.
    """

    database: OpenDatabase
    stage: ServerTable
    rows: int
    horizon: Horizon
    patience: float

    def create(self, name: TableName) -> None:
        """Make the table of the stage."""
        new = ServerTable(name, self.stage.oid, None, self.stage.columns)
        if self.horizon.older_snapshots(self.database):
            # To them the table would seem to have a part of its rows: it is new, and theirs is not.
            self.database.run(f"CREATE TABLE {new.name.quoted} (LIKE {self.stage.name.quoted})")
            self.database.run(self._insertion(new))
            self._drop_stage()
            return
        self.database.run(f"ANALYZE {self.stage.name.quoted}")
        self.database.run(f"ALTER TABLE {self.stage.name.quoted} RENAME TO {quote(new.name.table)}")

    def replace(
        self, target: ServerTable, partitions: PartitionSet, columns: Sequence[Column], *, is_rebuild: bool = False
    ) -> None:
        """Replace rows of a table that is there.

        :param columns: those of the table afterwards; with ``is_rebuild`` they are others than before.
        """
        if not (partitions.is_whole and self.take_place(target, is_rebuild=is_rebuild)):
            self.delete_and_insert(target, partitions, [column for column in columns if column.name not in target.types])

    def take_place(self, old: ServerTable, *, is_rebuild: bool) -> bool:
        """Let the stage take the place of a table, with all that the table has besides its rows.

        :param is_rebuild: whether that is the only way, as other columns come.
        :return: False when the table has to stay, and is as it was.
        :raises SchemaEvolutionError: when it has to stay, and columns change.
        :raises PostgresError: when it is locked by others, and columns change.
        """
        found = structure(self.database, old, self.stage)
        obstacles = (*found.obstacles, *(() if is_rebuild else other_types(old, self.stage)))
        try:
            if obstacles:
                raise _StaysError(f"{'; '.join(obstacles[:5])}")
            with self.database.savepoint():
                self._swap(old, found, self.patience if is_rebuild else min(_PATIENCE, self.patience))
        except _StaysError as why:
            if is_rebuild:
                raise SchemaEvolutionError(
                    f"{old.name} cannot get other columns in one step: {why}. Remove that, or give the table another name."
                ) from None
            log.info("%s keeps its place, its rows are deleted and inserted: %s.", old.name, why)
            return False
        except PostgresError as error:
            raise violation(old, error) from error
        return True

    def _swap(self, old: ServerTable, found: Structure, patience: float) -> None:
        try:
            for statement in (*found.fitting, *found.before):
                self.database.run(statement)
            self.database.run(f"ANALYZE {self.stage.name.quoted}")  # a table without statistics has slow readers
            self._lock(old, patience)
            if structure(self.database, old, self.stage) != found or find(self.database, old.name) != old:
                raise _StaysError("it was altered just now")
            self.database.run(f"DROP TABLE {old.name.quoted}")
            self.database.run(f"ALTER TABLE {self.stage.name.quoted} RENAME TO {quote(old.name.table)}")
            for statement in found.after:
                self.database.run(statement)
        except PostgresError as error:
            if (error.sqlstate or "")[:2] in _NOT_CARRIED:
                raise _StaysError(" ".join((error.said, error.detail)).strip()) from error
            raise

    def _lock(self, old: ServerTable, patience: float) -> None:
        """Lock the table, while nobody has a snapshot that is older than the stage."""
        deadline = time.monotonic() + patience
        while True:
            try:
                with self.database.savepoint():
                    lock_for_itself(self.database, old.name, deadline - time.monotonic())
                    if older := self.horizon.older_snapshots(self.database):
                        raise _StaysError(f"a transaction is older than its new rows: {', '.join(older[:3])}")
            except _StaysError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.2)
            except PostgresError as error:
                if error.sqlstate == LOCK_NOT_AVAILABLE and patience < self.patience:
                    raise _StaysError("others use it") from error
                raise
            else:
                return

    def delete_and_insert(self, target: ServerTable, partitions: PartitionSet, new: Sequence[Column]) -> None:
        """Delete the rows of some partitions, and insert those of the stage; readers are not kept waiting.

        :param new: columns that the table does not have yet.
        """
        self.database.run(f"SET LOCAL lock_timeout = {int(self.patience * 1000)}")
        # Keeps other writers out, whose rows would otherwise stay beside those of the query.
        self.database.run(f"LOCK TABLE {target.name.quoted} IN SHARE ROW EXCLUSIVE MODE")
        if find(self.database, target.name) != target:
            raise CommitRejectedError(f"{target.name} was altered just now; try again.")
        check_conversions(self.database, self.stage, target)
        is_referred_to = self._check_references(target)
        if new:
            lock_for_itself(self.database, target.name, self.patience)
            for column in new:
                added = f"ADD COLUMN {quote(column.name)} {self.stage.types[column.name]}"
                self.database.run(f"ALTER TABLE {target.name.quoted} {added}")
        condition = "true" if partitions.is_whole else target.condition(partitions)
        # Tables that inherit from it are others' own; only partitions are its parts.
        deletion = f"DELETE FROM {'' if target.is_partitioned else 'ONLY '}{target.name.quoted} WHERE {condition}"
        try:
            if is_referred_to:  # in one statement, so that foreign keys to rows that come again hold at its end
                gone = f"WITH gone AS ({deletion} RETURNING 1)"
                self.database.run(f"{gone} {self._insertion(target)} WHERE (SELECT count(*) FROM gone) >= 0")
            else:
                self.database.run(deletion)
                self.database.run(self._insertion(target))
        except PostgresError as error:
            raise violation(target, error) from error
        (held,) = self.database.rows(f"SELECT count(*) AS rows FROM {target.name.quoted} WHERE {condition}")
        if held.rows != self.rows:
            raise StageRejectedError(
                f"{target.name} has {held.rows} rows where the query returned {self.rows}: a trigger or a rule of it, or a table "
                "that inherits from it, changes what is written; nothing was published."
            )
        try:
            check_inserted(self.database, self.stage, target, condition)
        except PostgresError as error:
            raise violation(target, error) from error
        self._drop_stage()

    def _check_references(self, target: ServerTable) -> bool:
        """Check that no row of another table goes with one that is deleted here, though it is inserted again.

        :return: whether foreign keys refer to the table at all.
        :raises StageRejectedError: when one would.
        """
        keys = self.database.rows(_REFERRING, {"oid": target.oid})
        for key in keys:
            if key.action in ("c", "n", "d"):
                raise StageRejectedError(
                    f"{key.referring} refers to {target.name} by the foreign key {key.name} with an action on DELETE, so that "
                    "replacing rows would change its rows, too; make the foreign key one without, or drop it."
                )
        return bool(keys)

    def _insertion(self, target: ServerTable) -> str:
        names = ", ".join(map(quote, self.stage.types))
        into = f"INSERT INTO {target.name.quoted} ({names}) OVERRIDING SYSTEM VALUE"
        return f"{into} SELECT {names} FROM {self.stage.name.quoted}"

    def _drop_stage(self) -> None:
        self.database.run(f"DROP TABLE {self.stage.name.quoted}")


def describe_anew(database: OpenDatabase, table: ServerTable, comment: str | None, columns: Sequence[Column]) -> None:
    """Write the comments of a table and its columns, as far as they differ."""
    if comment is not None and comment != table.comment:
        database.run(f"COMMENT ON TABLE {table.name.quoted} IS {literal(comment)}")
    known = {column.name: column.comment for column in table.columns}
    for column in columns:
        if (column.comment or None) != known.get(column.name):
            text = literal(column.comment) if column.comment else "NULL"
            database.run(f"COMMENT ON COLUMN {table.name.quoted}.{quote(column.name)} IS {text}")


def violation(table: ServerTable, error: PostgresError) -> Exception:
    """The error of rows that a table does not take; any other one stays."""
    if (error.sqlstate or "")[:2] in (_VIOLATIONS, "22", "42"):
        said = " ".join((error.said, error.detail if error.detail not in error.said else "")).strip()
        return StageRejectedError(f"{table.name} does not take the rows of the query ({said}); nothing was published.")
    return error
