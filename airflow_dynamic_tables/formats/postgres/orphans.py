"""Orphans of interrupted refreshes: stage tables, and the folders that record them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from airflow_dynamic_tables.clients.deleting import Deleted, delete_entries
from airflow_dynamic_tables.clients.files import Entry, list_entries, plain_path
from airflow_dynamic_tables.clients.postgres.ddl import STAGE, TableName, is_own
from airflow_dynamic_tables.clients.postgres.server import literal, quote
from airflow_dynamic_tables.clients.stores import PostgresStore
from airflow_dynamic_tables.exceptions import ConflictError
from airflow_dynamic_tables.formats.exclusive_location import check_own_folder
from airflow_dynamic_tables.formats.postgres.stage import STAGES, drop_stage

log = logging.getLogger(__name__)

_MARK = "airflow-dynamic-tables: abandoned since "
"""Prefix of the comment on a stage table that has no folder."""

_LEFT = """
SELECT c.relname AS name, obj_description(c.oid, 'pg_class') AS comment,
  extract(epoch FROM now())::double precision AS now
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relkind = 'r' AND starts_with(c.relname, %(prefix)s)
"""


def delete_left(
    store: PostgresStore, database: str, table: TableName, folder: str, age: tuple[datetime, Callable[[], Collection[str]]]
) -> Deleted:
    """Drop the stage tables of finished refreshes, and delete their folders.

    :param folder: URI of the table's folder.
    :param age: the age limit and the stages in use, see :meth:`LakeTable.delete_orphans`.
    """
    before, held = age
    stages = f"{folder}/{STAGES}"
    check_own_folder(stages, ())
    root = plain_path(stages)
    entries = list_entries(stages)
    with store.server.connected(database) as opened:
        left = opened.rows(_LEFT, {"schema": table.schema, "prefix": f"{table.table}{STAGE}"})
    holding = {plain_path(stage).removeprefix(f"{root}/").partition("/")[0] for stage in held()}
    folders: dict[str, list[Entry]] = {}
    for entry in entries:
        folders.setdefault(entry.path.removeprefix(f"{root}/").partition("/")[0], []).append(entry)
    due = [name for name, inside in folders.items() if name not in holding and _is_older(inside, before)]
    deleted = Deleted()
    for name in due:
        try:
            deleted += _dropped(store, database, table, table.stage(unquote(name)))
        except ConflictError as error:
            log.warning("%s", error)
            continue  # keep the folder, too, so that the next run finds the stage table
        deleted += delete_entries(stages, folders[name])
    known = {table.stage(unquote(name)).table for name in (*folders, *holding)}
    for stage in _without_folder(store, database, table, (row for row in left if row.name not in known), before):
        deleted += _dropped(store, database, table, stage)
    return deleted


def _is_older(entries: Iterable[Entry], before: datetime) -> bool:
    """Return whether all files of a folder are old; folders are ignored because object stores keep no time for them."""
    return all(entry.changed_at is not None and entry.changed_at < before for entry in entries if not entry.is_folder)


def _dropped(store: PostgresStore, database: str, table: TableName, stage: TableName) -> Deleted:
    size = drop_stage(store, database, table, stage)
    return Deleted(0 if size is None else 1, size or 0)


def _without_folder(
    store: PostgresStore, database: str, table: TableName, left: Iterable[Any], before: datetime
) -> list[TableName]:
    """Return expired stage tables without a folder: their jobs began to write after the refresh was abandoned.

    PostgreSQL does not record when a table was created, so the first run that finds a table writes the time into its comment.
    """
    if table.has_namesakes:  # a refresh of a table with a similar name may be writing to them
        return []
    due = []
    for row in left:
        name, comment, now = row.name, row.comment or "", datetime.fromtimestamp(row.now, UTC)
        stage = TableName(table.schema, name)
        if not is_own(name):
            continue
        if not comment.startswith(_MARK):
            with store.server.transaction(database, store.lock_timeout) as opened:
                opened.run(f"COMMENT ON TABLE {quote(stage.schema, stage.table)} IS {literal(_MARK + now.isoformat())}")
        elif datetime.fromisoformat(comment.removeprefix(_MARK)) < before:
            due.append(stage)
    return due
