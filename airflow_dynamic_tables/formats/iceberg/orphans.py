"""Deletion of orphan files of an Iceberg table; files of other tables in its folder are kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from pyiceberg.exceptions import ValidationError
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.utils.concurrent import ExecutorFactory

from airflow_dynamic_tables.clients.deleting import Deleted, delete_entries
from airflow_dynamic_tables.clients.files import Entry, list_entries, plain_path
from airflow_dynamic_tables.clients.iceberg.catalog import warehouse
from airflow_dynamic_tables.clients.object_stores import as_os_errors
from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConfigurationError
from airflow_dynamic_tables.formats.exclusive_location import check_own_folder
from airflow_dynamic_tables.formats.iceberg import snapshots as tables

_METADATA = (".avro", ".metadata.json", ".puffin", ".stats")
"""Suffixes of metadata files that Iceberg writes; other files in the metadata folder are kept."""

LONGEST_COMMIT = timedelta(days=1)
"""Longest supported time between a commit's first metadata file and its swap."""

log = logging.getLogger(__name__)


def delete_orphans(store: IcebergStore, path: ObjectPath, before: datetime, held: Callable[[], Collection[str]]) -> Deleted:
    """See :meth:`~airflow_dynamic_tables.formats.base.LakeTable.delete_orphans`.

    The order of the steps makes this safe with concurrent refreshes: a file that existed at listing time belongs to a stage that
    is unfinished now, or to a commit that completed before and is referenced now, or it is an orphan. The held stages are read
    again after the table, because a restore that started in between has either read the table later, or is held now.

    A running commit has written metadata that is not referenced yet. While a stage is unfinished, metadata files are deleted only
    if they are a day older than the newest file, independently of the local clock.
    """
    table = tables.load(store, path)
    if table is None:
        return Deleted()
    location = table.location().rstrip("/")
    check_own_folder(location, [*filter(None, [warehouse(store.tables)]), *_other_folders(store, table)])
    entries = list_entries(location)
    trace(Step.LISTED, str(path))
    unfinished = {*held()}
    table = tables.load(store, path)
    unfinished |= {*held()}
    if table is None or table.location().rstrip("/") != location:
        return Deleted()
    used = {plain_path(uri) for uri in _references(table)}
    if used.isdisjoint(entry.path for entry in entries):
        raise ConfigurationError(
            f"The files of {path} are not listed below {location} as the table spells them; none is deleted."
        )
    if stranger := _other_table(table, entries, used):
        log.warning("%s is of another table than %s, in the same folder; nothing in it is deleted.", stranger, path)
        return Deleted()
    free = [entry for entry in entries if entry.path not in used]
    return delete_entries(location, _old(free, plain_path(location), before, unfinished, _newest(entries)))


def _other_folders(store: IcebergStore, table: Table) -> list[str]:
    """Return folders of other tables inside the folder of a table."""
    own = f"{table.location().rstrip('/')}/metadata"
    folders = (uri.rpartition("/")[0] for uri in store.metadata_in(f"{plain_path(table.location())}/"))
    return [folder for folder in folders if folder != own]


def _old(entries: Sequence[Entry], root: str, before: datetime, unfinished: Collection[str], newest: datetime) -> Iterator[Entry]:
    """Yield the files of the table that are old enough to delete.

    :param unfinished: folders of stages whose commits may be running.
    :param newest: modification time of the newest file, by the storage clock.
    """
    folders = tuple(f"{plain_path(folder)}/" for folder in unfinished)
    metadata_before = min(before, newest - LONGEST_COMMIT) if unfinished else before
    for entry in entries:
        limit = metadata_before if entry.path.startswith(f"{root}/metadata/") else before
        is_old = entry.changed_at is not None and entry.changed_at < limit
        if is_old and not f"{entry.path}/".startswith(folders) and _is_ours(entry, root):
            yield entry


def _newest(entries: Sequence[Entry]) -> datetime:
    """Return the modification time of the newest file, by the storage clock."""
    return max((entry.changed_at for entry in entries if entry.changed_at is not None), default=datetime.max.replace(tzinfo=UTC))


def _other_table(table: Table, entries: Sequence[Entry], used: Collection[str]) -> str | None:
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


def _is_ours(entry: Entry, root: str) -> bool:
    if entry.path.startswith(f"{root}/data/"):
        return True
    return entry.path.startswith(f"{root}/metadata/") and entry.path.endswith(_METADATA)


def _references(table: Table) -> set[str]:
    """Return all files referenced by the table's metadata.

    :raises CatalogUnavailableError: if a part of the metadata cannot be read.
    """
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
