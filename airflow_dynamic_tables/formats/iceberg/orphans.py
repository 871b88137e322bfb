"""Files of an Iceberg table that nothing refers to any more are deleted; those of other tables in its folder are not."""

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
from airflow_dynamic_tables.clients.iceberg.placing import warehouse
from airflow_dynamic_tables.clients.object_stores import as_os_errors
from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConfigurationError
from airflow_dynamic_tables.formats.iceberg import snapshots as tables
from airflow_dynamic_tables.formats.own_folder import check_own_folder

_METADATA = (".avro", ".metadata.json", ".puffin", ".stats")
"""Endings of what Iceberg itself writes beside the data; other files there are not ours to judge."""

LONGEST_COMMIT = timedelta(days=1)
"""How long a commit under way may take from its first metadata file to the swap."""

log = logging.getLogger(__name__)


def delete_orphans(store: IcebergStore, path: ObjectPath, before: datetime, held: Callable[[], Collection[str]]) -> Deleted:
    """See :meth:`~airflow_dynamic_tables.formats.base.LakeTable.delete_orphans`.

    The order is what makes it safe beside refreshes: a file that was there when the files were listed is either of a stage
    that is unfinished now, or of one whose commit landed before and so is referred to now, or nobody's. It is asked again what
    is held once the table was read: a restoration that nobody knew of before has read the table after that, or says so now.

    A commit under way has written metadata that nothing refers to yet. While a stage is unfinished, metadata goes only when the
    newest file is a day younger, whatever the clock here says.
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
    """Folders in that of a table that are of other tables."""
    own = f"{table.location().rstrip('/')}/metadata"
    folders = (uri.rpartition("/")[0] for uri in store.metadata_in(f"{plain_path(table.location())}/"))
    return [folder for folder in folders if folder != own]


def _old(entries: Sequence[Entry], root: str, before: datetime, unfinished: Collection[str], newest: datetime) -> Iterator[Entry]:
    """Those of a table's own files that are old enough to go.

    :param unfinished: folders of stages whose commits may be under way.
    :param newest: when the newest file was written, by the clock of the storage.
    """
    folders = tuple(f"{plain_path(folder)}/" for folder in unfinished)
    metadata_before = min(before, newest - LONGEST_COMMIT) if unfinished else before
    for entry in entries:
        limit = metadata_before if entry.path.startswith(f"{root}/metadata/") else before
        is_old = entry.changed_at is not None and entry.changed_at < limit
        if is_old and not f"{entry.path}/".startswith(folders) and _is_ours(entry, root):
            yield entry


def _newest(entries: Sequence[Entry]) -> datetime:
    """When the newest file was written, by the clock of the storage."""
    return max((entry.changed_at for entry in entries if entry.changed_at is not None), default=datetime.max.replace(tzinfo=UTC))


def _other_table(table: Table, entries: Sequence[Entry], used: Collection[str]) -> str | None:
    """Metadata of another table in the folder of this one: the first release placed tables by their names alone."""
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
            continue  # a commit took it away just now
        except (ValueError, ValidationError):
            continue  # nobody finished writing it, so no table has it
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
    """Every file that the table's metadata leads to.

    :raises CatalogUnavailableError: when a part of the metadata cannot be read.
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
    """Manifest lists, manifests and data files."""
    manifests: dict[str, ManifestFile] = {}
    for snapshot in snapshots:
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(io)}
    used = {snapshot.manifest_list for snapshot in snapshots} | manifests.keys()
    for entries in ExecutorFactory.get_or_create().map(lambda manifest: manifest.fetch_manifest_entry(io), manifests.values()):
        used |= {entry.data_file.file_path for entry in entries}
    return used
