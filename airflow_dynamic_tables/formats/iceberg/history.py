"""Restoring and expiring versions of an Iceberg table, its position in a stream, and the deletion of orphan files."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

from pyiceberg.exceptions import CommitFailedException, ValidationError
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AssertRefSnapshotId, UpdatesAndRequirements
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.utils.concurrent import ExecutorFactory

from airflow_dynamic_tables.clients.files import Deleted, FileEntry, as_os_errors, plain_path
from airflow_dynamic_tables.clients.iceberg.catalog import warehouse
from airflow_dynamic_tables.clients.iceberg.revisions import dated
from airflow_dynamic_tables.clients.iceberg.schemas import columns_of
from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.schema import evolve
from airflow_dynamic_tables.core.versions import SHORTEST_AGE, Retention, StreamPosition
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConflictError, SchemaEvolutionError
from airflow_dynamic_tables.formats.commits import TOKEN
from airflow_dynamic_tables.formats.iceberg import snapshots as tables
from airflow_dynamic_tables.formats.iceberg.files import InOrder, TableTransaction
from airflow_dynamic_tables.formats.orphans import References, check_own_folder, delete_unreferenced

_ATTEMPTS = 5

_STREAM = "dynamic-tables.stream"
"""Table property with the position in a stream, and the snapshot that it belongs to."""


class RestoreFiles(InOrder["RestoreFiles"]):
    """A snapshot that refers to the manifests of an earlier one; the only file written is the manifest list.

    :raises SchemaEvolutionError: if the columns of that snapshot are not the first columns of the table, or its partition keys
        differ.
    """

    def __init__(self, transaction: Transaction, io: FileIO, snapshot_id: int, summary: dict[str, str]) -> None:
        super().__init__(Operation.OVERWRITE, transaction, io, snapshot_properties=summary)
        metadata = transaction.table_metadata
        self._restored = next(snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id == snapshot_id)
        schemas = {schema.schema_id: schema for schema in metadata.schemas}
        evolve(columns_of(schemas[self._restored.schema_id or 0]), columns_of(metadata.schema()))
        used = {manifest.partition_spec_id for manifest in self._restored.manifests(io)}
        if not all(metadata.specs()[number].compatible_with(metadata.spec()) for number in used):
            raise SchemaEvolutionError("It was partitioned by other keys.")

    def _existing_manifests(self) -> list[ManifestFile]:
        return self._restored.manifests(self._io)

    def _deleted_entries(self) -> list[ManifestEntry]:
        return []

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        totals = {key: value for key, value in tables.told(self._restored).items() if key.startswith("total-")}
        return Summary(self._operation, **totals, **snapshot_properties)


def due(table: Table, retention: Retention, now: datetime, pinned: Collection[str]) -> list[int]:
    """Return the snapshots to expire; the newest version never expires.

    Snapshots by others are not versions: they are kept while they are newer than the oldest version of the kept range. Branches
    and tags are always kept. A table without versions keeps all snapshots.
    """
    lineage = list(tables.lineage(table))
    last = 0
    newer = 0
    replaced_at: datetime | None = None
    sampled: dict[datetime, int] = {}
    for position, snapshot in enumerate(lineage):
        if _ids(snapshot) & set(pinned):
            last = position
        if TOKEN not in tables.told(snapshot):
            continue
        if replaced_at is None or retention.keeps(newer, replaced_at, now):
            last = position
        elif span := retention.span(_time(snapshot), replaced_at, now):
            sampled.setdefault(span, snapshot.snapshot_id)
        newer += 1
        replaced_at = _time(snapshot)
    if not newer:
        return []
    stay = {snapshot.snapshot_id for snapshot in lineage[: last + 1]} | set(sampled.values())
    stay |= {reference.snapshot_id for reference in table.metadata.refs.values()}
    of_lineage = {snapshot.snapshot_id for snapshot in lineage}
    youngest = now - max(retention.version_max_age, SHORTEST_AGE)
    return [
        snapshot.snapshot_id
        for snapshot in table.snapshots()
        if snapshot.snapshot_id not in stay
        and (snapshot.snapshot_id in of_lineage or (_time(snapshot) <= youngest and not _ids(snapshot) & set(pinned)))
    ]


def _ids(snapshot: Snapshot) -> set[str]:
    return {str(snapshot.snapshot_id), tables.told(snapshot).get(TOKEN, "")}


def _time(snapshot: Snapshot) -> datetime:
    return datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)


class _Expiry(ExpireSnapshots):
    """Snapshot expiry that is only committed if the current snapshot is unchanged; PyIceberg's has no such requirement."""

    def _commit(self) -> UpdatesAndRequirements:
        updates, _ = super()._commit()
        table = self._transaction._table
        head = {"ref": MAIN_BRANCH, "snapshot-id": table.metadata.current_snapshot_id}
        return (*updates, *dated(table)), (AssertRefSnapshotId.model_validate(head),)


def expire(store: IcebergStore, path: ObjectPath, choose: Callable[[Table], Sequence[int]]) -> int:
    """Expire the chosen snapshots; retries after concurrent commits.

    :return: the number of expired snapshots.
    :raises ConflictError: if concurrent commits prevent it repeatedly.
    """
    for _ in range(_ATTEMPTS):
        table = tables.load(store, path)
        if table is None or tables.keeps_files(table) or not (chosen := list(choose(table))):
            return 0
        try:
            with store.errors(), as_os_errors():
                changes = TableTransaction(table)
                _Expiry(changes).by_ids(chosen).commit()
                changes.commit_transaction()
        except (CommitFailedException, ValueError):
            continue  # concurrent commit, or concurrent expiry of the same snapshots
        except OSError as error:
            raise CatalogUnavailableError(f"Cannot forget versions of {path} in catalog {store.catalog}: {error}") from error
        return len(chosen)
    raise ConflictError(f"{path} was changed by others {_ATTEMPTS} times meanwhile; its old versions go next time.")


def position(table: Table | None) -> StreamPosition | None:
    """Return the table's position in a stream; ``None`` if its rows are of no stream, or were changed by others."""
    if table is None or (text := table.properties.get(_STREAM)) is None:
        return None
    try:
        recorded = json.loads(text)
        made = recorded.pop("snapshot")
        then = StreamPosition(**recorded)
    except (ValueError, TypeError, AttributeError, KeyError):
        return None  # properties may be written by anyone
    snapshot = table.current_snapshot()
    while snapshot is not None and str(snapshot.snapshot_id) != made:
        if not tables.keeps_rows(snapshot):
            return None
        # Follow parents, not the lineage: the effect of an expired snapshot is unknown.
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id is not None else None
    return then if snapshot is not None else None


def remember_position(transaction: Transaction, position: StreamPosition | None, snapshot_id: int) -> None:
    """Write the stream position as of the transaction's snapshot into the table properties."""
    if position is not None:
        transaction.set_properties({_STREAM: json.dumps({**asdict(position), "snapshot": str(snapshot_id)}, sort_keys=True)})
    elif _STREAM in transaction.table_metadata.properties:
        transaction.remove_properties(_STREAM)


_METADATA = (".avro", ".metadata.json", ".puffin", ".stats")
"""Suffixes of metadata files that Iceberg writes; other files in the metadata folder are kept."""

LONGEST_COMMIT = timedelta(days=1)
"""Longest supported time between a commit's first metadata file and its swap."""

log = logging.getLogger(__name__)


def delete_orphans(store: IcebergStore, path: ObjectPath, before: datetime, held: Callable[[], Collection[str]]) -> Deleted:
    """See :meth:`~airflow_dynamic_tables.formats.base.LakeTable.delete_orphans`.

    A running commit has written metadata that is not referenced yet. While a stage is unfinished, metadata files are deleted only
    if they are a day older than the newest file, independently of the local clock.
    """
    table = tables.load(store, path)
    if table is None:
        return Deleted()
    if why := tables.keeps_files(table):
        log.info("%s %s; nothing of it is deleted.", path, why)
        return Deleted()
    location = table.location().rstrip("/")
    check_own_folder(location, [*filter(None, [warehouse(store.tables)]), *_other_folders(store, table)])

    def read(entries: Sequence[FileEntry]) -> References | None:
        table = tables.load(store, path)
        if table is None or table.location().rstrip("/") != location:
            return None
        files = {plain_path(uri) for uri in _references(table)}
        if stranger := _other_table(table, entries, files):
            log.warning("%s is of another table than %s, in the same folder; nothing in it is deleted.", stranger, path)
            return None
        metadata_before = min(before, _newest(entries) - LONGEST_COMMIT)
        root = plain_path(location)

        def limit(entry: FileEntry, has_stages: bool) -> datetime | None:
            if entry.path.startswith(f"{root}/data/"):
                return before
            is_metadata = entry.path.startswith(f"{root}/metadata/") and entry.path.endswith(_METADATA)
            return (metadata_before if has_stages else before) if is_metadata else None

        return References(files, limit)

    return delete_unreferenced(location, held, read)


def _other_folders(store: IcebergStore, table: Table) -> list[str]:
    folder = plain_path(table.location())
    own = f"{folder}/metadata"  # which Iceberg's Java library may write with another number of slashes
    return [uri.rpartition("/")[0] for uri in store.metadata_in(f"{folder}/") if plain_path(uri).rpartition("/")[0] != own]


def _newest(entries: Sequence[FileEntry]) -> datetime:
    """Return the modification time of the newest file, by the storage clock."""
    return max((entry.changed_at for entry in entries if entry.changed_at is not None), default=datetime.max.replace(tzinfo=UTC))


def _other_table(table: Table, entries: Sequence[FileEntry], used: Collection[str]) -> str | None:
    """Return a metadata file of another table in this folder; the first release placed tables by name alone."""
    location = table.location().rstrip("/")
    root = plain_path(location)
    for entry in entries:
        if not entry.path.endswith(".metadata.json") or entry.path in used:
            continue
        uri = location + entry.path[len(root) :]
        try:
            with as_os_errors():
                other = FromInputFile.table_metadata(table.io.new_input(uri))
        except FileNotFoundError:
            continue  # deleted by a concurrent commit
        except (ValueError, ValidationError):
            continue  # incomplete file, not used by any table
        except OSError as error:
            raise CatalogUnavailableError(f"Cannot read {uri}: {error}") from error
        if other.table_uuid != table.metadata.table_uuid:
            return uri
    return None


def _references(table: Table) -> set[str]:
    """Return all files referenced by the table's metadata."""
    metadata = table.metadata
    used = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    used |= {file.statistics_path for file in (*metadata.statistics, *metadata.partition_statistics)}
    try:
        return used | _files_of(metadata.snapshots, table.io)
    except (OSError, ValueError) as error:
        raise CatalogUnavailableError(f"Cannot read the metadata of {'.'.join(table.name())}: {error}") from error


@as_os_errors()
def _files_of(snapshots: Sequence[Snapshot], io: FileIO) -> set[str]:
    """Return all manifest lists, manifests and data files."""
    manifests: dict[str, ManifestFile] = {}
    for snapshot in snapshots:
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(io)}
    used = {snapshot.manifest_list for snapshot in snapshots} | manifests.keys()
    for entries in ExecutorFactory.get_or_create().map(lambda manifest: manifest.fetch_manifest_entry(io), manifests.values()):
        used |= {entry.data_file.file_path for entry in entries}
    return used
