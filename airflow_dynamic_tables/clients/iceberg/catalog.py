"""PyIceberg's catalog in a SQL database, at a cost that does not grow with the history of a table."""

from __future__ import annotations

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    TableRequirement,
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
    update_table_metadata,
)
from pyiceberg.typedef import Identifier


class LeanCatalog(SqlCatalog):
    """PyIceberg's own copies the whole metadata of a table at every change, which for thousands of snapshots takes seconds."""

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        if current_table is None:
            return super()._update_and_stage_table(current_table, table_identifier, requirements, updates)
        for requirement in requirements:
            requirement.validate(current_table.metadata)
        metadata = _updated(current_table, updates)
        version = self._parse_metadata_version(current_table.metadata_location) + 1
        location = load_location_provider(metadata.location, metadata.properties).new_table_metadata_file_location(version)
        return StagedTable(
            identifier=table_identifier,
            metadata=metadata,
            metadata_location=location,
            io=self._load_file_io(properties=metadata.properties, location=location),
            catalog=self,
        )


def _updated(table: Table, updates: tuple[TableUpdate, ...]) -> TableMetadata:
    """PyIceberg's ``update_table_metadata`` without its last step, a deep copy of the result."""
    context = _TableMetadataUpdateContext()
    metadata = table.metadata
    for update in updates:
        metadata = _apply_table_update(update, metadata, context)
    if metadata is table.metadata:
        return metadata
    if metadata.last_updated_ms == table.metadata.last_updated_ms:
        return update_table_metadata(table.metadata, updates, metadata_location=table.metadata_location)
    metadata = _update_table_metadata_log(metadata, table.metadata_location, table.metadata.last_updated_ms)
    metadata.spec().check_compatible(metadata.schema())
    metadata.sort_order().check_compatible(metadata.schema())
    return metadata
