"""Records in the folder of a Hive table, and the versions that other engines undid.

The records are all below ``_versions``, which engines ignore::

    _tables/<id>              marks that the table with this id has its versions here
    _tables/<id>.json         the last version committed by that table
    <token>/_replaced.json    the folders replaced by this commit; as old as the commit

The metastore does no compare-and-swap when other engines alter a table. A partition has the rows of the folder that it refers to,
and the name of that folder identifies the version that wrote them. If a later version replaced the partition, it was written
back.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from urllib.parse import unquote

from hive_metastore.ttypes import Partition, Table

from airflow_dynamic_tables.clients.files import FileEntry, exists, list_files, plain_path, read_text, write_text
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.metastore.tables import file_uri, partition_keys_of
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import NULL_PARTITION, PartitionSet
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.schema import partition_of
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import DynamicTableError
from airflow_dynamic_tables.formats.base import Undone
from airflow_dynamic_tables.formats.commits import ATTEMPTS, TOKEN
from airflow_dynamic_tables.formats.hive import parameters as tables
from airflow_dynamic_tables.formats.hive.commits import HiveCommits, Values

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


def owners(entries: Iterable[FileEntry], location: str, before: datetime) -> dict[str, bool]:
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


def replaced_since(entries: Sequence[FileEntry], location: str, before: datetime) -> list[str]:
    """Return the folders replaced since a time."""
    root = plain_path(location)
    folders: list[str] = []
    for entry in entries:
        if entry.path.endswith(f"/{_REPLACED}") and entry.changed_at is not None and entry.changed_at >= before:
            folders += json.loads(read_text(f"{location}{entry.path[len(root) :]}"))
    return folders


def _mark(table: Table) -> str:
    return f"{marks_folder(f'{tables.root(table)}/{tables.VERSIONS}')}/{tables.identity(table)}"


_NAMED = 10
"""Most partitions named in a message."""


def find_undone(metastore: Metastore, path: ObjectPath, table: Table | None) -> list[Undone] | None:
    """See :meth:`~airflow_dynamic_tables.formats.base.LoadedTable.undone`; ``None`` if commits keep changing the table.

    :param table: the loaded table; it is loaded again only if something seems undone.
    """
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(0.02 * attempt)
            table = tables.load(metastore, path)
        if table is None or tables.identity(table) is None:
            return []
        found = _undone_partitions(metastore, path, table) if table.partitionKeys else _undone_table(table)
        if not found:
            return []
        now = tables.load(metastore, path)
        if now is None or tables.revision(now) == tables.revision(table):
            return found if now is not None else []
    return None


def find_dropped(table: Table, partitions: Collection[Values], files: Iterable[str]) -> Iterator[tuple[Version, PartitionSet]]:
    """Yield the partitions that a version filled, no later version replaced, and the table lost; oldest version first.

    :param table: the table, read after its ``partitions``.
    :param files: the paths of all files of the table's stages.
    """
    keys = partition_keys_of(table)
    stages = f"{plain_path(tables.root(table))}/{tables.VERSIONS}/"
    filled: dict[str, set[Values]] = {version.token: set() for version in tables.versions(table)}
    for path in files:
        token, data, rest = (*path.removeprefix(stages).split("/", 2), "", "")[:3]
        values = tuple(partition_of(rest.rpartition("/")[0]).values())
        if path.startswith(stages) and data == "data" and len(values) == len(keys) and unquote(token) in filled:
            filled[unquote(token)].add(values)
    history = _history(table, tables.versions(table), {token: frozenset(found) for token, found in filled.items()})
    for version in reversed(history.versions):
        gone = [values for values in filled[version.token] if values not in partitions and history.last_of(values) is version]
        if gone:
            yield version, history.specs(sorted(gone))


def _undone_table(table: Table) -> list[Undone]:
    lost = undone(table)
    if lost is None or tables.is_of(table, table, lost.token):
        return []  # the table has its rows
    how = f"which wrote the table back as it had read it before ({tables.last_change(table)}); its rows are kept"
    return [Undone(lost, how)]


def _undone_partitions(metastore: Metastore, path: ObjectPath, table: Table) -> list[Undone]:
    lost = undone(table)
    history = _history(table, [*tables.versions(table), *([lost] if lost is not None else [])], {})
    put_back: dict[int, list[Values]] = {}
    for values, one in HiveCommits(metastore, path).partitions(table, history.named()).items():
        version = history.last_of(values)
        if version is not None and history.is_put_back(version, values, one):
            put_back.setdefault(version.number, []).append(values)
    return [
        Undone(version, _how(specs := history.specs(put_back[version.number])), partitions=specs)
        for version in reversed(history.versions)
        if version.number in put_back
    ]


def _history(table: Table, versions: Iterable[Version], filled: dict[str, frozenset[Values]]) -> _History:
    newest_first = sorted((version for version in versions if version.number), key=lambda version: -version.number)
    return _History(table, partition_keys_of(table), newest_first, filled)


def named(partitions: PartitionSet) -> str:
    """Return the first partitions of a set, and the number of others."""
    first = str(PartitionSet.of(islice(partitions, _NAMED)))
    return f"{first} and {len(partitions) - _NAMED} more" if len(partitions) > _NAMED else first


def _how(partitions: PartitionSet) -> str:
    return f"which altered partitions, so that {named(partitions)} lead to other files; those of the version are kept"


@dataclass(slots=True)
class _History:
    """The recorded versions of a table, newest first, and the partitions that each replaced and filled."""

    table: Table
    keys: Sequence[str]
    versions: Sequence[Version]
    _filled: dict[str, frozenset[Values]]

    def specs(self, partitions: Iterable[Values]) -> PartitionSet:
        """Return partitions as specs by key."""
        return PartitionSet.of(self._spec(values) for values in partitions)

    def named(self) -> list[Values] | None:
        """Return the partitions that the versions replaced; ``None`` if a version does not list all of its partitions."""
        names: dict[Values, None] = {}
        for version in self.versions:
            if version.partitions is None or any(len(spec) != len(self.keys) for spec in version.partitions):
                return None
            names |= dict.fromkeys(tuple(spec[key] or NULL_PARTITION for key in self.keys) for spec in version.partitions)
        return list(names)

    def last_of(self, values: Values) -> Version | None:
        """Return the last version that replaced a partition."""
        return next((version for version in self.versions if self._has_replaced(version, values)), None)

    def is_put_back(self, version: Version, values: Values, one: Partition) -> bool:
        """Return whether a partition lost the rows of the last version that replaced it, other than by a later commit."""
        if tables.is_of(self.table, one, version.token):
            return False
        writer = tables.writer_of(self.table, one)
        pending = tables.pending(self.table)
        if pending is not None and writer == pending.version.token:
            return False
        if writer is None or tables.left_in(self.table, one.sd.location) is not None:
            return self._fills(version, values)  # otherwise others or a failed commit added it
        is_later = (one.parameters or {}).get(TOKEN) == writer and tables.number_of(one) > version.number
        return writer != version.token and not is_later and not self._is_compacted(version, writer)

    def _is_compacted(self, version: Version, token: str) -> bool:
        """Return whether a token is of a compaction of the version; only used if the record of the compaction is lost."""
        root = tables.root(self.table)
        stage = tables.stage_of(root, version.token)
        return any(tables.is_below(location, stage) for location in replaced_by(tables.stage_of(root, token)))

    def _has_replaced(self, version: Version, values: Values) -> bool:
        if version.partitions is None:
            return self._fills(version, values)
        return version.partitions.covers(self._spec(values))

    def _fills(self, version: Version, values: Values) -> bool:
        if version.token not in self._filled:
            self._filled[version.token] = self._listed(version)
        return values in self._filled[version.token]

    def _listed(self, version: Version) -> frozenset[Values]:
        folder = tables.data_of(tables.stage_of(tables.root(self.table), version.token))
        try:
            files = list_files(folder)
        except FileNotFoundError:
            return frozenset()
        start = len(plain_path(folder)) + 1
        folders = {plain_path(file)[start:].rpartition("/")[0] for file in files}
        return frozenset(tuple(partition_of(name).values()) for name in folders)

    def _spec(self, values: Values) -> Mapping[str, str]:
        return dict(zip(self.keys, values, strict=True))
