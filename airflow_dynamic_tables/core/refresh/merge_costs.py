"""Costs of merges: whether partitions are replaced although their new rows could be merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

_MEASURED = 3
"""Number of merges after which durations decide."""

_NOTICEABLE_SECONDS = 10.0
"""Seconds by which merges must have been slower, because shorter durations vary."""

_MIB = 1 << 20

_NOTICEABLE_BYTES = _MIB
"""Bytes by which a merge must read more, because smaller files take longer to open than to read."""

_SHARE = 0.9
"""Share of the bytes of a replacement that a merge may read, because it also joins the rows that it reads."""


@dataclass(frozen=True, slots=True)
class ReadBytes:
    """The bytes of the files that only a merge reads, and of those that only a replacement of the same partitions reads."""

    merge: int
    replacement: int


def why_costlier(merges: Sequence[float], others: Sequence[float], read: ReadBytes | None) -> str:
    """Return why a merge costs more than a replacement, without a full stop; empty if it does not.

    Durations decide if both have been measured, otherwise the bytes that they read.

    :param merges: the seconds of earlier merges, newest first.
    :param others: those of refreshes without a merge.
    :param read: ``None`` if it is not known.
    """
    if len(merges) >= _MEASURED and others:
        is_slower = median(merges[:_MEASURED]) > median(others[:_MEASURED]) + _NOTICEABLE_SECONDS
        return "earlier merges took longer" if is_slower else ""
    if read is None or read.merge <= _SHARE * read.replacement + _NOTICEABLE_BYTES:
        return ""
    saves_little = ", which saves too little" if read.merge <= read.replacement else ""
    return f"a merge of the new ones would read {_size(read.merge)} instead of {_size(read.replacement)}{saves_little}"


def _size(number: int) -> str:
    return f"{number / _MIB:,.1f} MiB"
