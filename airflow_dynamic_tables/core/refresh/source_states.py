"""What a source was like when a refresh read it, part by part, so that a later one can tell what has changed since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceState:
    """One table as a refresh read it; what nobody knows is ``None``, and unknown is never the same as unchanged.

    ``version`` names the state as a whole. ``identity`` tells the table from another of the same name that took its place,
    ``location`` is where it lies, ``schema`` a digest of its columns. ``partitions`` are fingerprints of what each partition
    holds, by its text (``ds=2024-01-01/hh=03``, see :func:`~airflow_dynamic_tables.core.tables.partitions.describe`): a
    partition has changed when its fingerprint is another, came when it was not there before, and went when it is there no
    more. An empty text stands for a table that cannot be split, all of it. ``unsettled`` are those of them that had changed so
    shortly before they were looked at that another change may leave their fingerprint as it is.
    """

    version: str
    identity: str | None = None
    location: str | None = None
    schema: str | None = None
    partitions: Mapping[str, str] | None = None
    unsettled: tuple[str, ...] = ()
