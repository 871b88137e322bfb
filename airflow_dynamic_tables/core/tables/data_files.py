"""What the names of files and folders say: which files are data, and of which partition."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote

from airflow_dynamic_tables.core.tables.partitions import NULL_PARTITION

_ESCAPED = re.compile(r"[\x01-\x1f\x7f\"#%'*/:=?\\{\[\]^]")

PATTERN_SIGNS = frozenset("{}[]*?\\")
"""What Hadoop reads as a pattern in the path of a file."""


def is_hidden(relative_path: str) -> bool:
    """Whether a file below a table's folder is no data: its name, or a folder on the way, begins with "." or "_".

    Spark's rule; a partition folder such as ``_day=1`` is not hidden, and a file that HDFS is copying is.
    """
    return any(
        part.startswith(".") or (part.startswith("_") and "=" not in part) or part.endswith("._COPYING_")
        for part in relative_path.split("/")
    )


def partition_of(folders: str) -> dict[str, str]:
    """The partition that names of folders, or the name of a partition, stand for: ``ds=2024-01-01/hh=03``."""
    parts = (part.partition("=") for part in folders.split("/") if part)
    return {unquote(key): unquote(value) for key, _, value in parts}


def partition_name(keys: Sequence[str], values: Sequence[str]) -> str:
    """The name of a partition, which is also its folder, as Hive writes it: ``ds=2024-01-01/hh=03``."""
    return "/".join(f"{_escape(key.lower())}={_escape(value or NULL_PARTITION)}" for key, value in zip(keys, values, strict=True))


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)
