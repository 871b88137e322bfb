"""Looking at Iceberg tables: their versions, their files, their partitions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from sqlalchemy.exc import DBAPIError

from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import CatalogUnavailableError

TOKEN = "dynamic-tables.token"
NUMBER = "dynamic-tables.version"
DATA_TIMESTAMP = "dynamic-tables.data-timestamp"
SOURCES = "dynamic-tables.sources"
FENCE = "dynamic-tables.fence"


def load(catalog: Catalog, path: ObjectPath) -> Table | None:
    """A table of the catalog as it is now; ``None`` when there is none.

    :raises CatalogUnavailableError: when the catalog's database or the table's metadata cannot be reached.
    """
    try:
        return catalog.load_table((path.database, path.name))
    except NoSuchTableError:
        return None
    except DBAPIError as error:
        first_line = (str(error.orig).strip().splitlines() or ["connection failed"])[0]
        raise CatalogUnavailableError(f"Cannot reach catalog {catalog.name}: {first_line}") from error
    except OSError as error:
        raise CatalogUnavailableError(f"Cannot read the metadata of table {path} in catalog {catalog.name}: {error}") from error


def coverage(planned: Sequence[Mapping[str, str]]) -> Callable[[Mapping[str, str | None]], bool]:
    """Whether a plan covers a partition; a planned spec that leaves out keys stands for all their values."""
    values: dict[tuple[str, ...], set[tuple[str | None, ...]]] = {}
    for spec in planned:
        values.setdefault(tuple(spec), set()).add(tuple(spec.values()))
    return lambda spec: not planned or any(tuple(map(spec.get, keys)) in found for keys, found in values.items())


def versions(table: Table) -> Iterator[Version]:
    """The table's versions, newest first, along the lineage of its current snapshot."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        if version := _version(snapshot):
            yield version
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None


def find(table: Table | None, token: str) -> Version | None:
    """The version that a token's commit made."""
    snapshots = table.snapshots() if table is not None else []
    return next((_version(found) for found in snapshots if found.summary and found.summary.get(TOKEN) == token), None)


def _version(snapshot: Snapshot) -> Version | None:
    summary = snapshot.summary
    if summary is None or (token := summary.get(TOKEN)) is None:
        return None
    return Version(
        number=int(summary.get(NUMBER) or 0),
        token=token,
        snapshot=str(snapshot.snapshot_id),
        data_timestamp=datetime.fromisoformat(fresh) if (fresh := summary.get(DATA_TIMESTAMP)) else None,
        committed_at=datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC),
        sources=json.loads(summary.get(SOURCES) or "{}"),
    )


def snapshot_id(table: Table) -> str:
    """The id of the current snapshot, empty when there is none."""
    snapshot = table.current_snapshot()
    return str(snapshot.snapshot_id) if snapshot else ""


def unreadable_by_name(table: Table) -> str | None:
    """Why the table's files cannot be read by the names of their columns; ``None`` when they can."""
    names: dict[int, str | None] = {}
    ids: dict[str | None, int] = {}
    for schema in table.schemas().values():
        for field_id in schema.field_ids:
            name = schema.find_column_name(field_id)
            if names.setdefault(field_id, name) != name:
                return f"had column {names[field_id]} renamed"
            if ids.setdefault(name, field_id) != field_id:
                return f"had column {name} dropped and made anew"
            if schema.find_field(field_id).initial_default is not None:
                return f"has a default for column {name}"
    return None
