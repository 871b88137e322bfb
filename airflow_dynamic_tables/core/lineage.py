"""Lineage: reachable tables, the names of tables in OpenLineage, and the columns that a column derives from."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from airflow_dynamic_tables.core.identifiers import TableIdentifier

ASSET_SCHEME = "dynamic-table://"
"""The beginning of the URI of a table's Airflow asset."""

_OBJECT_STORES = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "abfs": "abfss",
    "abfss": "abfss",
    "wasb": "wasbs",
    "wasbs": "wasbs",
}
"""Schemes of object stores, with the one that OpenLineage uses."""


@dataclass(frozen=True, slots=True, order=True)
class DatasetName:
    """The name of a dataset in OpenLineage."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """A column of a source that a column of a query derives from. If it ``is_copy``, the values are the same."""

    table: str
    column: str
    is_copy: bool = False


def dataset_at(location: str) -> DatasetName:
    """Return the name of a folder as Spark's listener of OpenLineage gives it.

    :param location: a path or a URI.
    """
    if "://" not in location:
        path = location.removeprefix("file:")
        return DatasetName("file", posixpath.normpath(f"/{path.lstrip('/')}"))
    parts = urlsplit(location, allow_fragments=False)
    path = unquote(parts.path).rstrip("/") or "/"
    if parts.scheme == "file":
        return DatasetName("file", path)
    if (store := _OBJECT_STORES.get(parts.scheme)) is not None:
        return DatasetName(f"{store}://{parts.netloc}", path.lstrip("/") or "/")
    return DatasetName(f"{parts.scheme}://{parts.netloc}", path)


def metastore_symlink(uri: str, database: str, table: str) -> DatasetName:
    """Return the name of a table of a Hive metastore.

    :param uri: ``thrift://host:port``, several separated by commas, of which Spark's listener uses the first.
    """
    return DatasetName(f"hive://{urlsplit(uri.split(',')[0].strip()).netloc}", f"{database}.{table}")


def asset_dataset(identifier: TableIdentifier) -> DatasetName:
    """Return the name of the dataset of a table's Airflow asset, which is a symlink of the table itself."""
    return DatasetName(f"{ASSET_SCHEME}{quote(identifier.catalog, safe='')}", str(identifier.path))


def reachable(start: TableIdentifier, edges: Mapping[TableIdentifier, Iterable[TableIdentifier]]) -> set[TableIdentifier]:
    """Return the tables that are reachable over edges, without the one to start from."""
    reached: set[TableIdentifier] = set()
    waiting = [start]
    while waiting:
        new = set(edges.get(waiting.pop(), ())) - reached
        reached |= new
        waiting.extend(new)
    return reached - {start}
