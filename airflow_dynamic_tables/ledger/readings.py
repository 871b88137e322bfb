"""The states of sources as refreshes read them, the refresh that made each partition, and the dirty ones, in the ledger.

A source may have thousands of partitions, of which few change between two refreshes. Therefore only changes are stored. The
states of a source are numbered for each table that reads it, and a partition has a row for every *reading* that found it
changed. The state of a reading consists of the last row of each partition up to it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection, RowMapping, Select, bindparam, delete, exists, func, insert, select, union_all, update

from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.database.tables import (
    dirty_findings,
    made_partitions,
    refreshes,
    source_partitions,
    source_states,
    stages,
    table_locks,
)
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet, parse_spec
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.core.refresh.source_changes import (
    DirtyFinding,
    DirtyPartitions,
    Made,
    MadePartitions,
    PartitionChange,
    Readings,
    SourceState,
    sorted_text,
)
from airflow_dynamic_tables.ledger.base import WITHOUT_VERSION

_WHOLE = ("version", "identity", "location", "schema")
"""Fields of the state of a source besides its partitions."""

_GONE = (0, None, False)


class SqlReadings:
    """The part of the ledger that stores the states of sources and the partitions that refreshes made."""

    _database: Database

    def record_source_states(self, table: TableIdentifier, token: str, states: Mapping[str, SourceState]) -> None:
        """Insert or replace the states of these sources of a refresh, by full name."""
        with self._database.transaction() as connection:
            lock_table(self._database, connection, table)
            for source, state in states.items():
                of_source = (source_states.c.token == token) & (source_states.c.source == source)
                connection.execute(delete(source_states).where(of_source))
                reading = _record_reading(connection, str(table), source, state)
                row = {"token": token, "source": source, "table_name": str(table), "reading": reading}
                connection.execute(insert(source_states).values({**row, **{name: getattr(state, name) for name in _WHOLE}}))

    def source_states(self, token: str) -> dict[str, SourceState]:
        """Return the states of the sources of a refresh, by full name; missing sources are unknown.

        They are kept as long as the refresh, unless it made no version, and as long as a partition is as that refresh made it.
        """
        with self._database.transaction() as connection:
            rows = connection.execute(select(source_states).where(source_states.c.token == token)).mappings().all()
            return {row["source"]: _whole_state(connection, row) for row in rows}

    def readings(self, table: TableIdentifier, source: str) -> Readings:
        """Return the states of a source that the refreshes of a table recorded."""
        of_source = (source_states.c.table_name == str(table)) & (source_states.c.source == source)
        with self._database.transaction() as connection:
            rows = connection.execute(select(source_states).where(of_source)).mappings().all()
            changes = _changes(connection, str(table), source)
        return Readings({row["token"]: (row["reading"], _state(row)) for row in rows}, changes)

    def made_partitions(self, table: TableIdentifier) -> MadePartitions:
        """Return the refresh that last made each partition of a table, as far as the ledger knows it."""
        query = select(made_partitions).where(made_partitions.c.table_name == str(table))
        with self._database.transaction() as connection:
            rows = connection.execute(query).all()
        return MadePartitions({row.partition: Made(row.version, row.token, row.recipe, row.search) for row in rows})

    def dirty_finding(self, table: TableIdentifier) -> DirtyFinding | None:
        """Return the result of the last search for the dirty partitions of a table; ``None`` if there was none."""
        with self._database.transaction() as connection:
            return _dirty_finding(connection, table)

    def record_dirty(self, table: TableIdentifier, dirty: DirtyPartitions, found_at: datetime, since: int) -> int:
        """Record the result of a search for the dirty partitions of a table.

        :param found_at: when it began.
        :param since: the number of the last search, or zero, when it began. If another one was recorded since, the partitions
            that either found are dirty.
        :return: the number of the last search before the compared sources were read: this one, or ``since`` if there was another.
        """
        with self._database.transaction() as connection:
            lock_table(self._database, connection, table)
            last = _dirty_finding(connection, table)
            number = max(last.number if last is not None else 0, since) + 1
            is_last = number == since + 1
            if last is not None and not is_last:
                dirty = _union(dirty, last.dirty)
            before = dirty.before.isoformat() if dirty.before is not None else None
            found = {"number": number, "found_at": found_at, "count": dirty.count, "before": before}
            row = {"table_name": str(table), **found, "partitions": dirty.partitions.to_plain()}
            upsert = self._database.insert(dirty_findings).values(row)
            connection.execute(upsert.on_conflict_do_update(index_elements=[dirty_findings.c.table_name], set_=row))
            return number if is_last else since


def lock_table(database: Database, connection: Connection, table: TableIdentifier) -> None:
    """Serialise transactions of a table that open or resume stages, or number readings."""
    connection.execute(database.insert(table_locks).values(table_name=str(table)).on_conflict_do_nothing())
    connection.execute(select(table_locks).where(table_locks.c.table_name == str(table)).with_for_update())


def _dirty_finding(connection: Connection, table: TableIdentifier) -> DirtyFinding | None:
    query = select(dirty_findings).where(dirty_findings.c.table_name == str(table))
    row = connection.execute(query).mappings().first()
    if row is None:
        return None
    before = datetime.fromisoformat(row["before"]) if row["before"] is not None else None
    dirty = DirtyPartitions(PartitionSet.from_plain(row["partitions"]), row["count"], before)
    return DirtyFinding(row["number"], row["found_at"], dirty)


def _union(one: DirtyPartitions, other: DirtyPartitions) -> DirtyPartitions:
    """Return the partitions that either search found; those that one did not compare are not compared."""
    ends = [each.before for each in (one, other) if each.before is not None]
    union = one.with_more(other.partitions, other.count - len(other.partitions))
    return replace(union, before=min(ends, default=None))


def _record_reading(connection: Connection, table: str, source: str, state: SourceState) -> int | None:
    """Store what changed since the last reading; return the number of the new one, ``None`` if the partitions are unknown."""
    if state.partitions is None:
        return None
    before = _changes(connection, table, source)
    # Readings of refreshes without a version are deleted, their changes are not.
    numbers = [
        select(func.max(each.c.reading)).where(each.c.table_name == table, each.c.source == source)
        for each in (source_states, source_partitions)
    ]
    reading = 1 + max(number or 0 for number in connection.scalars(union_all(*numbers)))
    changed = []
    for name in before.keys() | state.partitions.keys() | set(state.unsettled):
        seen = (state.partitions.get(name), name in state.unsettled)
        if before.get(name, _GONE)[1:] != seen:
            changed.append({"partition": name, "fingerprint": seen[0], "unsettled": seen[1]})
    if changed:
        row = {"table_name": table, "source": source, "reading": reading}
        connection.execute(insert(source_partitions), [{**row, **one} for one in changed])
    return reading


def _changes(connection: Connection, table: str, source: str, until: int | None = None) -> dict[str, PartitionChange]:
    """Return the last change of each partition of a source, by its text, up to a reading."""
    columns = source_partitions.c
    query = select(columns.partition, columns.reading, columns.fingerprint, columns.unsettled)
    query = query.where(columns.table_name == table, columns.source == source).order_by(columns.reading)
    if until is not None:
        query = query.where(columns.reading <= until)
    return {row.partition: (row.reading, row.fingerprint, row.unsettled) for row in connection.execute(query)}


def _state(row: RowMapping) -> SourceState:
    return SourceState(**{name: row[name] for name in _WHOLE})


def _whole_state(connection: Connection, row: RowMapping) -> SourceState:
    if row["reading"] is None:
        return _state(row)
    found = _changes(connection, row["table_name"], row["source"], row["reading"])
    partitions = {name: told for name, (_, told, _) in found.items() if told is not None}
    unsettled = tuple(sorted(name for name, (_, _, is_unsettled) in found.items() if is_unsettled))
    return replace(_state(row), partitions=partitions, unsettled=unsettled)


def record_made(connection: Connection, token: str) -> None:
    """Record the partitions that the committed refresh of that token made."""
    refresh = connection.execute(select(refreshes).where(refreshes.c.token == token)).mappings().first()
    if refresh is None or refresh["action"] in (RefreshAction.ADD, RefreshAction.SKIP):
        return
    table, version = refresh["table_name"], refresh["version"] or 0
    of_table = made_partitions.c.table_name == table
    if refresh["action"] == RefreshAction.ROLLBACK:
        later = made_partitions.c.version > (refresh["restores"] or 0)
        connection.execute(update(made_partitions).where(of_table, later).values(token=None))
        return
    made = PartitionSet.from_plain(refresh["partitions"])
    if made.is_whole or refresh["action"] == RefreshAction.INITIALIZE:
        connection.execute(delete(made_partitions).where(of_table))
    else:
        known = connection.scalars(select(made_partitions.c.partition).where(of_table)).all()
        if replaced := [{"replaced": text} for text in known if text and made.covers(parse_spec(text))]:
            is_replaced = made_partitions.c.partition == bindparam("replaced")
            connection.execute(delete(made_partitions).where(of_table, is_replaced), replaced)
    search = connection.scalar(select(stages.c.search).where(stages.c.token == token))
    row = {"table_name": table, "version": version, "token": token, "recipe": refresh["recipe"] or None, "search": search}
    if rows := [{**row, "partition": text} for text in {sorted_text(spec) for spec in made}]:
        connection.execute(insert(made_partitions), rows)


def forget_made(connection: Connection, tokens: Collection[str]) -> None:
    """Record that the partitions that these refreshes made are no longer as they made them."""
    connection.execute(update(made_partitions).where(made_partitions.c.token.in_([*tokens])).values(token=None))


def rename_readings(connection: Connection, old_name: str, new_name: str) -> None:
    """Move the states and partitions of a table to another name, whose own ones are of an earlier table."""
    has_own = select(source_states.c.table_name).where(source_states.c.table_name == old_name).limit(1)
    if connection.scalar(has_own) is None:
        return  # renamed already
    connection.execute(update(source_states).where(source_states.c.table_name == new_name).values(reading=None))
    for register in (source_partitions, made_partitions, dirty_findings):
        connection.execute(delete(register).where(register.c.table_name == new_name))
    for register in (source_states, source_partitions, made_partitions, dirty_findings):
        connection.execute(update(register).where(register.c.table_name == old_name).values(table_name=new_name))


def prune_readings(connection: Connection) -> None:
    """Delete the states of deleted refreshes and of those that ended without a version, and the changes before all others."""
    kept: Select[tuple[str]] = select(refreshes.c.token).where(refreshes.c.state.not_in(WITHOUT_VERSION))
    made = select(made_partitions.c.token).where(made_partitions.c.token.is_not(None))
    unused = source_states.c.token.not_in(kept) & source_states.c.token.not_in(made)
    connection.execute(delete(source_states).where(unused))
    of_source = (source_states.c.table_name == source_partitions.c.table_name) & (
        source_states.c.source == source_partitions.c.source
    )
    oldest = select(func.min(source_states.c.reading)).where(of_source).scalar_subquery()
    later = source_partitions.alias()
    is_replaced = exists().where(
        *(later.c[name] == source_partitions.c[name] for name in ("table_name", "source", "partition")),
        later.c.reading > source_partitions.c.reading,
        later.c.reading <= oldest,
    )
    connection.execute(delete(source_partitions).where(is_replaced))
