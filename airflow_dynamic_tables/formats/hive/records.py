"""Records in the folder of a Hive table: its owners, and the commits of its stages.

They are all below ``_versions``, which engines ignore::

    _tables/<id>              marks that the table with this id has its versions here
    _tables/<id>.json         the last version committed by that table
    <token>/_replaced.json    the folders replaced by this commit; as old as the commit
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime

from hive_metastore.ttypes import Table

from airflow_dynamic_tables.clients.files import Entry, exists, plain_path, read_text, write_text
from airflow_dynamic_tables.clients.metastore.tables import file_uri
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import DynamicTableError
from airflow_dynamic_tables.formats.hive import parameters as tables

log = logging.getLogger(__name__)

_REPLACED = "_replaced.json"


def marks_folder(location: str) -> str:
    """Return the folder of the marks in the folder of all stages."""
    return f"{location}/_tables"


def claim(table: Table) -> None:
    """Mark the folder of a table as its own, beside marks of other tables; idempotent."""
    mark = _mark(table)
    if not exists(mark):
        write_text(mark, f"{table.dbName}.{table.tableName}")


def owners(entries: Iterable[Entry], location: str, before: datetime) -> dict[str, bool]:
    """Return the ids of all tables that marked a folder, and whether each mark is older than a time.

    :param entries: all entries of the folder of stages, whose URI is ``location``.
    """
    folder = plain_path(marks_folder(location))
    marks = [entry for entry in entries if entry.path.rpartition("/")[0] == folder and not entry.path.endswith(".json")]
    return {mark.path.rpartition("/")[2]: mark.changed_at is not None and mark.changed_at < before for mark in marks}


def record(table: Table, version: Version) -> None:
    """Record the version after a commit; a failure is only logged, because the commit has succeeded."""
    try:
        write_text(f"{_mark(table)}.json", json.dumps(to_plain(version), sort_keys=True))
    except (DynamicTableError, OSError):
        name = f"{table.dbName}.{table.tableName}"
        log.exception("Version %s of %s landed, but could not be recorded in its folder.", version.number, name)


def undone(table: Table) -> Version | None:
    """Return the last committed version if the table does not record it, because others wrote back an older state."""
    last: Version | None = None
    with suppress(FileNotFoundError, ValueError):
        last = from_plain(Version, json.loads(read_text(f"{_mark(table)}.json")))
    known = tables.versions(table)
    if last is None or (known and known[-1].number > last.number) or tables.find(table, last.token):
        return None
    pending = tables.pending(table)
    return None if pending is not None and pending.version.token == last.token else last  # if pending, it is not recorded yet


def write_replaced(stage: str, locations: Iterable[str]) -> None:
    """Record the folders that a commit replaces, before the commit."""
    write_text(f"{stage}/{_REPLACED}", json.dumps([file_uri(location) for location in locations]))


def replaced_by(stage: str) -> list[str]:
    """Return the folders replaced by the commit of a stage; empty if no longer recorded."""
    with suppress(FileNotFoundError, ValueError):
        return list(json.loads(read_text(f"{stage}/{_REPLACED}")))
    return []


def was_about_to_land(stage: str) -> bool:
    """Return whether a commit of a stage may have succeeded.

    :raises CatalogUnavailableError: if this cannot be determined.
    """
    return exists(f"{stage}/{_REPLACED}")


def replaced_since(entries: Sequence[Entry], location: str, before: datetime) -> list[str]:
    """Return the folders replaced since a time."""
    root = plain_path(location)
    folders: list[str] = []
    for entry in entries:
        if entry.path.endswith(f"/{_REPLACED}") and entry.changed_at is not None and entry.changed_at >= before:
            folders += json.loads(read_text(f"{location}{entry.path[len(root) :]}"))
    return folders


def _mark(table: Table) -> str:
    return f"{marks_folder(f'{tables.root(table)}/{tables.VERSIONS}')}/{tables.identity(table)}"
