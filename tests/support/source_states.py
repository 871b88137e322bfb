"""Two states of a source, compared as a refresh compares the one that was read with the current one."""

from __future__ import annotations

from airflow_dynamic_tables.core.refresh.source_changes import Readings, SourceDifference, SourceHistory, SourceState


def difference(before: SourceState, now: SourceState | None) -> SourceDifference | None:
    """Return the changes of a source between two states; ``None`` if it is certainly unchanged."""
    partitions = before.partitions or {}
    names = {*partitions, *before.unsettled}
    changes = {name: (1, partitions.get(name), name in before.unsettled) for name in names}
    reading = None if before.partitions is None else 1
    return SourceHistory(Readings({"t1": (reading, before)}, changes), now).difference("t1")
