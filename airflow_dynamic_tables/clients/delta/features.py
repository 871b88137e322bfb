"""What a Delta table asks of its writers, and why nobody here may be one of them."""

from __future__ import annotations

from airflow_dynamic_tables.clients.delta.snapshots import DeltaSnapshot

NO_TIME_ZONE = "timestampNtz"
"""The feature of tables with timestamps without time zone."""

_KNOWN = {
    *(NO_TIME_ZONE, "v2Checkpoint", "vacuumProtocolCheck"),
    # These only allow what properties of the table or its columns ask for, and those are looked at.
    *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "identityColumns", "columnMapping"),
}
_NEWEST_READER = 3
_NEWEST_WRITER = 7

_OF_COLUMNS = {
    "delta.invariants": "invariants of its columns",
    "delta.generationExpression": "generated columns",
    "delta.identity.": "identity columns",
    "CURRENT_DEFAULT": "defaults of columns",
}
"""What stands in the schema of a table whose columns say more than their types."""

_OF_PROPERTIES = {
    "delta.appendOnly": "it may only be appended to",
    "delta.enableChangeDataFeed": "it keeps a change data feed",
    "delta.enableDeletionVectors": "it keeps deletion vectors",
    "delta.enableRowTracking": "it tracks rows",
    "delta.enableInCommitTimestamps": "it keeps timestamps in commits",
    "delta.enableIcebergCompatV1": "it is to be read as Iceberg",
    "delta.enableIcebergCompatV2": "it is to be read as Iceberg",
}


def why_unwritable(snapshot: DeltaSnapshot) -> str | None:
    """Why nobody here may add files to a table or take some out; ``None`` when that does it no harm."""
    protocol = snapshot.protocol
    if unknown := sorted((protocol.writer_features | protocol.reader_features) - _KNOWN):
        return f"has the feature {unknown[0]}"
    if protocol.writer > _NEWEST_WRITER or protocol.reader > _NEWEST_READER:
        return f"needs readers of version {protocol.reader} and writers of version {protocol.writer}"
    properties = snapshot.properties
    if (mode := properties.get("delta.columnMapping.mode", "none").lower()) != "none":
        return f"maps its columns by {mode} (delta.columnMapping.mode)"
    for name, what in _OF_PROPERTIES.items():
        if properties.get(name, "").lower() == "true":
            return f"has the property {name}: {what}"
    if constraint := next((name for name in properties if name.startswith("delta.constraints.")), None):
        return f"has the constraint {constraint.removeprefix('delta.constraints.')}"
    return next((f"has {what}" for name, what in _OF_COLUMNS.items() if f'"{name}' in snapshot.schema), None)
