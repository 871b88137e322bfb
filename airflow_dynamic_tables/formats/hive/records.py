"""What stands in the folder of a Hive table beside its rows: whose folder it is, and what commits say of themselves.

All of it lies below ``_versions``, where no engine looks for rows::

    _tables/<id>              a mark: the table of that id has its versions here
    _tables/<id>.json         the version that it committed last
    <token>/_replaced.json    the folders that this commit takes the place of; as old as the commit
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
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.exceptions import DynamicTableError
from airflow_dynamic_tables.formats.hive import parameters as tables

log = logging.getLogger(__name__)

_REPLACED = "_replaced.json"


def marks_folder(location: str) -> str:
    """Where the marks are in the folder of all stages."""
    return f"{location}/_tables"


def claim(table: Table) -> None:
    """Mark the folder of a table as its own, beside whoever else does; idempotent."""
    mark = _mark(table)
    if not exists(mark):
        write_text(mark, f"{table.dbName}.{table.tableName}")


def owners(entries: Iterable[Entry], location: str, before: datetime) -> dict[str, bool]:
    """The ids of all tables that marked a folder, and whether each did so before that time.

    :param entries: everything in the folder of all stages, whose URI is ``location``.
    """
    folder = plain_path(marks_folder(location))
    marks = [entry for entry in entries if entry.path.rpartition("/")[0] == folder and not entry.path.endswith(".json")]
    return {mark.path.rpartition("/")[2]: mark.changed_at is not None and mark.changed_at < before for mark in marks}


def record(table: Table, version: Version) -> None:
    """Write down, after a commit, which version it made; what is only a precaution fails no commit that landed."""
    try:
        write_text(f"{_mark(table)}.json", json.dumps(to_plain(version), sort_keys=True))
    except (DynamicTableError, OSError):
        name = f"{table.dbName}.{table.tableName}"
        log.exception("Version %s of %s landed, but could not be recorded in its folder.", version.number, name)


def undone(table: Table) -> Version | None:
    """The version that was committed last, when the table does not know it: somebody wrote back what they had read before."""
    last: Version | None = None
    with suppress(FileNotFoundError, ValueError):
        last = from_plain(Version, json.loads(read_text(f"{_mark(table)}.json")))
    known = tables.versions(table)
    if last is None or (known and known[-1].number > last.number) or tables.find(table, last.token):
        return None
    pending = tables.pending(table)
    return None if pending is not None and pending.version.token == last.token else last  # then it has yet to be recorded


def write_replaced(stage: str, locations: Iterable[str]) -> None:
    """Say, before a commit, which folders it takes the place of."""
    write_text(f"{stage}/{_REPLACED}", json.dumps([file_uri(location) for location in locations]))


def replaced_by(stage: str) -> list[str]:
    """The folders that the commit of a stage took the place of; empty once that is forgotten."""
    with suppress(FileNotFoundError, ValueError):
        return list(json.loads(read_text(f"{stage}/{_REPLACED}")))
    return []


def was_about_to_land(stage: str) -> bool:
    """Whether a commit of a stage went so far that it may have landed.

    :raises CatalogUnavailableError: when nobody can tell.
    """
    return exists(f"{stage}/{_REPLACED}")


def replaced_since(entries: Sequence[Entry], location: str, before: datetime) -> list[str]:
    """Folders that were replaced after that time."""
    root = plain_path(location)
    folders: list[str] = []
    for entry in entries:
        if entry.path.endswith(f"/{_REPLACED}") and entry.changed_at is not None and entry.changed_at >= before:
            folders += json.loads(read_text(f"{location}{entry.path[len(root) :]}"))
    return folders


def _mark(table: Table) -> str:
    return f"{marks_folder(f'{tables.root(table)}/{tables.VERSIONS}')}/{tables.identity(table)}"
