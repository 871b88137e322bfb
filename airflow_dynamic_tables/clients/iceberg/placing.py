"""Where a new Iceberg table lies, and which properties it begins with."""

from __future__ import annotations

from uuid import uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.table import TableProperties

from airflow_dynamic_tables.core.identifiers import ObjectPath, folder_name

PREVIOUS_METADATA = {TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "10"}
"""How many earlier metadata files are kept: each is as large as the history of the table, and nobody reads one."""

LATEST_VERSION = 2
"""The latest format version that PyIceberg writes; it reads later ones."""

NEW_TABLE = {
    TableProperties.FORMAT_VERSION: str(LATEST_VERSION),
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    **PREVIOUS_METADATA,
}
"""Properties of a new table."""


def warehouse(catalog: Catalog) -> str | None:
    """URI of the folder that new tables lie in; ``None`` when a server knows it alone."""
    named = str(catalog.properties.get("warehouse") or "")
    return named.rstrip("/") if "://" in named else None


def new_location(catalog: Catalog, path: ObjectPath) -> str | None:
    """A folder that no other table ever has: a renamed table keeps its own, and the next one of its old name must not share it.

    :return: ``None`` when the catalog alone knows where its tables lie; then it chooses.
    """
    folder = f"{folder_name(path.name)}-{uuid4().hex}"
    if (root := warehouse(catalog)) is not None:
        return f"{root}/{folder_name(path.database)}/{folder}"
    namespace = catalog.load_namespace_properties((path.database,)).get("location")
    return f"{str(namespace).rstrip('/')}/{folder}" if namespace else None
