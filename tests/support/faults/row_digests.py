"""The content of a table as one short text: the same however, and in whatever order, its rows were read."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import pyarrow as pa

_SPACE = 1 << 128


def rows_digest(table: pa.Table) -> int:
    """Of all rows of the columns ``p`` and ``n``: a sum, so that parts add up, and a row that is there twice counts twice."""
    return total(map(_row_digest, table.column("p").to_pylist(), table.column("n").to_pylist()))


def total(digests: Iterable[int]) -> int:
    """Of the parts of a table, that of the whole."""
    return sum(digests) % _SPACE


def text(digest: int) -> str:
    """To compare and to print."""
    return f"{digest:032x}"


def _row_digest(p: int, n: int) -> int:
    return int.from_bytes(blake2b(f"{p},{n}".encode(), digest_size=16).digest())
