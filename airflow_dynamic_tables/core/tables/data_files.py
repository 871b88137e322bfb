"""Which files of a folder are data."""

from __future__ import annotations


def is_hidden(relative_path: str) -> bool:
    """Whether a file below a table's folder is no data: its name, or a folder on the way, begins with "." or "_".

    Spark's rule; a partition folder such as ``_day=1`` is not hidden.
    """
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in relative_path.split("/"))
