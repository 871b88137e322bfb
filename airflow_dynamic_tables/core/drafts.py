"""Names of drafts: a table that is being made has another name until its commit gives it its own.

Nobody else may use such a name, and no listing shows one.
"""

from __future__ import annotations

import hashlib
import re

_LONGEST_BEGINNING = 20
"""Characters of the table's own name in that of its draft, for people: PostgreSQL's longest names have 63."""

_DRAFT = re.compile(r"[a-z0-9_]*__(new|old)_[0-9a-f]{32}")


def draft_name(table: str, token: str) -> str:
    """The name that a table has while the CREATE TABLE AS of a token makes it."""
    return _name(table, "new", token)


def discarded_name(table: str, token: str) -> str:
    """The name that a draft has from when it was given up until its files are deleted."""
    return _name(table, "old", token)


def is_draft(name: str) -> bool:
    """Whether that is the name of a draft, in whatever case."""
    return _DRAFT.fullmatch(name.lower()) is not None


def _name(table: str, word: str, token: str) -> str:
    beginning = re.sub(r"\W+", "_", table.lower(), flags=re.ASCII)[:_LONGEST_BEGINNING]
    digest = hashlib.sha256(f"{table}\0{token}".encode()).hexdigest()[:32]
    return f"{beginning}__{word}_{digest}"
