"""What has moved of a source since a refresh read it."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_dynamic_tables.core.refresh.source_states import SourceState


@dataclass(frozen=True, slots=True)
class Difference:
    """How a table differs from what it was: ``partitions``, by their texts, hold something else, or may do so.

    ``None``: nobody knows which. ``why`` says it for people.
    """

    partitions: frozenset[str] | None
    why: str


def difference(before: SourceState | None, now: SourceState | None) -> Difference | None:
    """How a table differs from what it was; ``None`` when it surely does not."""
    if before is None or now is None:
        return Difference(None, "nobody knows what it was like" if before is None else "nobody knows what it is like")
    if before.partitions is None or now.partitions is None:
        return Difference(None, "it has no versions")
    for what in ("identity", "location", "schema"):
        if getattr(before, what) != getattr(now, what):
            return Difference(None, f"its {what} is another one")
    others = frozenset(name for name, _ in before.partitions.items() ^ now.partitions.items())
    if others:
        return Difference(others | frozenset(before.unsettled), f"it is at {now.version}, and was at {before.version}")
    if before.unsettled:
        return Difference(frozenset(before.unsettled), f"it was changed just before version {before.version} of it was read")
    return None
