"""Names of drafts: a new table has a temporary name until its commit.

Such names are reserved, and are hidden from listings.
"""

from __future__ import annotations

import hashlib
import re

_LONGEST_BEGINNING = 20
"""Maximum characters of the table's name in its draft's name, for readability: PostgreSQL limits names to 63."""

_DRAFT = re.compile(r"[a-z0-9_]*__(new|old)_[0-9a-f]{32}")


def draft_name(table: str, token: str) -> str:
    """The name of a table while the CREATE TABLE AS of a token creates it."""
    return _name(table, "new", token)


def discarded_name(table: str, token: str) -> str:
    """The name of an aborted draft until its files are deleted."""
    return _name(table, "old", token)


def is_draft(name: str) -> bool:
    """Return whether a name is that of a draft, ignoring case."""
    return _DRAFT.fullmatch(name.lower()) is not None


def _name(table: str, word: str, token: str) -> str:
    beginning = re.sub(r"\W+", "_", table.lower(), flags=re.ASCII)[:_LONGEST_BEGINNING]
    digest = hashlib.sha256(f"{table}\0{token}".encode()).hexdigest()[:32]
    return f"{beginning}__{word}_{digest}"
